"""Single Einets, and several of them mixed with equal weights."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

import einet
from experiments.images.curves import model_rows, on_scale, stop_if
from experiments.images.datasets import Parts
from experiments.images.learner import learner
from experiments.images.settings import Settings
from experiments.images.structure import member_seed, recipe, structure

__all__ = ["members"]

# Enough to tell which weights are used.
_PRUNING_ROWS = 10_000


def members(
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
        settings.grow_from or settings.num_sums,
        sums=settings.sums,
        precision=settings.precision,
        seed=seed,
        device=device,
    )
    rows, valid = model_rows(settings, parts, device)
    if settings.initial == "clusters":
        model.initialize(rows, seed=seed, clusters=True)
    histories, more = [], {}
    if settings.grow_epochs:
        histories.append(_fit(model, rows, valid, settings, seed, progress, part="first"))
        model, more = _changed(model, rows, settings, seed)
        more["changed_after"] = len(histories[0])
        more["changed_seconds"] = round(time.perf_counter() - found, 3)
    histories.append(_fit(model, rows, valid, settings, seed, progress, part="last"))
    record = {
        "structure_seconds": round(found - began, 3),
        "train_seconds": round(time.perf_counter() - found, 3),
        "kmeans_seconds": 0.0,
        "epochs": sum(len(history) for history in histories),
        "best_epoch": _best_epoch(histories),
        "history": on_scale(settings, parts, *histories),
    }
    return model, record | more


def _changed(
    model: einet.Einet, rows: Tensor, settings: Settings, seed: int
) -> tuple[einet.Einet, dict[str, Any]]:
    """The model of the first epochs, pruned or grown or both, for the others; what that cost."""
    more: dict[str, Any] = {}
    if settings.prune_keep is not None:
        pruned = einet.prune(model, rows[:_PRUNING_ROWS], settings.prune_keep)
        model = pruned.model
        more["pruned"] = {
            "kept": pruned.kept,
            "of": pruned.of,
            "dropped_flow": pruned.dropped_flow,
            "fall": pruned.fall,
        }
    if settings.grow_from is not None:
        model = einet.grow(model, settings.num_sums, seed=seed)
    return model, more


def _fit(
    model: einet.Einet,
    rows: Tensor,
    valid: Tensor | None,
    settings: Settings,
    seed: int,
    progress: bool,
    part: str,
) -> einet.History:
    """A training: the first epochs, or all others."""
    first, goes_on = part == "first", part == "last" and settings.grow_epochs > 0
    history = einet.fit(
        model,
        rows,
        valid,
        epochs=settings.grow_epochs if first else settings.epochs - settings.grow_epochs,
        batch_size=settings.batch_size,
        optimizer=learner(settings, settings.grow_step if goes_on else None),
        patience=settings.patience,
        hide=settings.hide,
        finish=0 if first else settings.finish,
        initialize=settings.initial == "rows" and not goes_on,
        # Another order of images than before.
        seed=seed + 1 if goes_on else seed,
        progress=progress,
    )
    stop_if(history.stopped)
    return history


def _best_epoch(histories: list[einet.History]) -> int | None:
    """That of the last training, counted over all of them."""
    best = histories[-1].best_epoch
    return None if best is None else best + sum(len(history) for history in histories[:-1])
