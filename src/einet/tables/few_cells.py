"""A few rows of pandas, read in one go.

A frame is read column by column, and each column takes its time, however few its cells are. A few
rows are taken out of pandas as one array of objects instead, and their cells looked at one by one.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

__all__ = ["MOST_ROWS", "FewCells", "FewRows", "few_rows"]

#: More rows than these are read column by column.
MOST_ROWS = 8
# Cells of these are objects already, or become what they stand for: no dates, whose objects differ
# from what is kept, and no types of other packages.
_KINDS = frozenset("iufbO")
_TYPES = frozenset(
    f"{name}Dtype"
    for name in (
        "Boolean", "Categorical", "Float32", "Float64", "Int8", "Int16", "Int32", "Int64", "String",
        "UInt8", "UInt16", "UInt32", "UInt64",
    )
)  # fmt: skip


class FewCells:
    """The cells of a column as Python's own objects.

    Attributes:
        objects: They, None where missing.
    """

    def __init__(self, objects: list[Any]) -> None:
        self.objects = objects

    def __len__(self) -> int:
        return len(self.objects)


class FewRows:
    """A frame of a few rows, of which columns can be had by their names.

    Args:
        columns: The cells of each column.
        rows: How many there are.
    """

    def __init__(self, columns: dict[Any, FewCells], rows: int) -> None:
        self._columns, self._rows = columns, rows
        #: The names of the columns.
        self.columns = list(columns)

    def __len__(self) -> int:
        return self._rows

    def get_column(self, name: Any) -> FewCells:
        """The cells of a column."""
        return self._columns[name]


def few_rows(data: Any) -> FewRows | None:
    """The rows of a small frame of pandas; None for all other data, which go the usual way.

    Example:
        >>> import pandas
        >>> rows = few_rows(pandas.DataFrame({"age": [40, None], "sex": ["f", "m"]}))
        >>> rows.get_column("age").objects
        [40.0, None]
    """
    pandas = sys.modules.get("pandas")
    # A class of its own may answer otherwise.
    if pandas is None or type(data) is not pandas.DataFrame or not 0 < len(data) <= MOST_ROWS:
        return None
    names = data.columns.tolist()
    if len(set(names)) != len(names) or not all(map(_is_plain, data.dtypes)):
        return None
    nothing = pandas.NA
    columns = {
        name: FewCells([None if c is None or c is nothing or c != c else c for c in objects])
        for name, objects in zip(names, _objects(data), strict=True)
    }
    return FewRows(columns, len(data))


def _objects(data: Any) -> list[list[Any]]:
    """The cells of each column."""
    if len(data) == 1:
        row = data.iloc[0]
        # Integers beside floats would become floats: then it takes the longer way.
        if row.dtype == object:
            return [[cell] for cell in row.tolist()]
    return data.to_numpy(dtype=object).T.tolist()


def _is_plain(kind: Any) -> bool:
    """Whether cells of a type are numbers, text or flags once they are objects."""
    if isinstance(kind, np.dtype):
        return kind.kind in _KINDS
    return type(kind).__name__ in _TYPES
