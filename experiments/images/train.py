"""One model: built, trained, measured."""

from __future__ import annotations

import resource
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import einet
from einet.imaging import Pixels, measure
from einet.imaging.likelihood import log_density, method_for
from experiments.images.datasets import Parts
from experiments.images.settings import Settings
from experiments.images.soften import Softened
from experiments.images.stripes import stripes_of
from experiments.images.structure import member_seed, pixels_of, recipe, structure

__all__ = ["Trained", "train"]

_SCHEDULES = {"linear": einet.linear, "exponential": einet.exponential, "cosine": einet.cosine}


@dataclass
class Trained:
    """A trained model and the record of its training and test."""

    model: einet.Model
    pixels: Pixels
    record: dict[str, Any]


def train(
    settings: Settings, parts: Parts, device: str, checkpoint: Path | None, progress: bool = True
) -> Trained:
    """Train and test one model; the same arguments give the same numbers on the same device.

    A mixture that was interrupted goes on from its checkpoint, if it is given a place for one.
    """
    began = time.perf_counter()
    where = torch.device(device)
    if where.type == "cuda":
        torch.cuda.reset_peak_memory_stats(where)
    pixels = pixels_of(settings, parts.train)
    if settings.clusters == 1:
        model, record = _members(settings, parts, where, progress)
    else:
        model, record = _clusters(settings, parts, where, checkpoint, progress)
    record |= {
        "peak_mib": round(_peak_bytes(where) / 2**20, 1),
        "parameters": model.num_parameters,
        "train_images": len(parts.train),
        "image_shape": list(parts.train.image_shape),
    }
    if parts.valid is not None:
        valid = log_density(
            model,
            parts.valid.tensor().to(where),
            colour=settings.colour,
            discrete=method_for(model) == "discrete",
        )
        record |= {"valid_ll": float(valid.mean()), "valid_images": len(parts.valid)}
    found = measure(model, parts.test, colour=settings.colour)
    record |= {
        "test_ll": found.nats,
        "test_se": found.nats_error,
        "bits_per_dim": found.bits,
        "bits_se": found.bits_error,
        "bits_method": found.method,
        **stripes_of(model, settings, pixels, parts.test),
        "test_images": found.rows,
        "seconds": round(time.perf_counter() - began, 3),
        "device": torch.cuda.get_device_name(where) if where.type == "cuda" else device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "settings": settings.to_dict(),
    }
    return Trained(model, pixels, record)


def _members(
    settings: Settings, parts: Parts, device: torch.device, progress: bool
) -> tuple[einet.Model, dict[str, Any]]:
    """A single Einet, or several of them mixed with equal weights."""
    found = [_one(settings, number, parts, device, progress) for number in range(settings.members)]
    if len(found) == 1:
        return found[0]
    models, records = zip(*found, strict=True)
    record: dict[str, Any] = {
        name: round(sum(each[name] for each in records), 3)
        for name in ("structure_seconds", "train_seconds", "kmeans_seconds")
    }
    record["members"] = list(records)
    return einet.Mixture(models), record


def _one(
    settings: Settings, member: int, parts: Parts, device: torch.device, progress: bool
) -> tuple[einet.Einet, dict[str, Any]]:
    """A single Einet, as it was after its best epoch on validation images."""
    began = time.perf_counter()
    graph = structure(settings, parts.train, device, member)
    found = time.perf_counter()
    seed = member_seed(settings, member)
    model = einet.Einet(
        graph,
        recipe(settings).leaves(),
        settings.num_sums,
        sums=settings.sums,
        precision=settings.precision,
        seed=seed,
        device=device,
    )
    pixels = pixels_of(settings, parts.train)
    rows, valid = (
        None if part is None else pixels.to_model(part.tensor().to(device))
        for part in (parts.train, parts.valid)
    )
    if settings.initial == "clusters":
        model.initialize(rows, seed=seed, clusters=True)
    history = einet.fit(
        model,
        rows,
        valid,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        optimizer=_learner(settings),
        patience=settings.patience,
        hide=settings.hide,
        finish=settings.finish,
        initialize={"rows": True, "clusters": False, "random": False}[settings.initial],
        seed=seed,
        progress=progress,
    )
    _stop_if(history.stopped)
    record = {
        "structure_seconds": round(found - began, 3),
        "train_seconds": round(time.perf_counter() - found, 3),
        "kmeans_seconds": 0.0,
        "epochs": len(history),
        "best_epoch": history.best_epoch,
        "history": _on_scale(settings, parts, history),
    }
    return model, record


