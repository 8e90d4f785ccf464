"""One model: built, trained, measured."""

from __future__ import annotations

import time
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import Tensor

import einet
from einet.data import debd
from experiments.table1.settings import Settings, has_linear_sums

__all__ = ["Data", "Trained", "measure_test", "train"]


class Data:
    """The training and validation rows of a data set, on a device, and the trees found in them.

    The test rows are not here: :func:`measure_test` reads them, after the last choice.
    """

    def __init__(self, name: str, root: str | PathLike[str], device: str) -> None:
        self.name, self.root, self.device = name, root, device
        self.train = debd.read(name, "train", root).to(device)
        self.valid = debd.read(name, "valid", root).to(device)
        debd.find(name, "test", root)  # better missed now than after the search
        self._graphs: dict[tuple[int, ...], einet.RegionGraph] = {}

    @property
    def num_variables(self) -> int:
        return self.train.shape[1]

    def graph(self, settings: Settings, seed: int) -> einet.RegionGraph:
        """The structure of a model, made once."""
        if settings.kind == "rat":
            return einet.random_trees(
                self.num_variables, settings.depth, settings.replicas, seed=seed
            )
        # A single tree is that of all rows, whatever the seed.
        key = (settings.trees, seed if settings.trees > 1 else 0)
        if key not in self._graphs:
            self._graphs[key] = einet.chow_liu(self.train, trees=settings.trees, seed=seed)
        return self._graphs[key]


@dataclass
class Trained:
    """A trained model and the record of its training."""

    model: einet.Einet
    record: dict[str, Any]


def train(data: Data, settings: Settings, seed: int) -> Trained:
    """Train one model; the same arguments give the same numbers on the same device."""
    began = time.perf_counter()
    options: dict[str, Any] = {"sums": settings.sums} if has_linear_sums() else {}
    model = einet.Einet(
        data.graph(settings, seed), einet.Bernoulli(), settings.num_sums, seed=seed, **options
    )
    history = einet.fit(
        model,
        data.train,
        data.valid,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        optimizer=_learner(settings),
        patience=settings.patience,
        seed=seed,
        device=data.device,
        progress=False,
    )
    assert history.best_epoch is not None
    record = {
        "settings": settings.to_dict(),
        "seed": seed,
        "valid_ll": history.valid[history.best_epoch],
        "train_ll": history.train[history.best_epoch],
        "best_epoch": history.best_epoch,
        "epochs": len(history),
        "parameters": model.num_parameters,
        "seconds": round(time.perf_counter() - began, 3),
    }
    if history.stopped == "interrupted":
        # fit took the Ctrl-C for itself; half a training is no result.
        raise KeyboardInterrupt
    return Trained(model, record)


def _learner(settings: Settings) -> einet.Learner:
    schedule = einet.linear(settings.first_step, settings.last_step)
    if settings.prior_sums or settings.prior_leaves:
        make: Any = einet  # a library without priors never comes here
        prior = make.Prior(sums=settings.prior_sums, leaves=settings.prior_leaves)
        return make.StochasticEM(schedule, prior=prior)
    return einet.StochasticEM(schedule)


@torch.no_grad()
def measure_test(model: einet.Einet, data: Data) -> dict[str, Any]:
    """Read the test rows and measure a final model on them."""
    test = debd.read(data.name, "test", data.root).to(data.device)
    rows: Tensor = model.log_prob(test).double()
    return {
        "test_ll": float(rows.mean()),
        "test_row_sd": float(rows.std()),
        "test_rows": len(rows),
    }
