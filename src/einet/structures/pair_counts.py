"""Tables of how often the states of two variables occur together, of all pairs of variables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int16
from torch import Tensor

from einet._memory import chunks, fitting
from einet.data.batch import Batch
from einet.structures.histogram import histogram

__all__ = ["pair_counts"]

# So many states a variable has at most where products of one-hot matrices are the fastest way to
# count. Beyond, the rows of each table are looked up: that takes the same time for any number of
# states. A CPU: 190 GFLOP/s of products against 1 ns for a row and a pair (two cores).
_STATES_OF_PRODUCTS = {"cpu": 8, "cuda": 64}
# Sums of 0 and 1 are exact in float32 up to here.
_EXACT_ROWS = 1 << 24
# Tensor cores want columns in multiples of this, and so variables of any number of states.
_ALIGNED = 8


def pair_counts(
    batch: Batch, states: int
) -> Iterator[tuple[slice, slice, Float[Tensor, "first states second states"]]]:
    """Count the states of all pairs of variables, some pairs at a time.

    A pair is counted over the rows in which both variables are known. Counts are exact: whole
    numbers in float64, or sums of weights.

    What is missing is taken for one more state, so that every row has a state of every variable.
    Then the counts of a variable's commonest state follow from those of the others and need not
    be made: for binary data a quarter of all products is left, for images that are mostly black a
    few of their rows.

    Args:
        batch: States as bytes, from 0 to ``states − 1``, with weights of rows.
        states: The most states of a variable.

    Yields:
        Two blocks of variables with the counts of their pairs, ``[u, a, v, b]``, float64, where the
        commonest state of a variable and state 0 have changed places. All pairs u < v come once;
        others that are in a block with them are to be left alone.

    Example:
        >>> rows = Batch(torch.tensor([[0, 1], [1, 1], [0, 0]], dtype=torch.uint8))
        >>> for first, second, joint in pair_counts(rows, states=2):
        ...     print(joint[0, :, 1 - second.start])
        tensor([[1., 1.],
                [1., 0.]], dtype=torch.float64)
    """
    coded = _coded(batch, states)
    most = _STATES_OF_PRODUCTS["cpu" if batch.x.device.type == "cpu" else "cuda"]
    for first, second, counts in (_by_products if states <= most else _by_rows)(coded):
        full = _completed(coded, first, second, counts)
        yield first, second, full[:, :states, :, :states]


@dataclass(frozen=True)
class _Coded:
    """Data in which the commonest state of each variable is 0, and missing cells are a state."""

    codes: Int16[Tensor, "rows variables"]
    weights: Float[Tensor, " rows"] | None
    #: The number of states, with that of missing cells where there are any.
    width: int
    #: How often each variable has each state.
    totals: Float[Tensor, "variables width"]


def _coded(batch: Batch, states: int) -> _Coded:
    codes, width = batch.x.to(torch.int16), states
    if batch.observed is not None:
        codes, width = codes.masked_fill_(~batch.observed, states), states + 1
    variables, device = codes.shape[1], codes.device
    weights = None if batch.weights is None else batch.weights.double()
    offset = width * torch.arange(variables, dtype=torch.int32, device=device)
    totals = torch.zeros(variables * width, dtype=torch.float64, device=device)
    for rows in chunks(len(codes), "pair codes", 16 * variables, device):
        cells = None if weights is None else weights[rows].unsqueeze(1).expand(-1, variables)
        totals += histogram(codes[rows].int() + offset, len(totals), cells)
    totals = totals.view(variables, width)
    commonest = totals[:, :states].argmax(1, keepdim=True)
    state = commonest.to(torch.int16).T
    codes = torch.where(codes == state, 0, torch.where(codes == 0, state, codes))
    exchanged = torch.arange(width, device=device).repeat(variables, 1)
    exchanged[:, :1] = commonest
    exchanged.scatter_(1, commonest, 0)
    return _Coded(codes, weights, width, totals.gather(1, exchanged))


def _by_products(coded: _Coded) -> Iterator[tuple[slice, slice, Tensor]]:
    """Counts of all states but the commonest, as products of one-hot blocks."""
    variables, kept = coded.codes.shape[1], max(1, coded.width - 1)
    device = coded.codes.device
    columns = math.isqrt(fitting("pair counts", 32, device))
    step = max(1, columns // kept // _ALIGNED) * _ALIGNED
    blocks = [slice(start, min(start + step, variables)) for start in range(0, variables, step)]
    for number, first in enumerate(blocks):
        for second in blocks[number:]:
            yield first, second, _product(coded, first, second, step * kept)


def _product(coded: _Coded, first: slice, second: slice, columns: int) -> Tensor:
    dtype = _exact_type(coded)
    device = coded.codes.device
    sizes = [part.stop - part.start for part in (first, second)]
    kept = coded.width - 1
    total = torch.zeros(sizes[0], kept, sizes[1], kept, dtype=torch.float64, device=device)
    bytes_each = 2 * columns * (1 + dtype.itemsize)
    step = min(_EXACT_ROWS, fitting("one-hot rows", bytes_each, device))
    for start in range(0, len(coded.codes), step):
        rows = slice(start, start + step)
        left = _one_hot(coded, rows, first, dtype)
        right = left if first == second else _one_hot(coded, rows, second, dtype)
        if coded.weights is not None:
            left = left * coded.weights[rows].unsqueeze(1)
        if dtype == torch.bfloat16:
            counts = torch.ops.aten.mm.dtype(left.T, right, torch.float32)
        else:
            counts = left.T @ right
        total += counts[: sizes[0] * kept, : sizes[1] * kept].reshape(total.shape)
    return total


def _exact_type(coded: _Coded) -> torch.dtype:
    """The fastest type whose products count exactly. A sum of float32 is exact up to 2²⁴ rows."""
    if coded.weights is not None:
        return torch.float64
    device = coded.codes.device
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        return torch.float32
    # Older releases of torch round such products to bfloat16.
    return torch.bfloat16 if hasattr(torch.ops.aten.mm, "dtype") else torch.float32


def _one_hot(
    coded: _Coded, rows: slice, variables: slice, dtype: torch.dtype
) -> Float[Tensor, "rows columns"]:
    """One column for each state of each variable but the commonest."""
    codes = coded.codes[rows, variables].unsqueeze(-1)
    states = torch.arange(1, coded.width, dtype=torch.int16, device=codes.device)
    hot = (codes == states).flatten(1)
    if dtype == torch.bfloat16 and hot.shape[1] % _ALIGNED:
        hot = torch.nn.functional.pad(hot, (0, -hot.shape[1] % _ALIGNED))
    return hot.to(dtype)


def _by_rows(coded: _Coded) -> Iterator[tuple[slice, slice, Tensor]]:
    """Counts of one variable with some others: each row falls into one cell of each table."""
    variables, width = coded.codes.shape[1], coded.width
    device = coded.codes.device
    for number in range(variables - 1):
        first = slice(number, number + 1)
        # Rows with the commonest state of this variable need not be looked at.
        (rows,) = coded.codes[:, number].nonzero(as_tuple=True)
        states = width * coded.codes[rows, number].int().unsqueeze(1)
        for part in chunks(variables - 1 - number, "pair tables", 8 * width**2, device):
            second = slice(number + 1 + part.start, number + 1 + part.stop)
            yield first, second, _tables(coded, rows, states, second)


def _tables(coded: _Coded, rows: Tensor, states: Tensor, second: slice) -> Tensor:
    width, size = coded.width, second.stop - second.start
    device = coded.codes.device
    table = width**2 * torch.arange(size, dtype=torch.int32, device=device)
    total = torch.zeros(size * width**2, dtype=torch.float64, device=device)
    for part in chunks(len(rows), "pair codes", 16 * size, device):
        cells = coded.codes[:, second].index_select(0, rows[part]) + (states[part] + table)
        weights = None
        if coded.weights is not None:
            weights = coded.weights[rows[part]].unsqueeze(1).expand(-1, size)
        total += histogram(cells, len(total), weights)
    return total.view(size, width, width)[:, 1:, 1:].transpose(0, 1).unsqueeze(0)


def _completed(
    coded: _Coded, first: slice, second: slice, counts: Tensor
) -> Float[Tensor, "first width second width"]:
    """Counts of all states: what the commonest state of a variable has is what others leave."""
    of_first, of_second = coded.totals[first], coded.totals[second]
    width = coded.width
    full = counts.new_empty(len(of_first), width, len(of_second), width)
    full[:, 1:, :, 1:] = counts
    full[:, 1:, :, 0] = of_first[:, 1:].unsqueeze(-1) - counts.sum(3)
    full[:, 0] = of_second - full[:, 1:].sum(1)
    # Differences of whole numbers are exact, others have rounding errors.
    return full if coded.weights is None else full.clamp_(min=0)
