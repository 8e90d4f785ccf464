"""What is known of rows, in the terms of a table: cells, intervals and sets of values."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from einet._checks import shown
from einet.tables.cells import CellType, instant
from einet.tables.columns import Binned, Coding, Number, Spiked
from einet.tables.columns.bin_events import Spot
from einet.tables.constraints import Constraint, Interval, Pieces, Values, union
from einet.tables.few_cells import FewCells, FewRows
from einet.tables.frames import as_rows
from einet.tables.schema import Table

__all__ = ["Evidence", "as_evidence", "as_pieces"]


@dataclass(frozen=True)
class Evidence:
    """Rows of a table as a model takes them.

    Attributes:
        z: Encoded cells, NaN where unknown.
        alternatives: Events by variable, of which exactly one holds; one without any events where
            only cells are known.
        backend: The library that answers are frames of.
        find_log_change: What tells :attr:`log_change`, which few questions need; without, it is 0.
        log_changes: The same for each alternative, by which their log densities are told apart;
            without, they are 0.
        cells: The known cells of columns in bins, by name, NaN where unknown: ``z`` tells only
            which bin they lie in.
    """

    z: Float[np.ndarray, "rows variables"]
    alternatives: list[dict[int, Any]]
    backend: str
    find_log_change: Callable[[], Float[np.ndarray, " rows"]] | None = None
    log_changes: Float[np.ndarray, " alternatives"] | None = None
    cells: Mapping[Any, Float[np.ndarray, " rows"]] = field(default_factory=dict)

    @property
    def log_change(self) -> Float[np.ndarray, " rows"]:
        """What log densities of the model lack of those of the table, for each row."""
        return np.zeros(len(self.z)) if self.find_log_change is None else self.find_log_change()


# Values that are the same whatever frame they come in.
_PLAIN = (str, bool, int, float)

#: How many alternatives evidence may have: spikes of several columns multiply.
_MOST_ALTERNATIVES = 4096


def as_evidence(table: Table, given: Any) -> Evidence:
    """Evidence from a data frame, or from a dict for one row.

    Args:
        table: The schema.
        given: A frame; or a dict with, for some columns, a value, a tuple ``(lower, upper)`` of an
            interval with its ends, a list or set of values, or pieces of constraints. None, or an
            empty dict, is one row of which nothing is known.
    """
    if given is not None and not _is_one_row(given):
        frame, backend = as_rows(given, "given")
        z, change = table.encode(frame), partial(table.log_density_change, frame)
        known = _binned_cells(table, frame)
        if not isinstance(frame, FewRows):
            # The frame is the user's, who may change it before log densities are asked for.
            found = change()
            return Evidence(z, [{}], backend, lambda: found, cells=known)
        return Evidence(z, [{}], backend, change, cells=known)
    cells: dict[Any, Any] = {}
    choices: list[list[dict[int, Any]]] = []
    slopes: list[list[float]] = []
    for column, value in dict(given or {}).items():
        coding = table.coding(column)
        if not coding.num_variables:
            raise ValueError(f"given names {column!r}, of which the model knows nothing: it is "
                             f"{coding.describe()}")  # fmt: skip
        if isinstance(value, tuple | list | set | frozenset | Interval | Values):
            pieces = as_pieces(table, column, value)
            found = table.alternatives(column, pieces)
            if not found:
                raise ValueError(f"given[{column!r}] is {shown(value)}, which no cell can be")
            choices.append(found)
            slopes.append([_log_slope(coding, events) for events in found])
        elif value is not None:
            cells[column] = value
    z = np.full((1, table.num_variables), np.nan)
    change, known = None, {}
    if cells:
        frame = _one_row(cells)
        z, change = table.encode(frame, strange="refuse"), partial(table.log_density_change, frame)
        known = _binned_cells(table, frame)
    count = math.prod(len(choice) for choice in choices)
    if count > _MOST_ALTERNATIVES:
        raise ValueError(f"given makes {count} alternatives, more than {_MOST_ALTERNATIVES}")
    joined = [
        {variable: event for part in parts for variable, event in part.items()}
        for parts in product(*choices)
    ]
    changes = np.array([math.fsum(parts) for parts in product(*slopes)])
    return Evidence(z, joined, table.backend, change, changes if changes.any() else None, known)


def _binned_cells(table: Table, frame: Any) -> dict[Any, Float[np.ndarray, " rows"]]:
    """The cells of all columns in bins that a frame has."""
    bins = {name: c for name, c in table.codings.items() if isinstance(c, Binned)}
    if not bins:
        return {}
    cells = table.cells(frame)
    return {name: coding.kept(cells[name]) for name, coding in bins.items() if name in cells}


def _log_slope(coding: Coding, events: Mapping[int, Any]) -> float:
    """What the log density of a point of a column lacks on the model's scale; 0 of others."""
    if isinstance(coding, Binned):
        spots = [event.cell for event in events.values() if isinstance(event, Spot)]
        return float(coding.log_slope(np.array(spots)).sum())
    number = coding.number if isinstance(coding, Spiked) else coding
    points = [event for event in events.values() if isinstance(event, float)]
    if not points or not isinstance(number, Number):
        return 0.0
    return float(number.scale.log_slope(number.scale.inverse(np.array(points))).sum())


