"""From a numpy array of any type to numbers that torch can hold, or an error that says why not."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

__all__ = ["Cells", "as_numbers", "not_numbers"]

#: Numbers, and which of them are known; None where all are, or where NaN says which are not.
Cells = tuple[np.ndarray, np.ndarray | None]

_LARGEST = np.iinfo(np.int64).max
_PLAIN = (bool, int, float, np.bool_, np.integer, np.floating, Decimal, Fraction)
# What to do about types that are no numbers, by the letter that numpy has for them.
_HINTS = {
    "M": "; dates must be given as numbers, such as seconds since a first date",
    "m": "; durations must be given as numbers, such as seconds",
    "U": "; text must be given as numbers, such as one for each category",
    "S": "; bytes must be given as numbers",
    "c": "; real and imaginary parts must be given as columns of their own",
    "V": "; the fields of records must be given as columns of their own",
}


def not_numbers(name: str, what: str, kind: str = "") -> TypeError:
    """What to raise where something else than numbers was given.

    Args:
        name: The argument.
        what: What it is, with its type.
        kind: numpy's letter for the type, for a hint at what to give instead.

    Example:
        >>> not_numbers("x", "ndarray of <U1", "U").args[0].split("; ")[0]
        'x must be an array of numbers (missing cells as NaN), got ndarray of <U1'
    """
    hint = _HINTS.get(kind, "")
    return TypeError(f"{name} must be an array of numbers (missing cells as NaN), got {what}{hint}")


def as_numbers(array: np.ndarray, name: str, what: str) -> Cells:
    """The same in a type that torch knows, without a copy where it can be.

    Missing cells are NaN in floating numbers. Elsewhere they hold 0, and False stands in the mask
    that is returned beside them.

    Args:
        array: Any array; cells that a masked array hides are missing.
        name: What errors call the argument.
        what: What errors call the array, such as its type or that of its table and the column.

    Example:
        >>> hidden = np.ma.masked_array([[1, 999], [3, 4]], mask=[[False, True], [False, False]])
        >>> numbers, known = as_numbers(hidden, "x", "an array")
        >>> numbers.tolist(), known.tolist()
        ([[1, 0], [3, 4]], [[True, False], [True, True]])
    """
    kind = array.dtype.kind
    if kind not in "biufO":
        raise not_numbers(name, f"{what} of {array.dtype}", kind)
    known = None
    if isinstance(array, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(array)
        known, array = ~mask if mask.any() else None, np.ma.getdata(array)
        if known is not None:
            # What is hidden must not be looked at: an integer may be too large, an object anything.
            array = array.copy()
            array[mask] = None if kind == "O" else math.nan if kind == "f" else 0
    if kind == "O":
        return _from_objects(array, name, what), None
    if kind == "f" and array.dtype.itemsize > 8:
        raise not_numbers(name, f"{what} of {array.dtype}, which torch does not know")
    if kind == "u" and array.dtype.itemsize > 1:
        # torch can do next to nothing with the wider unsigned integers.
        if array.dtype.itemsize == 8 and array.size and int(array.max()) > _LARGEST:
            raise too_large(name, int(array.max()))
        array = array.astype(np.int64)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array, None if kind == "f" else known


def too_large(name: str, value: int) -> ValueError:
    """What to raise for a whole number beyond 64 bits, which would come back as another one."""
    return ValueError(
        f"{name} must hold whole numbers between {-_LARGEST - 1} and {_LARGEST} (int64), got "
        f"{value if abs(value) < 1 << 128 else 'one of many more digits'}"
    )


def _from_objects(array: np.ndarray, name: str, what: str) -> np.ndarray:
    """Python's numbers as float64; None and the NA of pandas are NaN.

    numpy would turn text and dates into numbers here, if they look like it.
    """
    kinds = {type(cell) for cell in array.flat}
    missing = {kind for kind in kinds if _is_missing(kind)}
    for kind in sorted(kinds - missing, key=lambda kind: kind.__name__):
        if not issubclass(kind, _PLAIN) or issubclass(kind, np.timedelta64):
            one = f"{what} of objects, one of them of {kind.__name__}"
            raise not_numbers(name, one if array.ndim else what, _letter(kind))

    def number(cell: Any) -> float:
        if type(cell) in missing:
            return math.nan
        if isinstance(cell, int) and not -_LARGEST - 1 <= cell <= _LARGEST:
            raise too_large(name, cell)
        try:
            return float(cell)
        except (ValueError, OverflowError, ArithmeticError) as error:
            raise not_numbers(name, f"{what} of objects, one of them {str(cell)[:40]}") from error

    return np.fromiter(map(number, array.flat), np.float64, array.size).reshape(array.shape)


def _is_missing(kind: type) -> bool:
    if kind is type(None) or kind is np.ma.core.MaskedConstant:
        return True
    # By its name: nobody needs pandas to be told of it.
    return kind.__name__ == "NAType" and kind.__module__.startswith("pandas.")


def _letter(kind: type) -> str:
    """numpy's letter for a type of Python's."""
    if issubclass(kind, str):
        return "U"
    if issubclass(kind, complex | np.complexfloating):
        return "c"
    if issubclass(kind, bytes):
        return "S"
    names = {base.__name__ for base in kind.__mro__}
    return "M" if names & {"date", "datetime64", "NaTType", "Period"} else ""
