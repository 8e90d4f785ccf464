"""How frames meet schemas: what a column is, which names are there, which cells are strange."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from einet._checks import shown
from einet.tables.cells import CellType, cell_type, numbers_of, objects_of
from einet.tables.columns import Coding, Constant, Identifier
from einet.tables.frames import column_names
from einet.tables.kinds import code_numbers, code_objects
from einet.tables.specification import Column

__all__ = ["TableWarning", "check_names", "lacking", "notes_of", "read_column", "with_names"]


class TableWarning(UserWarning):
    """Something in a data frame is not as the table expects it, and was dealt with as is said.

    Example:
        >>> import einet, pandas, warnings
        >>> table = einet.Table.of(pandas.DataFrame({"sex": ["f", "m"] * 10}))
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always", TableWarning)
        ...     table.encode(pandas.DataFrame({"sex": ["f", "x"]}))
        array([[ 0.], [nan]])
        >>> print(caught[0].message)
        column 'sex' has 1 cell never seen, such as x, taken as missing
    """


def read_column(series: Any, given: Column, name: Any) -> tuple[Coding, CellType, str | None]:
    """What a column is: its coding, the type of its cells, and what there is to warn of."""
    if given.kind == "identifier":
        return Identifier(), CellType("Object"), None
    kind = cell_type(series, name)
    as_objects = given.kind in ("categories", "ordered", "boolean") and not kind.is_temporal
    if (kind.is_numeric or kind.is_temporal) and not as_objects:
        coding, warning = code_numbers(numbers_of(series, kind, name), kind, given, name)
    else:
        coding, warning = code_objects(objects_of(series, name), kind, given, name)
    return coding, kind, warning


def with_names(data: Any, names: Sequence[Any], rename: bool) -> Any:
    """An array's columns, which go by their position, as those of a table.

    Args:
        data: The array as a frame.
        names: The names of the table's columns.
        rename: Whether the columns take these names; those of an array are its own otherwise.
    """
    given = column_names(data)
    if len(given) != len(names):
        raise ValueError(
            f"frame must have {len(names)} columns, as the table has, got {len(given)}"
        )
    return data.rename(dict(zip(given, names, strict=True))) if rename else data


def check_names(given: Sequence[Any], names: Sequence[Any], modelled: Sequence[Any]) -> None:
    """Refuse a frame that has no column of a table, and warn where a name may be misspelt.

    Args:
        given: The names of the frame's columns.
        names: Those of the table's.
        modelled: Those among them that have variables.
    """
    # Sets, as there may be ten thousand names.
    known, found = set(names), set(given)
    absent = [name for name in modelled if name not in found]
    extra = [name for name in given if name not in known]
    if absent and len(absent) == len(modelled):
        raise ValueError(
            f"frame has no column of the table, whose columns are {shown(list(names))}, but "
            f"{shown(list(given))}"
        )
    if absent and extra:
        warnings.warn(
            f"frame lacks {shown(absent)}, taken as missing, and has {shown(extra)}, which the "
            "table does not know and ignores",
            TableWarning,
            stacklevel=4,
        )


def notes_of(name: Any, coding: Coding, cells: np.ndarray) -> list[str]:
    """What there is to say of cells that a column cannot hold."""
    wrong = coding.is_strange(cells)
    count = int(wrong.sum())
    if not count:
        return []
    example = cells[wrong.argmax()]
    if isinstance(coding, Constant):
        what = "taken for its only value"
    else:
        what = "taken for the nearest possible" if coding.is_number else "taken as missing"
    how = "beyond its bounds" if coding.is_number else "never seen"
    rows = "1 cell" if count == 1 else f"{count} cells"
    return [f"column {name!r} has {rows} {how}, such as {example!s}, {what}"]


def lacking(name: Any, names: Sequence[Any]) -> str:
    """What to say of a name that is none of those there are."""
    near = get_close_matches(str(name), [str(other) for other in names], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"has no column {name!r}{hint} It has {shown(list(names))}"