def _one_row(cells: Mapping[Any, Any]) -> Any:
    """One row of cells as a frame; of plain values it needs no library."""
    if all(type(value) in _PLAIN for value in cells.values()):
        objects = {name: value if value == value else None for name, value in cells.items()}
        return FewRows({name: FewCells([value]) for name, value in objects.items()}, 1)
    return as_rows({name: [value] for name, value in cells.items()}, "given")[0]


def as_pieces(table: Table, column: Any, value: Any) -> Pieces:
    """Pieces of a constraint, from a tuple for an interval or a list or set of values."""
    kind, coding = table.types[column], table.coding(column)
    if isinstance(value, Interval | Values):
        return (value,)
    if isinstance(value, tuple) and value and isinstance(value[0], Interval | Values):
        return union(value)
    if isinstance(value, tuple):
        if len(value) != 2:
            raise ValueError(
                f"given[{column!r}] must have two ends, (lower, upper), got {shown(value)}"
            )
        if coding.is_number:
            low, high = (_number(kind, column, end) for end in value)
            low, high = -math.inf if low is None else low, math.inf if high is None else high
            return (Interval(low, high),)
        return (_between_categories(coding, column, value),)
    if not len(value):
        raise ValueError(f"given[{column!r}] must hold one value at least, got none")
    if coding.is_number:
        points = [_number(kind, column, point) for point in value]
        return union(Interval.at(point) for point in points if point is not None)
    known = set(coding.values)  # type: ignore[attr-defined]
    strange = [item for item in value if item not in known]
    if strange:
        raise ValueError(f"given[{column!r}] must hold values of the column, got {strange[0]!r}")
    return (Values(value),)


def _between_categories(coding: Any, column: Any, ends: tuple[Any, Any]) -> Constraint:
    if not coding.ordered:
        raise ValueError(
            f"given[{column!r}] is an interval, but the column's categories have no order; "
            "a list or set of them says which"
        )
    values = coding.values
    for end in ends:
        if end is not None and end not in values:
            raise ValueError(f"given[{column!r}] must have categories for ends, got {end!r}")
    first = 0 if ends[0] is None else values.index(ends[0])
    last = len(values) - 1 if ends[1] is None else values.index(ends[1])
    if first > last:
        raise ValueError(f"given[{column!r}] must ascend, got {ends!r}")
    return Values(values[first : last + 1])


def _number(kind: CellType, column: Any, value: Any) -> float | None:
    """An end of an interval as the number behind it."""
    if value is None:
        return None
    if kind.is_temporal:
        if isinstance(value, str):
            value = dt.datetime.fromisoformat(value)
        elif isinstance(value, np.datetime64):
            value = value.astype("M8[us]").item()
        return instant(value, kind, column) / kind.per_unit
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"given[{column!r}] must have numbers for ends, got {shown(value)}")
    return float(value)


def _is_one_row(given: Any) -> bool:
    return isinstance(given, Mapping)
