"""What ``einet images train`` does, once its arguments are read."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer
from torch import Tensor

import einet
from einet.cli.console import as_device, counting
from einet.data.images import Images
from einet.imaging import Pixels, Recipe, reading
from einet.imaging.colour import as_colour

__all__ = ["Training", "recipe_of", "train"]

_STRUCTURES = {"poon-domingos": Recipe, "chow-liu": Recipe.tree}
# λ, and what it falls to unless it is given: constant in the paper, best for trees.
_STEP_SIZES, _STEP_SIZES_OF_TREES = (0.5, None), (1.0, 0.01)


def recipe_of(
    structure: str, num_sums: int | None, delta: str | None, axes: str, family: str
) -> Recipe:
    """What the command line asks for; without ``num_sums``, with that of the structure."""
    if structure not in _STRUCTURES:
        raise ValueError(f"structure must be {' or '.join(_STRUCTURES)}, got {structure!r}")
    chosen = {"delta": _parse_delta(delta), "axes": axes, "family": family}
    if num_sums is not None:
        chosen["num_sums"] = num_sums
    return _STRUCTURES[structure](**chosen)


def _parse_delta(text: str | None) -> list[float] | None:
    """Δ from ``"8"`` or ``"16,8,4"``."""
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"delta must be numbers, separated by commas, got {text!r}") from None


@dataclass(frozen=True)
class Training:
    """How to train, as the command line says."""

    output: Path
    colour: str
    clusters: int | None
    epochs: int
    batch_size: int
    step_size: float | None
    last_step_size: float | None
    prior: float
    refine: int
    precision: str
    checkpoint: Path
    resume: bool
    seed: int
    device: str | None

    def learner(self, is_tree: bool) -> einet.StochasticEM:
        """The paper's, unless λ is to fall or there is a prior."""
        first, last = _STEP_SIZES_OF_TREES if is_tree else _STEP_SIZES
        if self.step_size is not None:
            first, last = self.step_size, None
        if self.last_step_size is not None:
            last = self.last_step_size
        return einet.StochasticEM(first if last is None else einet.linear(first, last), self._prior)

    @property
    def refiner(self) -> einet.EM:
        return einet.EM(self._prior)

    @property
    def _prior(self) -> einet.Prior | None:
        return einet.Prior(self.prior, self.prior) if self.prior else None

    @property
    def second_checkpoint(self) -> Path:
        """That of the refinement."""
        return self.checkpoint.with_name(f"{self.checkpoint.name}.refine")


def train(images: Images, recipe: Recipe, how: Training) -> None:
    """Train, with a checkpoint to resume from, and write the model."""
    if not how.output.absolute().parent.is_dir():
        raise FileNotFoundError(f"output: there is no folder {how.output.parent}")
    pixels = Pixels(images.image_shape, colour=as_colour(how.colour))
    if pixels.colour != "rgb" and recipe.family != "gaussian":
        raise ValueError(f"colour must be rgb for {recipe.family} leaves, got {how.colour!r}")
    clusters = _clusters(how, len(images), recipe.is_tree)
    device = as_device(how.device)
    with counting("reading", len(images)) as progress:
        images = reading.in_memory(images, progress)
    rows = images if pixels.colour == "rgb" else pixels.to_model(images.tensor())
    precision: Any = how.precision
    seen = None
    if recipe.is_tree:
        typer.echo("learning a Chow–Liu tree")
        seen = (rows if isinstance(rows, Tensor) else rows.tensor()).to(device)
    model = recipe.model(
        images.image_shape, clusters, rows=seen, seed=how.seed, precision=precision, device=device
    )
    del seen
    typer.echo(
        f"{recipe.family} leaves, {_structure(recipe, images.image_shape[1])}, "
        f"K {recipe.num_sums}, {model.num_parameters:,} parameters, on {device}"
    )
    if how.checkpoint.exists() and not how.resume:
        typer.echo(f"{how.checkpoint} of an earlier training is replaced; --resume would go on")
        how.second_checkpoint.unlink(missing_ok=True)
    history = model.fit(
        rows,
        epochs=how.epochs,
        batch_size=how.batch_size,
        optimizer=how.learner(recipe.is_tree),
        from_clusters=recipe.is_tree,
        seed=how.seed,
        checkpoint=how.checkpoint,
        resume=how.resume,
    )
    _stop_if(history.stopped, how)
    # On the scale pixels/255, as nats are reported everywhere.
    shift = model.num_variables * math.log(255) if recipe.family == "gaussian" else 0.0
    sizes, last = np.array(history.sizes), [epochs[-1] for epochs in history.train if epochs]
    typer.echo(
        f"trained in {history.training_seconds:.1f} s, after {history.clustering_seconds:.1f} s of "
        f"k-means (clusters of {sizes.min()} to {sizes.max()} images); in its cluster an image has "
        f"{np.average(last, weights=sizes[sizes > 0]) + shift:.2f} nats on average"
    )
    if how.refine:
        refined = model.refine(
            rows,
            epochs=how.refine,
            batch_size=how.batch_size,
            optimizer=how.refiner,
            seed=how.seed,
            checkpoint=how.second_checkpoint,
            resume=how.resume,
        )
        _stop_if(refined.stopped, how)
        first, last = refined.train[0] + shift, refined.train[-1] + shift
        typer.echo(f"refined as a whole: {first:.2f} → {last:.2f} nats")
    settings = {"recipe": asdict(recipe), "epochs": how.epochs, "batch_size": how.batch_size}
    data = {"data": images.name, "split": images.split, "images": len(images)}
    model.save(how.output, pixels.metadata(training=settings | data))
    how.checkpoint.unlink(missing_ok=True)
    how.second_checkpoint.unlink(missing_ok=True)
    typer.echo(f"wrote {how.output}")


def _structure(recipe: Recipe, width: int) -> str:
    """In words."""
    if recipe.is_tree:
        return "Chow–Liu tree"
    steps = ", ".join(f"{step:g}" for step in np.atleast_1d(recipe.delta_for(width)))
    return f"Poon–Domingos structure with Δ {steps} ({recipe.axes} cuts)"


def _clusters(how: Training, images: int, is_tree: bool) -> int:
    if how.clusters is None and is_tree:
        return 1
    if how.clusters is None:
        count = Recipe.clusters_for(images)
        few = "" if count == 100 else ": one for each 100 images"
        typer.echo(f"{count} cluster{'s' * (count > 1)}{few}")
        return count
    if how.clusters > images:
        raise ValueError(f"clusters must be at most {images}, the images, got {how.clusters}")
    return how.clusters


def _stop_if(stopped: str, how: Training) -> None:
    if stopped == "interrupted":
        typer.echo(f"stopped; the same command with --resume goes on from {how.checkpoint}")
        raise typer.Exit(130)
