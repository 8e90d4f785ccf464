"""Boxes of a table as rows of evidence for its model: values of variables, and events of others.

A box of columns is a union of rows, since a column may be two variables: a gain of at most 100 is
the spike at 0, or no spike and a number up to 100. Rows of one box exclude one another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from einet.data.events import States
from einet.tables.alternatives import is_certain
from einet.tables.columns import Binned, Coding, Number, Spiked
from einet.tables.columns.bin_events import Spot
from einet.tables.constraints import Box, Constraint, Interval, Pieces
from einet.tables.schema import Table

__all__ = ["MOST_ROWS", "Row", "Ways", "rows_of"]

#: More rows than these are refused.
MOST_ROWS = 1 << 16


@dataclass(frozen=True)
class Row:
    """One way for a box to come true.

    Attributes:
        values: Variables that are known.
        events: Variables of which something is known.
        points: How many continuous columns are held at one value.
        log_slope: What the log-density of these lacks of that of the columns.
    """

    values: Mapping[int, float]
    events: Mapping[int, Any]
    points: int = 0
    log_slope: float = 0.0


#: All ways for a column to lie in some pieces, by column and pieces.
Ways: TypeAlias = dict[tuple[Any, Pieces], list[Row]]


def rows_of(table: Table, box: Box, known: Ways | None = None) -> list[Row]:
    """All ways for a box to come true; none where it cannot.

    Args:
        table: The table whose columns they are.
        box: Pieces of some of its columns.
        known: What has been found of columns before; what is found now is added.
    """
    known = {} if known is None else known
    columns = []
    for column, pieces in box.items():
        if (column, pieces) not in known:
            known[column, pieces] = _ways(table, column, pieces)
        columns.append(known[column, pieces])
    count = 1
    for ways in columns:
        count *= len(ways)
        if count > MOST_ROWS:
            raise ValueError(f"it takes more than {MOST_ROWS:,} disjoint pieces, which is too many")
    return [_joined(ways) for ways in itertools.product(*columns)]


def _ways(table: Table, column: Any, pieces: Sequence[Constraint]) -> list[Row]:
    """All ways for a column to lie in some pieces."""
    coding, start = table.coding(column), table.variables(column).start
    alternatives = table.alternatives(column, pieces)
    if isinstance(coding, Binned):
        return [_in_bins(coding, events) for events in alternatives]
    number = coding.number if isinstance(coding, Spiked) else coding
    if not isinstance(number, Number) or number.decimals is not None:
        return [_settled(events) for events in alternatives]
    # At one number there is no probability but a density, which is that of the column.
    ways = [_settled(events) for events in alternatives if not _has_point(events)]
    points = [piece.lower for piece in pieces if isinstance(piece, Interval) and piece.is_point]
    spikes = coding.spikes if isinstance(coding, Spiked) else ()
    possible = (point for point in points if number.smallest < point < number.largest)
    return ways + [_held(coding, start, float(point)) for point in possible if point not in spikes]


def _has_point(events: Mapping[int, Any]) -> bool:
    return any(isinstance(event, float) for event in events.values())


def _settled(events: Mapping[int, Any]) -> Row:
    """A row of events, those that leave one state taken as known."""
    values = {}
    for variable, event in events.items():
        if isinstance(event, float):
            values[variable] = event
        elif isinstance(event, States) and is_certain(event):
            values[variable] = event.values.item()
    return Row(values, {key: event for key, event in events.items() if key not in values})


def _in_bins(coding: Binned, events: Mapping[int, Any]) -> Row:
    """A row of a column in bins, with what its event says of where it lies in them."""
    ((variable, event),) = events.items()
    if isinstance(event, Spot):
        slope = float(coding.log_slope(np.array([event.cell]))[0])
        return Row({variable: event}, {}, points=1, log_slope=slope)
    return _settled(events)


def _held(coding: Coding, start: int, point: float) -> Row:
    """A row with a continuous column at a number."""
    cell = np.array([point])
    encoded = coding.encode(cell)[0]
    values = {start + place: float(z) for place, z in enumerate(encoded) if not np.isnan(z)}
    return Row(values, {}, points=1, log_slope=float(coding.log_slope(cell)[0]))


def _joined(ways: Sequence[Row]) -> Row:
    """Ways of different columns that come true together."""
    values = {key: value for way in ways for key, value in way.values.items()}
    events = {key: event for way in ways for key, event in way.events.items()}
    slope = math.fsum(way.log_slope for way in ways)
    return Row(values, events, sum(way.points for way in ways), slope)
