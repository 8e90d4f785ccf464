"""The demonstration: digits in, digits out."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import einet
from einet._checks import missing_package
from einet.cli.outputs import Output, check_outputs
from einet.imaging.pictures import grid, save_png
from einet.imaging.recipe_size import check_model

__all__ = ["run"]

_SIDE, _LEVELS, _DELTA = 8, 16, 2


def run(out: Path, *, epochs: int, num_sums: int, seed: int) -> None:
    """Train a model on scikit-learn's digits, report its likelihood, write pictures and model."""
    # Before the training, not after it: the pictures are written at the end.
    for module, package in (("sklearn", "scikit-learn"), ("PIL", "pillow")):
        if find_spec(module) is None:
            raise missing_package(package, "the demonstration", "demo")
    check_outputs(
        [
            Output("out", out / "samples.png", "png", makes_folder=True),
            Output("out", out / "inpainting.png", "png", makes_folder=True),
            Output("out", out / "digits.einet", "model", makes_folder=True),
        ],
        {},
    )
    check_model((_SIDE, _SIDE, 1), num_sums, 1, delta=_DELTA)
    console = Console()
    train, valid, test = _digits(seed)
    graph = einet.poon_domingos((_SIDE, _SIDE), delta=_DELTA)
    model = einet.Einet(graph, einet.Binomial(_LEVELS), num_sums=num_sums, seed=seed)
    console.print(
        f"Einet over {_SIDE}×{_SIDE} digits: {len(graph.scopes)} regions, "
        f"{len(graph.partitions)} partitions, {model.num_parameters:,} parameters"
    )
    history = einet.fit(
        model,
        train,
        valid=valid,
        epochs=epochs,
        batch_size=100,
        optimizer=einet.StochasticEM(einet.linear(0.5, 0.05)),
        seed=seed,
    )
    console.print(_scores(model, {"train": train, "valid": valid, "test": test}))
    console.print(f"{len(history)} epochs in {sum(history.seconds):.1f} s")

    out.mkdir(parents=True, exist_ok=True)
    samples = model.sample(64, seed=seed)
    save_png(out / "samples.png", grid(_images(samples), columns=16, scale=4))
    save_png(out / "inpainting.png", _inpainting(model, test, seed))
    model.save(out / "digits.einet")
    console.print(f"wrote samples.png, inpainting.png and digits.einet to {out}/")


def _digits(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    from sklearn.datasets import load_digits

    data, _ = load_digits(return_X_y=True)
    images = torch.from_numpy(np.asarray(data, dtype=np.uint8))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    return images[order[:1297]], images[order[1297:1547]], images[order[1547:]]


def _scores(model: einet.Einet, parts: dict[str, Tensor]) -> Table:
    table = Table("", "images", "log-likelihood", "bits per dimension")
    for name, images in parts.items():
        with torch.no_grad():
            mean = model.log_prob(images).double().mean().item()
        bits = -mean / (images.shape[1] * math.log(2))
        table.add_row(name, f"{len(images)}", f"{mean:.2f}", f"{bits:.3f}")
    return table


def _inpainting(model: einet.Einet, test: Tensor, seed: int, count: int = 10) -> np.ndarray:
    """Rows: original, covered (left or top half), three conditional samples, posterior mean."""
    images = test[: 2 * count].double()
    covered = images.view(-1, _SIDE, _SIDE).clone()
    covered[:count, :, : _SIDE // 2] = math.nan
    covered[count:, : _SIDE // 2] = math.nan
    covered = covered.flatten(1)
    posterior = model.given(covered)
    rows = [images, covered, *posterior.sample(3, seed=seed), posterior.mean()]
    return grid(_images(torch.cat([row.double() for row in rows])), columns=2 * count, scale=4)


def _images(rows: Tensor) -> np.ndarray:
    """Pixels as 8-bit grey, dark on light; what is missing becomes NaN."""
    return 255 - rows.double().view(-1, _SIDE, _SIDE).numpy() * (255 / _LEVELS)
