"""Rows whose numbers break training, found and named.

A row breaks it if its log-likelihood is −∞ or NaN, or if what is learnt from it is not finite: the
expected statistics, or for learners by gradients the gradient. Nothing here changes the model.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from einet.data.batch import Batch
from einet.learning.history import History
from einet.learning.learner import Objective
from einet.learning.objective import objective_of, row_weights, weighted_mean
from einet.models.base import Model

__all__ = ["breaks", "broken_rows", "name_rows", "warn_of_skipped"]

# So many rows are named, and so many cells of each.
_NAMED = 3
# Cells of a row are looked at in parts of so many.
_CELLS = 256


def broken_rows(model: Model, batch: Batch, objective: Objective) -> Tensor:
    """Which rows of a batch break the training of a model as it is, ascending.

    Where all of them do so together, halves are tried, and halves of these, down to single rows.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=2)
        >>> x = torch.tensor([[0.0, 1.0], [0.0, float("inf")], [1.0, 1.0]])
        >>> broken_rows(model, Batch(x), "generative")
        tensor([1])
    """
    broken = [torch.zeros(0, dtype=torch.long, device=batch.x.device)]
    if not breaks(model, batch, objective):
        return broken[0]
    # Those that it is likely to be are tried by themselves: that takes fewer halves.
    with torch.no_grad():
        odd = ~objective_of(model, batch, objective).isfinite()
    groups = [odd.nonzero().flatten(), (~odd).nonzero().flatten()]
    waiting = [group for group in groups if len(group) and breaks(model, batch[group], objective)]
    while waiting:
        some = waiting.pop()
        if len(some) == 1:
            broken.append(some)
            continue
        halves = some.split(-(-len(some) // 2))
        waiting += [half for half in halves if breaks(model, batch[half], objective)]
    return torch.cat(broken).sort().values


def breaks(model: Model, batch: Batch, objective: Objective) -> bool:
    """Whether the log-likelihood of a batch, or what a model would learn from it, is not finite."""
    if any(parametrize.is_parametrized(module) for module in model.modules()):
        return _breaks_gradient(model, batch, objective)
    return not all(bool(tensor.isfinite().all()) for tensor in model.e_step(batch).tensors())


def _breaks_gradient(model: Model, batch: Batch, objective: Objective) -> bool:
    with torch.enable_grad(), parametrize.cached():
        values = objective_of(model, batch, objective)
        mean = weighted_mean(values, row_weights(batch, objective))
        free = [parameter for parameter in model.parameters() if parameter.requires_grad]
        gradients = torch.autograd.grad(mean, free, allow_unused=True)
    numbers = [mean, *(each for each in gradients if each is not None)]
    return not all(bool(tensor.isfinite().all()) for tensor in numbers)


def name_rows(
    model: Model, rows: Iterable[Batch], objective: Objective, batch_size: int, name: str
) -> str:
    """Which rows break the training of a model as it is, in words; nothing where none does.

    Where all of a batch do so, it is the model that is broken, and no row of it is named.

    Args:
        model: The model; one that is sound.
        rows: All rows, in parts.
        objective: What is maximised.
        batch_size: How many rows to look at together.
        name: What the rows are called.
    """
    words: list[str] = []
    start = 0
    for part in rows:
        for first in range(0, len(part), batch_size):
            some = part[first : first + batch_size]
            broken = broken_rows(model, some, objective).tolist()
            if len(broken) == len(some) > 1:
                return ""
            for row in broken:
                if len(words) == _NAMED:
                    return f"{', '.join(words)} and others"
                words.append(_name_row(model, some, objective, row, f"{name}[{start + row}"))
            start += len(some)
    return " and ".join(words)


def _name_row(model: Model, batch: Batch, objective: Objective, row: int, name: str) -> str:
    """A row, with those of its cells that break the training by themselves."""
    one, cells = batch[torch.tensor([row], device=batch.x.device)], []
    known = one.mask[0].nonzero().flatten()
    for some in known.split(_CELLS):
        alone = torch.zeros(len(some), batch.x.shape[1], dtype=torch.bool, device=some.device)
        alone.scatter_(1, some.unsqueeze(1), True)
        each = one[torch.zeros_like(some)]
        places = broken_rows(model, replace(each, observed=alone), objective)
        cells += some[places].tolist()
        if len(cells) >= _NAMED:
            break
    columns = model.columns or batch.columns
    if not cells:
        return f"{name}]"
    return ", ".join(
        f"{name}, {cell if columns is None else repr(columns[cell])}] is {one.x[0, cell].item():g}"
        for cell in cells[:_NAMED]
    )


def warn_of_skipped(history: History, named: str) -> None:
    """Warn where rows were left out of a training.

    Args:
        history: Its record.
        named: Some of the rows, in words.
    """
    if not any(history.skipped):
        return
    epochs = sum(map(bool, history.skipped))
    such = f", such as {named}" if named else ""
    warnings.warn(
        f"on_error: rows were left out of {epochs} of {len(history)} epochs, up to "
        f"{max(history.skipped)} in one{such}: their log-likelihood, or what is learnt from them, "
        "is not finite. history.skipped has their number in each epoch",
        RuntimeWarning,
        stacklevel=3,
    )
