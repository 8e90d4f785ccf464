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
from einet.imaging import Pixels, find_memorised, measure
from experiments.images.curves import on_scale, stop_if, valid_rows
from experiments.images.datasets import Parts
from experiments.images.learner import learner, prior
from experiments.images.settings import Settings
from experiments.images.single import members
from experiments.images.stripes import stripes_of
from experiments.images.structure import pixels_of, recipe, structure

__all__ = ["Trained", "train"]

# As many training images are measured: enough to see how much better a model is on them.
_TRAIN_IMAGES = 10_000


@dataclass
class Trained:
    """A trained model and the record of its training and test."""

    model: einet.Model
    pixels: Pixels
    record: dict[str, Any]


def train(
    settings: Settings, parts: Parts, device: str, checkpoint: Path | None, progress: bool = True
) -> Trained:
    """Train and measure one model; the same arguments give the same numbers on the same device.

    A mixture that was interrupted goes on from its checkpoint, if it is given a place for one.
    """
    began = time.perf_counter()
    where = torch.device(device)
    if where.type == "cuda":
        torch.cuda.reset_peak_memory_stats(where)
    pixels = pixels_of(settings, parts.train)
    if settings.clusters == 1:
        model, record = members(settings, parts, where, progress)
    else:
        model, record = _clusters(settings, parts, where, checkpoint, progress)
    record |= {
        "peak_mib": round(_peak_bytes(where) / 2**20, 1),
        "parameters": model.num_parameters,
        "train_images": len(parts.train),
        "image_shape": list(parts.train.image_shape),
    }
    record |= {
        **_measured(model, settings, parts),
        **stripes_of(model, settings, pixels, parts.tested),
        **_memorised(model, parts, pixels),
        "seconds": round(time.perf_counter() - began, 3),
        "device": torch.cuda.get_device_name(where) if where.type == "cuda" else device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "settings": settings.to_dict(),
    }
    return Trained(model, pixels, record)


def _measured(model: einet.Model, settings: Settings, parts: Parts) -> dict[str, Any]:
    """How likely images for training, validation and test are, all measured the same way."""
    train = measure(model, parts.train.take(slice(0, _TRAIN_IMAGES)), colour=settings.colour)
    record: dict[str, Any] = {
        "train_ll": train.nats,
        "train_bits": train.bits,
        "train_images_measured": train.rows,
    }
    if parts.valid is not None:
        valid = measure(model, parts.valid, colour=settings.colour)
        record |= {"valid_ll": valid.nats, "valid_bits": valid.bits, "valid_images": valid.rows}
    record |= {"bits_method": train.method, "test_read": parts.tested is not None}
    if parts.tested is not None:
        test = measure(model, parts.tested, colour=settings.colour)
        record |= {
            "test_ll": test.nats,
            "test_se": test.nats_error,
            "bits_per_dim": test.bits,
            "bits_se": test.bits_error,
            "test_images": test.rows,
        }
    return record


def _memorised(model: einet.Model, parts: Parts, pixels: Pixels) -> dict[str, float]:
    """The share of strips in samples that are those of a training image, and of images likewise."""
    if not isinstance(model, einet.Einet | einet.ClusteredEinet):
        return {}
    found = find_memorised(model, parts.train.tensor(), pixels)
    if found is None:
        return {}
    return {"copied_strips": found.samples, "copied_strips_of_images": found.images}


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
    # Bytes are read as they are asked for.
    rows = parts.train
    if settings.colour != "rgb":
        rows = pixels_of(settings, rows).to_model(rows.tensor())
    valid = None if parts.valid is None else valid_rows(settings, parts.valid.tensor())
    history = model.fit(
        rows,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        optimizer=learner(settings),
        seed=settings.seed,
        checkpoint=checkpoint,
        resume=True,
        progress=progress,
    )
    stop_if(history.stopped)
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
        step, counts = settings.refine_step, prior(settings)
        refined = model.refine(
            rows,
            valid,
            epochs=settings.refine_epochs,
            batch_size=settings.batch_size,
            optimizer=einet.EM(counts) if step is None else einet.StochasticEM(step, counts),
            seed=settings.seed,
            checkpoint=again,
            resume=True,
            progress=progress,
        )
        stop_if(refined.stopped)
        record["refine_seconds"] = round(time.perf_counter() - began, 3)
        record["best_epoch"] = refined.best_epoch
        record["history"] = on_scale(settings, parts, refined)
    return model, record


def _peak_bytes(device: torch.device) -> int:
    """Of the GPU's memory while training, or of this process so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