def _on_scale(settings: Settings, parts: Parts, history: einet.History) -> dict[str, list[float]]:
    """Mean log-likelihoods of epochs, in the units of all others."""
    shift = 0.0
    if settings.family == "gaussian":
        shift = parts.train.num_variables * torch.tensor(255.0).double().log().item()
    curves = {"train": history.train, "valid": history.valid}
    return {name: [round(value + shift, 3) for value in curve] for name, curve in curves.items()}


def _clusters(
    settings: Settings,
    parts: Parts,
    device: torch.device,
    checkpoint: Path | None,
    progress: bool,
) -> tuple[einet.Model, dict[str, Any]]:
    """An Einet for each cluster, refined as a whole if so wanted."""
    began = time.perf_counter()
    graph = structure(settings, parts.train, device)
    structure_seconds = time.perf_counter() - began
    model = einet.ClusteredEinet(
        graph,
        recipe(settings).leaves(),
        settings.num_sums,
        settings.clusters,
        sums=settings.sums,
        precision=settings.precision,
        seed=settings.seed,
        device=device,
    )
    again = None
    if checkpoint is not None:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        again = checkpoint.with_name(f"{checkpoint.name}.refine")
    resumed = checkpoint is not None and checkpoint.exists()
    rows, valid = (
        # Bytes are read as they are asked for.
        part if part is None or settings.colour == "rgb"
        else pixels_of(settings, part).to_model(part.tensor())
        for part in (parts.train, parts.valid)
    )  # fmt: skip
    history = model.fit(
        rows,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        optimizer=_learner(settings),
        seed=settings.seed,
        checkpoint=checkpoint,
        resume=True,
        progress=progress,
    )
    _stop_if(history.stopped)
    record: dict[str, Any] = {
        "structure_seconds": round(structure_seconds, 3),
        "train_seconds": round(history.training_seconds, 3),
        "kmeans_seconds": round(history.clustering_seconds, 3),
        "epochs": settings.epochs,
        # Times are then of what was left to do.
        "resumed": resumed,
        "cluster_sizes": {
            "least": min(history.sizes),
            "median": statistics.median(history.sizes),
            "most": max(history.sizes),
        },
    }
    if settings.refine_epochs:
        began = time.perf_counter()
        step, prior = settings.refine_step, _prior(settings)
        refined = model.refine(
            rows,
            valid,
            epochs=settings.refine_epochs,
            batch_size=settings.batch_size,
            optimizer=einet.EM(prior) if step is None else einet.StochasticEM(step, prior),
            seed=settings.seed,
            checkpoint=again,
            resume=True,
            progress=progress,
        )
        _stop_if(refined.stopped)
        record["refine_seconds"] = round(time.perf_counter() - began, 3)
        record["best_epoch"] = refined.best_epoch
        record["history"] = _on_scale(settings, parts, refined)
    return model, record


def _stop_if(stopped: str) -> None:
    if stopped == "interrupted":
        # The training took the Ctrl-C for itself; half a training is no result.
        raise KeyboardInterrupt


def _learner(settings: Settings) -> einet.StochasticEM:
    step: Any = settings.first_step
    if settings.first_step != settings.last_step:
        step = _SCHEDULES[settings.schedule](settings.first_step, settings.last_step)
    if settings.soften:
        return Softened(step, _prior(settings), settings.soften)
    return einet.StochasticEM(step, _prior(settings))


def _prior(settings: Settings) -> einet.Prior:
    return einet.Prior(settings.prior_sums, settings.prior_leaves)


def _peak_bytes(device: torch.device) -> int:
    """Of the GPU's memory while training, or of this process so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
