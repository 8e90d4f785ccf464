"""From whatever a user gives to a tensor, which of its cells are known, and its columns' names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.masked
from jaxtyping import Bool, Shaped
from torch import Tensor

from einet.data.cells import as_numbers, not_numbers, too_large
from einet.data.tables import as_column, as_table

__all__ = ["Given", "as_given"]

# What the rest of the library computes with. Narrower floats are widened, and wider unsigned
# integers, with which torch can do next to nothing, become int64.
_KNOWN = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
)  # fmt: skip
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


@dataclass(frozen=True)
class Given:
    """Numbers, as they were given.

    Attributes:
        values: The numbers; NaN where one is missing, if they are floating.
        known: False where a cell is missing, of others; None where none is.
        columns: The names of the columns, where they have names.
        lent: Whether the values lie in the memory that was given, which may change later.
    """

    values: Shaped[Tensor, "*shape"]
    known: Bool[Tensor, "*shape"] | None = None
    columns: tuple[str, ...] | None = None
    lent: bool = False

    def in_order(self, order: list[int] | None, columns: tuple[str, ...]) -> Given:
        """The same with its columns in another order."""
        if order is None:
            return Given(self.values, self.known, columns, self.lent)
        known = None if self.known is None else self.known[:, order]
        return Given(self.values[:, order], known, columns)


def as_given(value: Any, name: str, differentiable: bool = False) -> Given:
    """Read an array, a tensor, a data frame, a column or a nested list.

    A cell is missing that is NaN, None, hidden by a masked array or tensor, or null in a table of
    pandas or Arrow. Whole numbers keep their type; leaves turn them into float64, in which those
    beyond 2⁵³ are rounded as all numbers are.

    Args:
        value: What was given.
        name: What errors call it.
        differentiable: Whether a tensor keeps its graph.

    Raises:
        TypeError: It holds something else than numbers: text, dates, complex numbers, records.
        ValueError: It holds whole numbers beyond int64, or two columns of one name.

    Example:
        >>> as_given([[1, None]], "x").values
        tensor([[1., nan]], dtype=torch.float64)
        >>> import pandas
        >>> given = as_given(pandas.DataFrame({"a": [1, None]}, dtype="Int64"), "x")
        >>> given.values.tolist(), given.known.tolist(), given.columns
        ([[1], [0]], [[True], [False]], ('a',))
    """
    if isinstance(value, Tensor):
        return _from_tensor(value, name, differentiable)
    columns, kind = None, type(value).__name__
    if isinstance(value, list | tuple):
        rows = _stacked(value, name)
        if isinstance(rows, Tensor):
            return _from_tensor(rows, name, differentiable)
        numbers, known = as_numbers(rows, name, kind)
        lent = False
    elif (column := as_column(value, name)) is not None:
        numbers, known = column
        lent = True
    elif (table := as_table(value, name)) is not None:
        numbers, known, columns = table
        # What is put together here owns its memory; what a table lends is a view of it.
        lent = not numbers.flags.owndata
    else:
        array = _as_array(value, name)
        numbers, known = as_numbers(array, name, kind)
        lent = np.may_share_memory(numbers, np.ma.getdata(array))
    # Read-only memory is not torch's to write to, whatever is done with the tensor later.
    ready = np.require(numbers, requirements=["C", "W"])
    mask = None if known is None else torch.from_numpy(np.require(known, requirements=["C", "W"]))
    return Given(torch.from_numpy(ready), mask, columns, lent and ready is numbers)


def _as_array(value: Any, name: str) -> np.ndarray:
    """Anything that numpy can read; masked arrays keep their masks."""
    try:
        return np.asanyarray(value) if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
    except (TypeError, ValueError) as error:
        raise not_numbers(name, type(value).__name__) from error


def _stacked(rows: list[Any] | tuple[Any, ...], name: str) -> np.ndarray | Tensor:
    """A list as one array; rows that are tensors or masked arrays are not read cell by cell."""
    what = type(rows).__name__
    try:
        if rows and all(isinstance(row, Tensor) for row in rows):
            return torch.stack(list(rows))
        if any(isinstance(row, np.ma.MaskedArray) for row in rows):
            return np.ma.array(rows)
        return np.asarray(rows)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise not_numbers(name, f"{what} that is no table of them") from error


def _from_tensor(value: Tensor, name: str, differentiable: bool) -> Given:
    known = None
    if isinstance(value, torch.masked.MaskedTensor):
        mask = value.get_mask()
        known, value = None if mask is None else mask.detach().clone(), value.get_data()
    # Their own methods fail in ways of their own.
    odd = (
        f"a sparse one ({value.layout}); x.to_dense() makes it dense"
        if value.layout != torch.strided and not value.is_nested
        else "a nested one"
        if value.is_nested
        else "one without values (device meta)"
        if value.is_meta
        else None
    )
    if odd is not None:
        raise TypeError(f"{name} must be a plain tensor of numbers, got {odd}")
    if value.is_complex():
        raise TypeError(f"{name} must hold real numbers, got {value.dtype}")
    tensor = value if differentiable else value.detach()
    if value.dtype in _UNSIGNED:
        tensor = _signed(value, known, name)
    elif value.dtype not in _KNOWN:
        if not (value.dtype.is_floating_point and value.dtype.itemsize == 1):
            raise not_numbers(name, f"tensor of {value.dtype}")
        tensor = tensor.float()
    if known is not None and not bool(known.all()):
        if tensor.is_floating_point():
            return Given(torch.where(known, tensor, torch.nan))
        return Given(torch.where(known, tensor, 0), known)
    return Given(tensor, lent=tensor.data_ptr() == value.data_ptr())


def _signed(value: Tensor, known: Tensor | None, name: str) -> Tensor:
    """Unsigned integers as int64, where all that are known fit it."""
    signed = value.detach().long()
    if value.dtype == torch.uint64:
        # In 64 bits with a sign those are negative that do not fit.
        beyond = signed < 0 if known is None else (signed < 0) & known
        if bool(beyond.any()):
            raise too_large(name, int(signed[beyond].max()) + (1 << 64))
    return signed
