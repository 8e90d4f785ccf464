"""Levels of ordered values: neighbouring states, or numbers, that are counted as one."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float, Integer, Shaped
from torch import Tensor

from einet._checks import as_int, shown
from einet._memory import chunks
from einet.data.batch import Batch
from einet.structures.arguments import as_rows
from einet.structures.histogram import histogram

__all__ = ["MOST_LEVELS", "as_levels", "equal_frequency", "sensible_levels"]

#: Levels, and states without levels, are kept as bytes.
MOST_LEVELS = 256
# So many states are always told apart.
_LEAST_LEVELS = 16
# So many rows shall fall on each cell of the table of a pair.
_ROWS_OF_A_CELL = 64
# Halvings of an interval: what the largest level may hold is known to a millionth of all rows.
_HALVINGS = 20


def as_levels(levels: Any) -> int | str | None:
    """The argument ``levels``: a number of them, ``"auto"``, or None for all states.

    >>> as_levels(16), as_levels("auto"), as_levels(None)
    (16, 'auto', None)
    """
    if levels is None or (isinstance(levels, str) and levels == "auto"):
        return levels
    return _as_number(levels, ', "auto" or None')


def _as_number(levels: Any, others: str = "") -> int:
    message = f"levels must be an integer from 2 to {MOST_LEVELS}{others}, got {shown(levels)}"
    try:
        number = as_int("levels", levels, minimum=2)
    except (TypeError, ValueError) as error:
        raise type(error)(message) from None
    if number > MOST_LEVELS:
        raise ValueError(message)
    return number


def sensible_levels(rows: int) -> int:
    """How many levels so many rows can tell apart: 64 rows to each cell of a pair, but at least 16.

    >>> sensible_levels(1_000), sensible_levels(60_000), sensible_levels(10_000_000)
    (16, 30, 256)
    """
    return min(max(_LEAST_LEVELS, math.isqrt(rows // _ROWS_OF_A_CELL)), MOST_LEVELS)


@torch.no_grad()
def equal_frequency(data: Any, observed: Any = None, *, levels: int, weights: Any = None) -> Batch:
    """Put the values of each variable into levels of about equal frequency.

    A level holds neighbouring values, and equal values are never parted. Of all ways to do so with
    at most L levels it is one in which the fullest level holds as few rows as can be, where values
    that are alone in their level do not count: a pixel that is black in most images has a level for
    black, and all others for the rest of its values. Where a variable holds only whole numbers from
    0 to L − 1 it stays as it is.

    Args:
        data: Ordered numbers of any kind, ``[rows, variables]``; NaN where missing.
        observed: A mask, True where a cell is known (for integer data).
        levels: L, the most levels a variable may have, 2 to 256.
        weights: How often each row counts; once by default.

    Returns:
        Levels as bytes, ascending with the values from 0 on, and 0 where missing; mask and weights
        are those given.

    Example:
        >>> equal_frequency([[0.1], [0.2], [0.3], [7.0], [8.0], [9.0]], levels=2).x.flatten()
        tensor([0, 0, 0, 1, 1, 1], dtype=torch.uint8)
        >>> equal_frequency([[5], [5], [5], [5], [6], [7], [8], [9]], levels=3).x.flatten()
        tensor([0, 0, 0, 0, 1, 1, 2, 2], dtype=torch.uint8)
    """
    number = _as_number(levels)
    batch = as_rows(data, observed, weights)
    of_columns = _of_bytes if batch.x.dtype == torch.uint8 else _of_numbers
    rows, variables = batch.x.shape
    result = torch.empty(rows, variables, dtype=torch.uint8, device=batch.x.device)
    for columns in chunks(variables, "levels", 64 * rows, batch.x.device):
        mask = None if batch.observed is None else batch.observed[:, columns]
        part = Batch(batch.x[:, columns], mask, weights=batch.weights)
        result[:, columns] = of_columns(part, number)
    if batch.observed is not None:
        result.masked_fill_(~batch.observed, 0)
    return Batch(result, batch.observed, weights=batch.weights)


def _of_bytes(batch: Batch, levels: int) -> Integer[Tensor, "rows columns"]:
    """Levels of bytes, by how often each byte occurs."""
    x = batch.x.int()
    first = MOST_LEVELS * torch.arange(x.shape[1], dtype=torch.int32, device=x.device)
    mass = histogram(x + first, MOST_LEVELS * x.shape[1], _cell_weights(batch))
    cumulative = mass.double().view(-1, MOST_LEVELS).cumsum(1)
    of_states = _levels(cumulative, levels)
    stays = (batch.x.amax(0) < levels).unsqueeze(1)
    states = torch.arange(MOST_LEVELS, device=x.device)
    of_states = torch.where(stays, states, of_states)
    return of_states.flatten()[(x + first).long()].to(torch.uint8)


def _of_numbers(batch: Batch, levels: int) -> Integer[Tensor, "rows columns"]:
    """Levels of numbers of any kind, by their order."""
    x = batch.x.T.contiguous()
    stays = ((x >= 0) & (x < levels)).all(1, keepdim=True)
    if x.is_floating_point():
        stays &= (x == x.round()).all(1, keepdim=True)
    cells = _cell_weights(batch)
    mass = torch.ones_like(x, dtype=torch.float64) if cells is None else cells.T.double()
    ordered, order = x.sort(1)
    cumulative = _over_equals(ordered, mass.gather(1, order).cumsum(1))
    found = torch.empty_like(order).scatter_(1, order, _levels(cumulative, levels))
    return torch.where(stays, x.clamp(0, levels).long(), found).T.to(torch.uint8)


def _cell_weights(batch: Batch) -> Float[Tensor, "rows columns"] | None:
    """How often each cell counts: 0 where it is missing; None if all count once."""
    if batch.observed is None and batch.weights is None:
        return None
    cells = batch.mask.double()
    return cells if batch.weights is None else cells * batch.weights.double().unsqueeze(1)


def _over_equals(
    ordered: Shaped[Tensor, "columns rows"], cumulative: Float[Tensor, "columns rows"]
) -> Float[Tensor, "columns rows"]:
    """What is at or below a value, with all that equal it, in place of those up to a row."""
    last = torch.ones_like(ordered, dtype=torch.bool)
    last[:, :-1] = ordered[:, 1:] != ordered[:, :-1]
    # The nearest last one of equals to the right: the least of what is at or above.
    ends = torch.where(last, cumulative, math.inf)
    return ends.flip(1).cummin(1).values.flip(1)


def _levels(
    cumulative: Float[Tensor, "columns values"], levels: int
) -> Integer[Tensor, "columns values"]:
    """The level of each value, of what is at or below it, ascending."""
    total = cumulative[:, -1:].contiguous()
    # Halving finds the least that suffices for levels to hold: between too little and enough.
    too_little, enough = torch.zeros_like(total), total
    alone = _borders(cumulative, too_little, levels)[:, -1:] == total
    for _ in range(_HALVINGS):
        middle = (too_little + enough) / 2
        suffices = _borders(cumulative, middle, levels)[:, -1:] == total
        too_little = torch.where(suffices, too_little, middle)
        enough = torch.where(suffices, middle, enough)
    borders = _borders(cumulative, torch.where(alone, 0.0, enough), levels)
    return torch.searchsorted(borders, cumulative).clamp_(max=levels - 1)


def _borders(
    cumulative: Float[Tensor, "columns values"], most: Float[Tensor, "columns 1"], levels: int
) -> Float[Tensor, "columns levels"]:
    """What lies at or below the end of each level, if levels are filled one after another.

    Each takes values as long as it holds no more than ``most``, but one value at least.
    """
    last = cumulative.shape[1] - 1
    end, ends = torch.zeros_like(most), []
    for _ in range(levels):
        filled = torch.searchsorted(cumulative, end + most, right=True)
        further = cumulative.gather(1, (filled - 1).clamp_(min=0))
        single = torch.searchsorted(cumulative, end, right=True).clamp_(max=last)
        # Below the first value there is nothing, whatever stands at the place before it.
        grows = (filled > 0) & (further > end)
        end = torch.where(grows, further, cumulative.gather(1, single))
        ends.append(end)
    return torch.cat(ends, 1)
