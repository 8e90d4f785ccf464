"""Learning a model of a table without knobs: sizes and lengths from the number of rows."""

from __future__ import annotations

from dataclasses import dataclass

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
from einet.learning.schedules import cosine
from einet.models.einet import Einet
from einet.tables.features import features_of
from einet.tables.schema import Table
from einet.tables.structure import column_tree

__all__ = ["Recipe", "learn", "recipe_for", "refine"]

# So many rows are enough to set leaves by, and so many for each state.
_FIRST_ROWS, _FIRST_ROWS_EACH = 5000, 10
# On a GPU, where time hardly depends on K: the rows of a state, and the most states.
_ROWS_EACH, _MOST_SUMS = 45, 512
# Pseudo-counts of sums and of leaves of numbers, times the rows, and of leaves of categories.
_PRIOR_SUMS, _PRIOR_LEAVES, _PRIOR_CATEGORIES = 1000, 300, 0.1


@dataclass(frozen=True)
class Recipe:
    """How a model of a table is learnt.

    Attributes:
        num_sums: K, the states of each column's latent variable.
        epochs: The most passes through the rows.
        batch_size: Rows in a mini-batch.
        patience: Epochs without a better validation result after which learning ends.
        validation: The share of rows that it is measured on; 0 where there are too few.
        prior: The pseudo-counts.
    """

    num_sums: int
    epochs: int
    batch_size: int
    patience: int
    validation: float
    prior: Prior


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
        batch_size=int(np.clip(rows // 10, 50, 1000)),
        # Long steps come first, and it is the short ones after them that settle.
        patience=15,
        validation=as_number("validation", validation, at_least=0, at_most=0.5),
        # Of few rows each sum has one more for its weights, so that none is ever 0. Where there are
        # many, draws that go astray by it would give them away.
        prior=Prior(
            sums=min(1.0, _PRIOR_SUMS / max(rows, 1)),
            leaves=min(0.1, _PRIOR_LEAVES / max(rows, 1)),
            categories=_PRIOR_CATEGORIES,
        ),
    )


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
    """
    if not table.num_variables:
        raise ValueError("frame must have a column that there is something to learn from, got none")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device, seed = torch.device(device), as_seed(seed)
    # Classes are told apart by fewer states than all columns need together.
    is_large = device.type == "cuda" and labels is None
    recipe = recipe_for(len(z), num_sums, epochs, validation=validation, on_gpu=is_large)
    graph = column_tree(table, z, labels)
    model = Einet(
        graph, table.families(), recipe.num_sums, sums="linear", num_classes=num_classes, seed=seed
    )
    train, valid = split(len(z), recipe.validation, seed)
    rows = torch.from_numpy(z)
    generator = torch.Generator().manual_seed(seed)
    count = max(_FIRST_ROWS, _FIRST_ROWS_EACH * recipe.num_sums)
    first = rows[train[torch.randperm(len(train), generator=generator)[:count]]]
    # From random weights latent variables of neighbours would settle on different meanings.
    by = torch.from_numpy(features_of(table, first.numpy())).float()
    model.to(device)
    batch = model.as_batch(first.to(device), device=None)
    initialize_from_clusters(model, batch, generator, by.to(device))
    model.initialized = True
    known = None if labels is None else torch.from_numpy(labels)
    optimizer = StochasticEM(cosine(0.5, 0.02), recipe.prior)
    history = fit(
        model, rows[train], rows[valid] if len(valid) else None, device=device,
        labels=None if known is None else known[train],
        valid_labels=None if known is None or not len(valid) else known[valid],
        epochs=recipe.epochs, batch_size=recipe.batch_size, optimizer=optimizer,
        patience=recipe.patience if len(valid) else None, seed=seed, progress=progress,
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


def split(
    rows: int, share: float, seed: int
) -> tuple[Int[torch.Tensor, " train"], Int[torch.Tensor, " valid"]]:
    """Rows to learn from and rows to validate on, drawn at random, both ascending."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    count = round(share * rows)
    return order[count:].sort().values, order[:count].sort().values
