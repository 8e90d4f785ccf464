"""Learning a model of a table without knobs: sizes and lengths from the number of rows."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from einet._checks import as_int, as_seed
from einet.engine.initialize_clusters import initialize_from_clusters
from einet.families import Categorical
from einet.learning.em import StochasticEM
from einet.learning.fit import fit
from einet.learning.gradient import Gradient
from einet.learning.history import History
from einet.learning.prior import Prior
from einet.learning.schedules import cosine
from einet.models.einet import Einet
from einet.tables.schema import Table
from einet.tables.structure import column_tree

__all__ = ["Recipe", "learn", "recipe_for", "refine"]

# So many rows are enough to set leaves by.
_FIRST_ROWS = 5000


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


def recipe_for(rows: int, num_sums: int | None = None, epochs: int | None = None) -> Recipe:
    """What suits so many rows.

    Args:
        rows: How many there are.
        num_sums: K, where it is given.
        epochs: The most epochs, where they are given.

    Example:
        >>> recipe_for(1000).num_sums, recipe_for(30_000).num_sums
        (32, 64)
    """
    power = int(np.clip(np.round(0.8 * np.log2(max(rows, 1)) - 3.4), 2, 6))
    return Recipe(
        num_sums=2**power if num_sums is None else as_int("num_sums", num_sums, minimum=1),
        epochs=int(np.clip(400_000 // max(rows, 1), 12, 60))
        if epochs is None
        else as_int("epochs", epochs, minimum=1),
        batch_size=int(np.clip(rows // 10, 50, 1000)),
        # Long steps come first, and it is the short ones after them that settle.
        patience=15,
        validation=0.1 if rows >= 100 else 0.0,
    )


def learn(
    table: Table,
    z: Float[np.ndarray, "rows variables"],
    *,
    labels: Int[np.ndarray, " rows"] | None = None,
    num_classes: int = 1,
    num_sums: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
) -> tuple[Einet, History]:
    """A hidden tree that has learnt from encoded rows, in float64.

    Args:
        table: Their schema.
        z: The rows, spread over their grids: ``table.encode(frame, seed=seed)``.
        labels: Classes of the rows, −1 where unknown.
        num_classes: How many classes there are.
        num_sums, epochs: What is not to be chosen by the number of rows.
        seed: Seed of all that is random.
        device: Where to learn; a GPU if there is one, by default.
        progress: Whether to show a progress bar.
        checkpoint, resume: As in :func:`einet.fit`.
    """
    if not table.num_variables:
        raise ValueError("frame must have a column that there is something to learn from, got none")
    seed, recipe = as_seed(seed), recipe_for(len(z), num_sums, epochs)
    graph = column_tree(table, z, labels)
    model = Einet(
        graph, table.families(), recipe.num_sums, sums="linear", num_classes=num_classes, seed=seed
    )
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    train, valid = split(len(z), recipe.validation, seed)
    rows = torch.from_numpy(z)
    some = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    first = rows[train[some[:_FIRST_ROWS]]]
    # From random weights latent variables of neighbours would settle on different meanings.
    generator = torch.Generator().manual_seed(seed)
    by = torch.from_numpy(features_of(table, first.numpy()))
    initialize_from_clusters(model, model.as_batch(first, device=None), generator, by)
    model.initialized = True
    known = None if labels is None else torch.from_numpy(labels)
    # One row for the weights of each sum: none is ever 0. A tenth of one for each leaf: more would
    # make leaves of few rows too wide for columns that nearly determine one another.
    prior = Prior(sums=1.0, leaves=0.1)
    optimizer = StochasticEM(cosine(0.5, 0.02), prior)
    history = fit(
        model, rows[train], rows[valid] if len(valid) else None, device=device,
        labels=None if known is None else known[train],
        valid_labels=None if known is None or not len(valid) else known[valid],
        epochs=recipe.epochs, batch_size=recipe.batch_size, optimizer=optimizer,
        patience=recipe.patience if len(valid) else None, seed=seed, progress=progress,
        checkpoint=checkpoint, resume=resume,
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
) -> History | None:
    """Go on with log p(class | row) as the objective, where validation rows gain by it.

    Args:
        model: A model with classes that has learnt to generate; it is changed in place.
        z, labels: The same rows as it has learnt from.
        epochs: The most epochs; chosen by the number of rows if not given.
        seed, progress: As in :func:`learn`.

    Returns:
        The history, or None where too few rows are there to tell a gain by.
    """
    recipe = recipe_for(len(z), None, epochs)
    train, valid = split(len(z), recipe.validation, seed)
    if not len(valid):
        return None
    rows, known = torch.from_numpy(z), torch.from_numpy(labels)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def quality() -> float:
        joint = model.log_prob(rows[valid], labels=known[valid])
        return float((joint - model.log_prob(rows[valid])).mean())

    at_first = quality()
    rate = 0.01
    history = fit(
        model, rows[train], rows[valid], labels=known[train], valid_labels=known[valid],
        epochs=recipe.epochs, batch_size=recipe.batch_size, patience=recipe.patience, seed=seed,
        optimizer=Gradient(torch.optim.Adam, lr=rate), objective="discriminative",
        initialize=False, hide=0.1, progress=progress,
    )  # fmt: skip
    if not quality() > at_first:
        model.load_state_dict(before)
    return history


def features_of(
    table: Table, z: Float[np.ndarray, "rows variables"]
) -> Float[np.ndarray, "rows features"]:
    """Rows as numbers whose distances mean something: every column has a variance of 1 in all.

    Numbers are taken as they are, categories as one feature for each of them. What is missing is
    at the mean.
    """
    parts = []
    for variable, family in enumerate(table.families()):
        values = z[:, variable]
        known = ~np.isnan(values)
        if isinstance(family, Categorical):
            states = np.arange(int(family.num_categories))
            part = (values[:, None] == states).astype(np.float64)
        else:
            part = np.where(known, values, 0.0)[:, None]
        part[known] -= part[known].mean(0) if known.any() else 0.0
        part[~known] = 0.0
        variance = part.var(0).sum()
        parts.append(part / np.sqrt(variance) if variance > 0 else part)
    return np.concatenate(parts, 1)


def split(
    rows: int, share: float, seed: int
) -> tuple[Int[torch.Tensor, " train"], Int[torch.Tensor, " valid"]]:
    """Rows to learn from and rows to validate on, drawn at random, both ascending."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    count = round(share * rows)
    return order[count:].sort().values, order[:count].sort().values
