"""Learning a model of a table without knobs: sizes and lengths from the number of rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from einet._checks import as_int, as_number, as_seed
from einet.engine.initialize_clusters import initialize_from_clusters
from einet.learning.em import StochasticEM
from einet.learning.fit import fit
from einet.learning.gradient import Gradient
from einet.learning.history import History
from einet.learning.prior import Prior
from einet.learning.report import Callback
from einet.learning.schedules import cosine
from einet.models.einet import Einet
from einet.tables.features import features_of
from einet.tables.schema import Table
from einet.tables.structure import column_tree

__all__ = ["Recipe", "learn", "prior_for", "recipe_for", "refine"]

# So many rows are enough to set leaves by, and so many for each state.
_FIRST_ROWS, _FIRST_ROWS_EACH = 5000, 10
# On a GPU, where time hardly depends on K: the rows of a state, and the most states.
_ROWS_EACH, _MOST_SUMS = 45, 512
# From so many rows on, draws that go astray by pseudo-counts would give them away.
_MANY_ROWS = 10_000
# How fast classes are refined, and how many cells of a row are hidden from it at most.
_RATE, _MOST_HOLES = 0.02, 0.6


@dataclass(frozen=True)
class Recipe:
    """How a model of a table is learnt.

    Attributes:
        num_sums: K, the states of each column's latent variable.
        epochs: The most passes through the rows.
        batch_size: Rows in a mini-batch.
        patience: Epochs without a better validation result after which learning ends.
        validation: The share of rows that it is measured on; 0 where there are too few.
    """

    num_sums: int
    epochs: int
    batch_size: int
    patience: int
    validation: float


def recipe_for(
    rows: int,
    num_sums: int | None = None,
    epochs: int | None = None,
    *,
    validation: float | int | None = None,
    on_gpu: bool = False,
) -> Recipe:
    """What suits so many rows.

    Args:
        rows: How many there are.
        num_sums: K, where it is given.
        epochs: The most epochs, where they are given.
        validation: The share of rows to validate on, where it is given.
        on_gpu: Whether a GPU learns. It has time for a larger K.

    Example:
        >>> recipe_for(1000).num_sums, recipe_for(30_000).num_sums
        (32, 64)
        >>> recipe_for(10_000, on_gpu=True).num_sums, recipe_for(30_000, on_gpu=True).num_sums
        (256, 512)
    """
    power = int(np.clip(np.round(0.8 * np.log2(max(rows, 1)) - 3.4), 2, 6))
    if on_gpu:
        larger = round(np.log2(max(rows, 1) / _ROWS_EACH))
        power = int(np.clip(larger, power, np.log2(_MOST_SUMS)))
    if validation is None:
        validation = 0.1 if rows >= 100 else 0.0
    return Recipe(
        num_sums=2**power if num_sums is None else as_int("num_sums", num_sums, minimum=1),
        epochs=int(np.clip(400_000 // max(rows, 1), *((20, 30) if on_gpu else (12, 60))))
        if epochs is None
        else as_int("epochs", epochs, minimum=1),
        # A small batch costs as much as one of two hundred rows, and is noisier.
        batch_size=int(np.clip(max(rows // 10, min(rows // 4, 250)), 50, 1000)),
        # Long steps come first, and it is the short ones after them that settle.
        patience=15,
        validation=as_number("validation", validation, at_least=0, at_most=0.5),
    )


def prior_for(rows: int, with_classes: bool = False) -> Prior:
    """The pseudo-counts that suit so many rows.

    One row for the weights of each sum, so that none is ever 0, and at most a thirtieth of one for
    each leaf, the less the more rows there are: more would make leaves too wide for columns that
    nearly determine one another, as many rows show them to do. A category needs a little more, as
    no row may be there of it. Of very many rows a few that go astray by pseudo-counts would give
    draws away, so that these fall. Classes are told apart by states that few rows of a class have:
    such models count two rows at each, and fewer for sums.

    Args:
        rows: How many there are to learn from.
        with_classes: Whether the model shall tell classes apart.

    Example:
        >>> [prior_for(rows).sums for rows in (300, 1000, 20_000)]
        [1.0, 1.0, 0.05]
        >>> prior_for(1000, with_classes=True).states
        2.0
    """
    falling = float(np.clip(300 / max(rows, 1), 0.1, 1.0))
    if with_classes:
        return Prior(falling, falling / 30, 2.0)
    if rows < _MANY_ROWS:
        return Prior(1.0, falling / 30, 0.1)
    return Prior(1000 / rows, 300 / rows, 0.1)


def learn(
    table: Table,
    z: Float[np.ndarray, "rows variables"],
    *,
    labels: Int[np.ndarray, " rows"] | None = None,
    num_classes: int = 1,
    num_sums: int | None = None,
    epochs: int | None = None,
    validation: float | int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool = False,
    weights: Float[np.ndarray, " rows"] | None = None,
    valid_rows: Int[np.ndarray, " valid"] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    callbacks: Callback | Sequence[Callback] = (),
) -> tuple[Einet, History]:
    """A hidden tree that has learnt from encoded rows, in float64.

    Args:
        table: Their schema.
        z: The rows, spread over their grids: ``table.encode(frame, seed=seed)``.
        labels: Classes of the rows, −1 where unknown.
        num_classes: How many classes there are.
        num_sums, epochs, validation: What is not to be chosen by the number of rows.
        seed: Seed of all that is random.
        device: Where to learn; a GPU if there is one, by default.
        progress: Whether to show a progress bar.
        weights: How often each row counts; once by default.
        valid_rows: The rows to validate on; drawn at random by default.
        checkpoint, resume, callbacks: As in :func:`einet.fit`.
    """
    if not table.num_variables:
        raise ValueError("frame must have a column that there is something to learn from, got none")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device, seed = torch.device(device), as_seed(seed)
    # Classes are told apart by fewer states than all columns need together.
    is_large = device.type == "cuda" and labels is None
    recipe = recipe_for(len(z), num_sums, epochs, validation=validation, on_gpu=is_large)
    # The tree and the first leaves count rows one by one: those are drawn as often as they weigh.
    drawn = np.arange(len(z)) if weights is None else _drawn(weights, seed)
    graph = column_tree(table, z[drawn], None if labels is None else labels[drawn])
    model = Einet(
        graph, table.families(), recipe.num_sums, sums="linear", num_classes=num_classes, seed=seed
    )
    train, valid = _parts(len(z), recipe.validation, seed, valid_rows)
    rows = torch.from_numpy(z)
    among = train if weights is None else torch.from_numpy(drawn[np.isin(drawn, train)])
    generator = torch.Generator().manual_seed(seed)
    count = max(_FIRST_ROWS, _FIRST_ROWS_EACH * recipe.num_sums)
    first = rows[among[torch.randperm(len(among), generator=generator)[:count]]]
    # From random weights latent variables of neighbours would settle on different meanings.
    by = torch.from_numpy(features_of(table, first.numpy())).float()
    model.to(device)
    batch = model.as_batch(first.to(device), device=None)
    initialize_from_clusters(model, batch, generator, by.to(device))
    model.initialized = True
    known = None if labels is None else torch.from_numpy(labels)
    optimizer = StochasticEM(cosine(0.5, 0.02), prior_for(len(z), labels is not None))
    history = fit(
        model, rows[train], rows[valid] if len(valid) else None, device=device,
        labels=None if known is None else known[train],
        valid_labels=None if known is None or not len(valid) else known[valid],
        epochs=recipe.epochs, batch_size=recipe.batch_size, optimizer=optimizer,
        patience=recipe.patience if len(valid) else None, seed=seed, progress=progress,
        weights=None if weights is None else torch.from_numpy(weights)[train],
        checkpoint=checkpoint, resume=resume, callbacks=callbacks,
    )  # fmt: skip
    return model.double(), history


def refine(
    model: Einet,
    z: Float[np.ndarray, "rows variables"],
    labels: Int[np.ndarray, " rows"],
    *,
    epochs: int | None = None,
    seed: int = 0,
    progress: bool = False,
    weights: Float[np.ndarray, " rows"] | None = None,
    valid_rows: Int[np.ndarray, " valid"] | None = None,
) -> History | None:
    """Go on with log p(class | row) as the objective, where validation rows gain by it.

    What counts is the mean over validation rows as they are, with 30 % of their cells hidden,
    and with 60 %.

    Args:
        model: A model with classes that has learnt to generate; it is changed in place.
        z, labels: The same rows as it has learnt from.
        epochs: The most epochs; chosen by the number of rows if not given.
        seed, progress, weights, valid_rows: As in :func:`learn`.

    Returns:
        The history, or None where too few rows are there to tell a gain by.
    """
    recipe = recipe_for(len(z), None, epochs)
    train, valid = _parts(len(z), recipe.validation, seed, valid_rows)
    if not len(valid):
        return None
    before = {name: value.clone() for name, value in model.state_dict().items()}
    generator = np.random.default_rng(seed)
    # Half of what is learnt from has holes, of some rows many: who asks will have holes as well.
    some = _with_holes(z[train], generator.uniform(0, _MOST_HOLES, (len(train), 1)), generator)
    rows = torch.from_numpy(np.concatenate([z[train], some]))
    known = torch.from_numpy(labels)[train].repeat(2)
    shares = (0.0, _MOST_HOLES / 2, _MOST_HOLES)
    asked = torch.from_numpy(
        np.concatenate([_with_holes(z[valid], share, generator) for share in shares])
    )
    answers = torch.from_numpy(labels)[valid].repeat(len(shares))

    def quality() -> float:
        joint = model.log_prob(asked, labels=answers)
        return float((joint - model.log_prob(asked)).mean())

    at_first = quality()
    history = fit(
        model, rows, asked, labels=known, valid_labels=answers, epochs=recipe.epochs,
        # Rows are there twice, and gradients are less noisy than small batches would make them.
        batch_size=int(np.clip(len(z) // 2, 100, 1000)), patience=recipe.patience, seed=seed,
        optimizer=Gradient(torch.optim.Adam, lr=_RATE), objective="discriminative",
        initialize=False, hide=0.1, progress=progress,
        weights=None if weights is None else torch.from_numpy(weights)[train].repeat(2),
    )  # fmt: skip
    if not quality() > at_first:
        model.load_state_dict(before)
    return history


def _with_holes(
    z: Float[np.ndarray, "rows variables"], share: Any, generator: np.random.Generator
) -> Float[np.ndarray, "rows variables"]:
    """The rows with this share of their cells hidden at random."""
    return np.where(generator.random(z.shape) < share, np.nan, z)


def split(
    rows: int, share: float, seed: int
) -> tuple[Int[torch.Tensor, " train"], Int[torch.Tensor, " valid"]]:
    """Rows to learn from and rows to validate on, drawn at random, both ascending."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    count = round(share * rows)
    return order[count:].sort().values, order[:count].sort().values


def _parts(
    rows: int, share: float, seed: int, valid_rows: Int[np.ndarray, " valid"] | None
) -> tuple[Int[torch.Tensor, " train"], Int[torch.Tensor, " valid"]]:
    """Rows to learn from and rows to validate on, the latter as given or drawn at random."""
    if valid_rows is None:
        return split(rows, share, seed)
    rest = np.setdiff1d(np.arange(rows), valid_rows)
    return torch.from_numpy(rest), torch.from_numpy(np.sort(valid_rows).astype(np.int64))


def _drawn(weights: Float[np.ndarray, " rows"], seed: int) -> Int[np.ndarray, " rows"]:
    """As many rows as there are, ascending, each as often as it weighs or one more or less."""
    start = np.random.default_rng(seed).random()
    ends = np.cumsum(weights / weights.sum()) * len(weights)
    places = np.searchsorted(ends, np.arange(len(weights)) + start, side="right")
    return np.minimum(places, len(weights) - 1)
