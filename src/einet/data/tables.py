"""Tables of pandas, Arrow and others: their columns as numbers, and the names of the columns.

None of their packages is imported here: who gives a table of one has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from einet.data.cells import Cells, as_numbers, not_numbers
from einet.data.columns import names_of

__all__ = ["Table", "as_column", "as_table", "is_table"]

#: Numbers, which are known, and the names of the columns, where these have some.
Table = tuple[np.ndarray, np.ndarray | None, tuple[str, ...] | None]


def is_table(value: Any) -> bool:
    """Whether this is a table of pandas or Arrow."""
    pandas, arrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return True
    return arrow is not None and isinstance(value, arrow.Table | arrow.RecordBatch)


def as_table(value: Any, name: str) -> Table | None:
    """The numbers of a data frame; None for anything that is none.

    Args:
        value: Whatever was given.
        name: What errors call it.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"age": [31, 54], "height": [1.7, None]})
        >>> numbers, known, columns = as_table(frame, "x")
        >>> numbers.tolist(), known, columns
        ([[31.0, 1.7], [54.0, nan]], None, ('age', 'height'))
    """
    kind = type(value).__name__
    pandas, arrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        names, order = names_of(list(value.columns), name)
        types = set(value.dtypes)
        if order is None and all(isinstance(each, np.dtype) and _mixes(each) for each in types):
            return *as_numbers(value.to_numpy(), name, kind), names
        parts = [value.iloc[:, number] for number in order or range(value.shape[1])]
        return *_joined(parts, names, len(value), name, kind, _of_pandas), names
    if arrow is not None and isinstance(value, arrow.Table | arrow.RecordBatch):
        names, order = names_of(value.column_names, name)
        parts = [value.column(number) for number in order or range(value.num_columns)]
        return *_joined(parts, names, value.num_rows, name, kind, _of_arrow), names
    labels = getattr(value, "columns", None)
    if isinstance(labels, list | tuple) and all(isinstance(label, str) for label in labels):
        # A frame of another package, as long as numpy can read it.
        array = np.asarray(value)
        if array.ndim == 2 and array.shape[1] == len(labels):
            return *as_numbers(array, name, kind), names_of(labels, name)[0]
    return None


def as_column(value: Any, name: str) -> Cells | None:
    """The numbers of one column by itself, as of labels; None for anything that is none."""
    pandas, arrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if pandas is not None and isinstance(value, pandas.Series):
        return _of_pandas(value, name, "Series")
    if arrow is not None and isinstance(value, arrow.Array | arrow.ChunkedArray):
        return _of_arrow(value, name, type(value).__name__)
    return None


def _mixes(dtype: np.dtype) -> bool:
    """Whether columns of this type become one array of numbers with others, and rightly so.

    Booleans would make objects of them, and the largest integers rounded numbers.
    """
    return dtype.kind in "if" or (dtype.kind == "u" and dtype.itemsize < 8)


def _joined(
    parts: Sequence[Any],
    names: Sequence[str] | None,
    rows: int,
    name: str,
    kind: str,
    of_column: Callable[[Any, str, str], Cells],
) -> Cells:
    """Columns side by side, in a type that holds all of them."""
    cells = []
    for number, part in enumerate(parts):
        column = repr(number if names is None else names[number])
        cells.append(of_column(part, name, f"{kind} whose column {column} is"))
    if not cells:
        return np.empty((rows, 0)), None
    dtype = np.result_type(*(values.dtype for values, _ in cells))
    result = np.empty((rows, len(cells)), dtype)
    known = None
    for number, (values, of_column_known) in enumerate(cells):
        result[:, number] = values
        if of_column_known is None:
            continue
        if dtype.kind == "f":
            result[~of_column_known, number] = np.nan
        else:
            known = np.ones(result.shape, dtype=bool) if known is None else known
            known[:, number] = of_column_known
    return result, known


def _of_pandas(column: Any, name: str, what: str) -> Cells:
    pandas, dtype = sys.modules["pandas"], column.dtype
    if isinstance(dtype, np.dtype):
        return as_numbers(column.to_numpy(), name, what)
    if isinstance(dtype, pandas.ArrowDtype):
        return _of_arrow(column.array.__arrow_array__(), name, what)
    if isinstance(dtype, pandas.SparseDtype):
        return as_numbers(column.sparse.to_dense().to_numpy(), name, what)
    if dtype.kind not in "biuf":
        text = isinstance(dtype, pandas.StringDtype | pandas.CategoricalDtype)
        dates = isinstance(dtype, pandas.DatetimeTZDtype | pandas.PeriodDtype)
        raise not_numbers(name, f"{what} of {dtype}", "U" if text else "M" if dates else "")
    plain = getattr(dtype, "numpy_dtype", np.dtype(np.float64))
    if dtype.kind == "f":
        return as_numbers(column.to_numpy(dtype=plain, na_value=np.nan), name, what)
    known = ~column.isna().to_numpy(dtype=bool)
    filled, _ = as_numbers(column.to_numpy(dtype=plain, na_value=0), name, what)
    return filled, None if known.all() else known


def _of_arrow(column: Any, name: str, what: str) -> Cells:
    arrow = sys.modules["pyarrow"]
    kind, types = column.type, arrow.types
    if types.is_null(kind):
        return np.full(len(column), np.nan), None
    if types.is_decimal(kind):
        column = column.cast(arrow.float64())
    elif types.is_boolean(kind) or types.is_integer(kind):
        if column.null_count == 0:
            return as_numbers(column.to_numpy(zero_copy_only=False), name, what)
        known = column.is_valid().to_numpy(zero_copy_only=False)
        # Filled first: numpy would be given rounded numbers otherwise, for the sake of NaN.
        filled = column.fill_null(False if types.is_boolean(kind) else 0)
        return as_numbers(filled.to_numpy(zero_copy_only=False), name, what)[0], known
    elif not types.is_floating(kind):
        text = types.is_dictionary(kind) or types.is_string(kind) or types.is_large_string(kind)
        dates = types.is_temporal(kind)
        raise not_numbers(name, f"{what} of {kind}", "U" if text else "M" if dates else "")
    return as_numbers(column.to_numpy(zero_copy_only=False), name, what)
