"""One model: built, trained, measured."""

from __future__ import annotations

import time
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import einet
from einet.data import debd
from einet.learning.schedules import Schedule
from experiments.bootstrap import bootstrap_weights
from experiments.table1.settings import Settings

__all__ = [
    "MEMBERS",
    "Data",
    "Trained",
    "begin",
    "describe_test",
    "measure_test",
    "measure_valid",
    "step_and_prior",
    "train",
]

#: Member m of a model with seed s has the seed MEMBERS·s + m. The first member's tree is that of
#: all rows, the others' are of rows drawn with replacement.
MEMBERS = 100


class Data:
    """The training and validation rows of a data set, on a device, and the trees found in them.

    The test rows are not here: :func:`measure_test` reads them, after the last choice.
    """

    def __init__(self, name: str, root: str | PathLike[str], device: str) -> None:
        self.name, self.root, self.device = name, root, device
        self.train = debd.read(name, "train", root).to(device)
        self.valid = debd.read(name, "valid", root).to(device)
        debd.find(name, "test", root)  # better missed now than after the search
        self._graphs: dict[tuple[int, int], einet.RegionGraph] = {}

    @property
    def num_variables(self) -> int:
        return self.train.shape[1]

    def graph(self, settings: Settings, seed: int) -> einet.RegionGraph:
        """The structure of a model, made once."""
        if settings.kind != "learned":
            return einet.random_trees(
                self.num_variables, settings.depth, settings.replicas, seed=seed
            )
        key = (settings.trees, seed)
        if key not in self._graphs:
            weights = bootstrap_weights(len(self.train), seed) if seed % MEMBERS else None
            self._graphs[key] = einet.chow_liu(
                self.train, weights=weights, trees=settings.trees, seed=seed
            )
        return self._graphs[key]


@dataclass
class Trained:
    """A trained model and the record of its training."""

    model: einet.Einet | einet.Mixture
    record: dict[str, Any]


def train(data: Data, settings: Settings, seed: int, keep: Path | None = None) -> Trained:
    """Train one model, or the members of a mixture.

    The same arguments give the same numbers on the same device. Should there be a folder ``keep``,
    members are written to it as soon as they are trained, and not trained again.
    """
    began = time.perf_counter()
    parts, earlier = [], 0.0
    for seed_of_member in range(MEMBERS * seed, MEMBERS * seed + settings.members):
        path = None if keep is None else keep / f"{seed_of_member}.einet"
        part = None if path is None else _read(path, data, settings)
        if part is None:
            part = _train_one(data, settings, seed_of_member)
            if path is not None:
                _write(path, part, settings, data.device)
        else:
            earlier += part.record["seconds"]
        parts.append(part)
    first = parts[0]
    record = {
        "settings": settings.to_dict(),
        "seed": seed,
        "valid_ll": first.record["valid_ll"],
        "train_ll": first.record["train_ll"],
        "best_epoch": first.record["best_epoch"],
        "epochs": first.record["epochs"],
        "parameters": sum(part.record["parameters"] for part in parts),
        "seconds": 0.0,
    }
    model = first.model
    if len(parts) > 1:
        model = einet.Mixture([part.model for part in parts])
        record["valid_ll"] = float(measure_valid(model, data).mean())
        record["members"] = [part.record for part in parts]
    record["seconds"] = round(time.perf_counter() - began + earlier, 3)
    return Trained(model, record)


def _write(path: Path, part: Trained, settings: Settings, device: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {"settings": settings.to_dict(), "device": device, "record": part.record}
    part.model.save(path, kept)


def _read(path: Path, data: Data, settings: Settings) -> Trained | None:
    """A member that was trained before, with these settings on such a device."""
    if not path.exists():
        return None
    kept = einet.load_metadata(path)
    if (kept["settings"], kept["device"]) != (settings.to_dict(), data.device):
        return None
    model = einet.load(path, data.device)
    assert isinstance(model, einet.Einet)
    return Trained(model, kept["record"])


def begin(data: Data, settings: Settings, seed: int) -> einet.Einet:
    """An Einet before its training."""
    model = einet.Einet(
        data.graph(settings, seed),
        einet.Bernoulli(),
        settings.num_sums,
        sums=settings.sums,
        seed=seed,
        device=data.device,
    )
    return model.initialize(data.train, seed=seed, clusters=settings.clusters)


def step_and_prior(settings: Settings) -> tuple[Schedule, einet.Prior]:
    """How stochastic EM goes on."""
    schedule = einet.linear(settings.first_step, settings.last_step)
    return schedule, einet.Prior(sums=settings.prior_sums, leaves=settings.prior_leaves)


def _train_one(data: Data, settings: Settings, seed: int) -> Trained:
    began = time.perf_counter()
    model = begin(data, settings, seed)
    history = einet.fit(
        model,
        data.train,
        data.valid,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        optimizer=einet.StochasticEM(*step_and_prior(settings)),
        patience=settings.patience,
        hide=settings.hide,
        finish=settings.finish,
        seed=seed,
        progress=False,
    )
    if history.stopped == "interrupted":
        # fit took the Ctrl-C for itself; half a training is no result.
        raise KeyboardInterrupt
    assert history.best_epoch is not None
    record = {
        "valid_ll": history.valid[history.best_epoch],
        "train_ll": history.train[history.best_epoch],
        "best_epoch": history.best_epoch,
        "epochs": len(history),
        "parameters": model.num_parameters,
        "seconds": round(time.perf_counter() - began, 3),
    }
    return Trained(model, record)


@torch.no_grad()
def measure_valid(model: einet.Einet | einet.Mixture, data: Data) -> Tensor:
    """The log-likelihood of every validation row."""
    return model.log_prob(data.valid).double()


@torch.no_grad()
def measure_test(model: einet.Einet | einet.Mixture, data: Data) -> Tensor:
    """Read the test rows, and measure a final model on each of them."""
    return model.log_prob(debd.read(data.name, "test", data.root).to(data.device)).double()


def describe_test(rows: Tensor) -> dict[str, Any]:
    """What the table needs of the log-likelihoods of test rows."""
    return {
        "test_ll": float(rows.mean()),
        "test_row_sd": float(rows.std()),
        "test_rows": len(rows),
    }
