"""What ``einet images train`` does, once its arguments are read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer
from torch import Tensor

import einet
from einet._memory import check_room
from einet.cli.console import as_device, counting, say
from einet.cli.image_commands import open_set
from einet.cli.image_report import report
from einet.cli.outputs import Output, check_outputs, check_space
from einet.clusters.history import ClusterHistory
from einet.data.images import ArrayImages, Images
from einet.distributed.launching import check_workers, is_first, run_workers
from einet.imaging import Pixels, Recipe, hold_out, reading
from einet.imaging.colour import as_colour
from einet.imaging.held_out import count_held_out
from einet.imaging.recipe import MOST_CLUSTERS
from einet.learning.checkpoint_file import remove_checkpoints

__all__ = ["Training", "check_files", "check_output", "recipe_of", "train"]

_RECIPES = {"default": Recipe, "paper": Recipe.paper}
_STRUCTURES = {"poon-domingos": None, "chow-liu": Recipe.tree}


def recipe_of(
    name: str,
    structure: str,
    delta: str | None,
    step_size: float | None,
    last_step_size: float | None,
    **changes: Any,
) -> Recipe:
    """What the command line asks for: a recipe by its name or structure, with some changes.

    Args:
        name: ``"default"`` or ``"paper"``.
        structure: ``"poon-domingos"`` or ``"chow-liu"``.
        delta: As in :class:`~einet.imaging.Recipe`, numbers with commas between them.
        step_size, last_step_size: As there; the first alone is constant.
        changes: Other arguments of a recipe; None leaves what the recipe has.
    """
    if name not in _RECIPES:
        raise ValueError(f"recipe must be {' or '.join(_RECIPES)}, got {name!r}")
    if structure not in _STRUCTURES:
        raise ValueError(f"structure must be {' or '.join(_STRUCTURES)}, got {structure!r}")
    if name == "paper" and structure != "poon-domingos":
        raise ValueError(f"recipe paper is of poon-domingos structures, got structure {structure}")
    chosen: dict[str, Any] = {key: value for key, value in changes.items() if value is not None}
    chosen["delta"] = _parse_delta(delta)
    if step_size is not None:
        chosen |= {"step_size": step_size, "last_step_size": None}
    if last_step_size is not None:
        chosen["last_step_size"] = last_step_size
    recipe = (_STRUCTURES[structure] or _RECIPES[name])(**chosen)
    # Step sizes and priors are checked by the learner: now, not once all images are read.
    recipe.learner()
    return recipe


def _parse_delta(text: str | None) -> list[float] | None:
    """Δ from ``"8"`` or ``"16,8,4"``."""
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"delta must be numbers, separated by commas, got {text!r}") from None


def check_output(output: Path, force: bool) -> None:
    """Raise if a model cannot, or shall not, be written there: before hours of training."""
    if not output.absolute().parent.is_dir():
        raise FileNotFoundError(f"output: there is no folder {output.parent}")
    if output.is_dir():
        raise IsADirectoryError(f"output: {output} is a folder; give the name of a file")
    if output.exists() and not force:
        raise FileExistsError(f"output: {output} is there already; --force replaces it")


def check_files(data: Path, output: Path, checkpoint: Path) -> None:
    """Raise if the model or a checkpoint would take the place of what it must not replace."""
    check_outputs(_outputs(output, checkpoint), {"data": data})


def _outputs(output: Path, checkpoint: Path) -> list[Output]:
    return [
        Output("output", output, "any"),
        Output("checkpoint", checkpoint, "checkpoint"),
        Output("checkpoint", _of_refinement(checkpoint), "checkpoint"),
    ]


def _of_refinement(checkpoint: Path) -> Path:
    return checkpoint.with_name(f"{checkpoint.name}.refine")


@dataclass(frozen=True)
class Training:
    """What the command line says of a training, apart from the recipe."""

    output: Path
    colour: str
    clusters: int | None
    epochs: int
    batch_size: int
    valid_share: float | None
    refine: int
    precision: str
    checkpoint: Path
    resume: bool
    seed: int
    device: str | None

    @property
    def second_checkpoint(self) -> Path:
        """The checkpoint of the refinement."""
        return _of_refinement(self.checkpoint)


def train_by(workers: int, images: tuple[Any, ...], recipe: Recipe, training: Training) -> None:
    """Train in one process or in several, given what ``open_set`` takes to open the images."""
    if workers == 1:
        train(open_set(*images), recipe, training)
        return
    device = as_device(training.device)
    check_workers(workers, device)
    run_workers(workers, device, train_by, 1, images, recipe, training)


def train(images: Images, recipe: Recipe, training: Training) -> None:
    """Train, with a checkpoint to resume from, write the model and say how good it is."""
    pixels = Pixels(images.image_shape, colour=as_colour(training.colour))
    if pixels.colour != "rgb" and recipe.family != "gaussian":
        raise ValueError(f"colour must be rgb for {recipe.family} leaves, got {training.colour!r}")
    device = as_device(training.device)
    _check_memory(images, pixels, training.valid_share)
    with counting("reading", len(images)) as progress:
        images = reading.in_memory(images, progress)
    images, held_out = hold_out(images, training.valid_share, training.seed)
    if held_out is not None:
        say(f"{len(held_out):,} of them are held out, to choose the best epoch by")
    clusters = _clusters(training.clusters, recipe, len(images))
    rows, valid = _rows(images, pixels), None if held_out is None else _rows(held_out, pixels)
    precision: Any = training.precision
    if recipe.is_tree:
        say("learning a Chow–Liu tree")
    model = recipe.model(
        images.image_shape,
        clusters,
        rows=_tensor(rows).to(device) if recipe.is_tree else None,
        seed=training.seed,
        precision=precision,
        device=device,
    )
    say(
        f"{recipe.family} leaves, {_structure(recipe, images.image_shape[1])}, "
        f"K {recipe.num_sums}, {model.num_parameters:,} parameters, on {device}"
    )
    _check_space(model, training)
    if is_first():
        _begin_anew(training)
    history = _fit(model, rows, valid, recipe, training)
    _stop_if(history.stopped, training)
    say(_what_happened(history, training.epochs))
    if training.refine:
        _refine(model, rows, valid, recipe, training)
    if not is_first():
        return
    settings = {"epochs": training.epochs, "batch_size": training.batch_size}
    data = {"data": images.name, "split": images.split, "images": len(images)}
    counts = {"held_out": 0 if held_out is None else len(held_out)}
    record = {"recipe": asdict(recipe), **settings, **data, **counts}
    model.save(training.output, pixels.metadata(training=record))
    remove_checkpoints(training.checkpoint)
    if training.refine:
        remove_checkpoints(training.second_checkpoint)
    say(f"wrote {training.output}")
    report(model, pixels, images, held_out, training.seed)


def _check_memory(images: Images, pixels: Pixels, valid_share: float | None) -> None:
    """Raise if all images, and the copies that are made of them, do not fit."""
    copies = (not isinstance(images, ArrayImages)) + bool(count_held_out(len(images), valid_share))
    # Differences of colours are numbers of 16 bits.
    copies += 0 if pixels.colour == "rgb" else 2
    needed = copies * len(images) * images.num_variables
    check_room(f"{len(images):,} images of {'×'.join(map(str, images.image_shape))}", needed)


def _check_space(model: einet.ClusteredEinet, training: Training) -> None:
    """Raise if model and checkpoint do not fit on the disk."""
    values = (*model.parameters(), *model.buffers())
    size = sum(value.numel() * value.element_size() for value in values)
    output, checkpoint, _ = _outputs(training.output, training.checkpoint)
    # A checkpoint is written beside the two before it. Of the components that are learning it
    # holds the last and the best state beside the present one.
    each = size + 3 * size // model.num_clusters
    check_space([(output, size), (checkpoint, 3 * each)])


def _begin_anew(training: Training) -> None:
    """Say that an earlier training is given up, where it is; its refinement must not be resumed."""
    first, second = training.checkpoint, training.second_checkpoint
    if first.exists() and training.resume:
        return
    for path in (path for path in (first, second) if path.exists()):
        say(f"{path} of an earlier training is replaced; --resume would go on")
    remove_checkpoints(second)


def _rows(images: Images, pixels: Pixels) -> Images | Tensor:
    """Images as the model sees them; bytes stay where they are."""
    return images if pixels.colour == "rgb" else pixels.to_model(images.tensor())


def _tensor(rows: Images | Tensor) -> Tensor:
    return rows if isinstance(rows, Tensor) else rows.tensor()


def _fit(
    model: einet.ClusteredEinet,
    rows: Images | Tensor,
    valid: Images | Tensor | None,
    recipe: Recipe,
    training: Training,
) -> ClusterHistory:
    """Train; every component ends up as it was after its best epoch on held-out images."""
    held_out: dict[str, Any] = {} if valid is None else {"valid": valid}
    return model.fit(
        rows,
        **held_out,
        epochs=training.epochs,
        batch_size=training.batch_size,
        optimizer=recipe.learner(),
        from_clusters=recipe.is_tree,
        seed=training.seed,
        checkpoint=training.checkpoint,
        resume=training.resume,
    )


def _refine(
    model: einet.ClusteredEinet,
    rows: Images | Tensor,
    valid: Images | Tensor | None,
    recipe: Recipe,
    training: Training,
) -> None:
    refined = model.refine(
        rows,
        valid,
        epochs=training.refine,
        batch_size=training.batch_size,
        optimizer=einet.EM(recipe.as_prior()),
        seed=training.seed,
        checkpoint=training.second_checkpoint,
        resume=training.resume,
    )
    _stop_if(refined.stopped, training)
    kept = ""
    if valid is not None:
        best = refined.best_epoch
        kept = ", none of them better" if best is None else f", the best was number {best + 1}"
    passes = f"{len(refined)} epoch{'s' * (len(refined) > 1)}"
    say(f"refined as a whole: {passes}{kept}")


def _what_happened(history: ClusterHistory, epochs: int) -> str:
    """A training in words; of clusters only where there are some."""
    sizes, passes = np.array(history.sizes), f"{epochs} epoch{'s' * (epochs > 1)}"
    if len(sizes) == 1:
        return f"trained in {history.training_seconds:.1f} s: {passes} of {sizes[0]:,} images"
    return (
        f"trained in {history.training_seconds:.1f} s: {passes} of each of {len(sizes)} clusters "
        f"of {sizes.min():,} to {sizes.max():,} images, after {history.clustering_seconds:.1f} s "
        "of k-means"
    )


def _structure(recipe: Recipe, width: int) -> str:
    """In words."""
    if recipe.is_tree:
        return "Chow–Liu tree"
    steps = ", ".join(f"{step:g}" for step in np.atleast_1d(recipe.delta_for(width)))
    return f"Poon–Domingos structure with Δ {steps} ({recipe.axes} cuts)"


def _clusters(wanted: int | None, recipe: Recipe, images: int) -> int:
    """How many clusters there are; said where nobody asked for so many."""
    if wanted is None:
        count = recipe.clusters_for(images)
        if not recipe.is_tree:
            few = f": one for each {recipe.images_each} images" if count < MOST_CLUSTERS else ""
            say(f"{count} cluster{'s' * (count > 1)}{few}")
        return count
    if wanted > images:
        raise ValueError(f"clusters must be at most {images}, the images, got {wanted}")
    return wanted


def _stop_if(stopped: str, training: Training) -> None:
    if stopped == "interrupted":
        say(f"stopped; the same command with --resume goes on from {training.checkpoint}")
        raise typer.Exit(130)
