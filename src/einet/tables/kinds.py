"""What kind of column some cells make, and its coding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from einet.tables.cells import CellType, instant, single
from einet.tables.columns import Binned, Coding, Constant, Identifier, Number, Spiked, States
from einet.tables.specification import Column

__all__ = ["code_numbers", "code_objects"]

# Text of which this share is different, in more than so many cells, names rows.
_NAMES_SHARE, _NAMES_LEAST = 0.5, 20
# Numbers are states where there are few, or where each has many rows.
_FEW_STATES, _ROWS_OF_FEW = 24, 5
_MOST_STATES, _ROWS_OF_MANY = 256, 100
# A number is a spike where it has this share of the rows, so many rows at least, and so many times
# as many as a step of the grid has beside it.
_SPIKE_SHARE, _SPIKE_ROWS, _SPIKE_TIMES, _NEIGHBOURS = 0.001, 10, 4.0, 5
# It is one without regard to its neighbours where it has as many as these.
_LARGE_SHARE, _LARGE_ROWS = 0.01, 100
_MOST_SPIKES = 255
# A column ends at its extreme value where so many rows, and one of so many, are at it.
_ROWS_AT_END, _SHARE_AT_END = 5, 2000
# As many bins as this times the cube root of the rows, and no more than that.
_BINS_OF_ROOT, _MOST_BINS = 2, 64
_MOST_DECIMALS, _LEAST_DECIMALS, _FINEST = 6, -3, 1e-12


def code_objects(
    cells: np.ndarray, kind: CellType, given: Column, column: Any
) -> tuple[Coding, str | None]:
    """The coding of a column of text, flags and the like, and a warning about it if there is one.

    Args:
        cells: The column; None where missing.
        kind: What its cells are in the data frame.
        given: What the user said of it.
        column: Its name, for errors.
    """
    if given.kind not in _OBJECT_KINDS:
        raise TypeError(
            f"columns[{column!r}] is {given.kind!r}, which is for numbers, but the column holds "
            f"{kind.name}"
        )
    if given.kind == "identifier":
        return Identifier(), None
    known = [cell for cell in cells if cell is not None]
    values = list(given.categories) if given.categories is not None else list(dict.fromkeys(known))
    if given.categories is None and kind.categories is not None and given.kind != "constant":
        # Categories that did not occur are possible, but nothing is known of them.
        seen = set(values)
        values = [value for value in kind.categories if value in seen]
    elif given.categories is None:
        values.sort(key=lambda value: (type(value).__name__, value))
    unknown = set(known) - set(values)
    if unknown:
        raise ValueError(
            f"column {column!r} must hold one of its categories, got {next(iter(unknown))!r}"
        )
    if len(values) == 0:
        return Constant(None), "it holds no value at all, so that there is nothing to learn"
    if given.kind == "constant" or (len(values) == 1 and given.categories is None):
        if len(values) > 1:
            raise ValueError(f"columns[{column!r}] is 'constant', but has {len(values)} values")
        return Constant(values[0]), None
    is_free = given.kind == "automatic" and kind.categories is None and given.categories is None
    if is_free and len(values) > max(_NAMES_LEAST, _NAMES_SHARE * len(known)):
        return Identifier(), (
            f"it looks like an identifier ({len(values)} different values in {len(known)} cells) "
            "and is left out; columns={" + f"{column!r}: 'categories'" + "} keeps it"
        )
    ordered = given.kind == "ordered" or (given.kind == "automatic" and kind.ordered)
    return States(values, ordered, as_numbers=False), None


def code_numbers(
    cells: np.ndarray, kind: CellType, given: Column, column: Any
) -> tuple[Coding, str | None]:
    """The coding of a column of numbers, dates or times, and a warning about it if there is one."""
    if given.kind == "identifier":
        return Identifier(), None
    known = cells[~np.isnan(cells)]
    if not len(known):
        return Constant(None), "it holds no value at all, so that there is nothing to learn"
    lower, upper = _given_ends(given, known, column)
    values, sizes = np.unique(known, return_counts=True)
    if given.kind == "constant" or (len(values) == 1 and given == Column(given.kind)):
        if len(values) > 1:
            raise ValueError(f"columns[{column!r}] is 'constant', but has {len(values)} values")
        return Constant(float(values[0])), None
    if given.categories is not None or given.kind == "states":
        listed = values
        if given.categories is not None:
            listed = np.unique(np.array(given.categories, dtype=np.float64))
        missing = np.setdiff1d(values, listed)
        if len(missing):
            raise ValueError(f"column {column!r} must hold one of its states, got {missing[0]:g}")
        return States(listed.tolist()), None
    if given == Column() and kind.is_whole and _names_rows(cells, values):
        return Identifier(), (
            f"it looks like an identifier ({len(values)} ascending integers, none twice) and is "
            "left out; columns={" + f"{column!r}: 'integer'" + "} keeps it"
        )
    if given.kind == "automatic" and given.spikes is None and _are_states(values, len(known)):
        return States(values.tolist()), None
    decimals = given.decimals if given.decimals is not None else _decimals(values, kind)
    if given.kind == "integer" and decimals is not None and decimals > 0:
        raise ValueError(f"columns[{column!r}] is 'integer', but not all its numbers are whole")
    if given.kind == "bins":
        return _binned(known, lower, upper, decimals, kind, given, column), None
    if given.spikes is not None:
        spikes = np.unique(np.array(given.spikes, dtype=np.float64))
    elif given.kind in ("automatic", "spiked", "positive"):
        spikes = _spikes(values, sizes, decimals)
        if given.kind == "spiked" and not len(spikes):
            spikes = values[[sizes.argmax()]]
    else:
        spikes = np.empty(0)
    lower, upper = _ends(given, values, sizes, decimals, lower, upper)
    if decimals is None:
        # No density reaches its bounds: what lies on them is a state of its own.
        ends = [end for end in (lower, upper) if end in (values[0], values[-1])]
        spikes = np.union1d(spikes, ends)
    rest = known[~np.isin(known, spikes)]
    if not len(rest):
        return States(np.union1d(values, spikes).tolist()), None
    number = Number.fit(rest, lower, upper, decimals)
    return (Spiked(spikes.tolist(), number) if len(spikes) else number), None


def _binned(
    known: np.ndarray,
    lower: float,
    upper: float,
    decimals: int | None,
    kind: CellType,
    given: Column,
    column: Any,
) -> Coding:
    """The coding of a column in bins: so many as are given, or with such edges."""
    if given.bins is not None and not isinstance(given.bins, int):
        try:
            coding = Binned.between([_edge(x, kind, column) for x in given.bins], decimals)
        except ValueError as error:
            raise ValueError(f"columns[{column!r}]: {error}") from error
        strange = coding.is_strange(known)
        if bool(strange.any()):
            raise ValueError(
                f"column {column!r} must lie between the outer edges, {coding.smallest:g} and "
                f"{coding.largest:g}, got {known[strange][0]:g}"
            )
        return coding
    ends = known.min(), known.max()
    smallest, largest = ends if decimals is None else np.round(ends, decimals)
    lower = lower if math.isfinite(lower) else float(smallest)
    upper = upper if math.isfinite(upper) else float(largest)
    if lower == upper and decimals is None:
        # One number has no width, and no density either.
        return Constant(lower)
    count = given.bins
    if count is None:
        count = min(_MOST_BINS, max(2, round(_BINS_OF_ROOT * len(known) ** (1 / 3))))
    return Binned.fit(known, count, lower, upper, decimals)


def _edge(edge: Any, kind: CellType, column: Any) -> float:
    """An edge between bins as a number: dates and times are given as such."""
    if isinstance(edge, int | float | np.number) and not isinstance(edge, bool):
        return float(edge)
    if not kind.is_temporal:
        raise TypeError(f"columns[{column!r}]: bins must have numbers for edges, got {edge!r}")
    if isinstance(edge, np.datetime64 | np.timedelta64):
        edge = edge.astype("M8[us]" if isinstance(edge, np.datetime64) else "m8[us]").item()
    return instant(edge, kind, column) / kind.per_unit


_OBJECT_KINDS = ("automatic", "categories", "ordered", "boolean", "constant", "identifier")


def _given_ends(given: Column, known: np.ndarray, column: Any) -> tuple[float, float]:
    """The bounds that a user gave, which no known cell may lie beyond."""
    lower = -math.inf if given.lower is None else float(given.lower)
    upper = math.inf if given.upper is None else float(given.upper)
    if given.kind == "positive":
        lower = max(lower, 0.0)
    if known.min() < lower or known.max() > upper:
        wrong = known.min() if known.min() < lower else known.max()
        raise ValueError(
            f"column {column!r} must lie between {lower:g} and {upper:g}, got {wrong:g}"
        )
    return lower, upper


def _ends(
    given: Column,
    values: np.ndarray,
    sizes: np.ndarray,
    decimals: int | None,
    lower: float,
    upper: float,
) -> tuple[float, float]:
    """The smallest and largest possible number: as given, as is natural, or as the data end."""
    if given.kind == "bounded":
        if not math.isfinite(lower):
            lower = float(values[0])
        if not math.isfinite(upper):
            upper = float(values[-1])
        return lower, upper
    if given.kind == "continuous":
        return lower, upper
    least = max(_ROWS_AT_END, sizes.sum() / _SHARE_AT_END)
    if decimals is not None:
        if given.lower is None and sizes[0] >= least:
            lower = float(values[0])
        if given.upper is None and sizes[-1] >= least:
            upper = float(values[-1])
    if values[0] >= 0 and given.kind in ("automatic", "integer", "spiked"):
        lower = max(lower, 0.0)
    if values[-1] <= 0 and given.kind in ("automatic", "integer", "spiked"):
        upper = min(upper, 0.0)
    return lower, upper


def _names_rows(cells: np.ndarray, values: np.ndarray) -> bool:
    """Whether integers count the rows: one more in each, or nearly so."""
    count = len(cells)
    if count < _NAMES_LEAST or len(values) != count:
        return False
    return bool((np.diff(cells) > 0).all() and values[-1] - values[0] < 2 * count)


def _are_states(values: np.ndarray, rows: int) -> bool:
    """Whether each number is better taken for a state of its own."""
    each = rows / len(values)
    few = len(values) <= 2 or (len(values) <= _FEW_STATES and each >= _ROWS_OF_FEW)
    return few or (len(values) <= _MOST_STATES and each >= _ROWS_OF_MANY)


def _spikes(values: np.ndarray, sizes: np.ndarray, decimals: int | None) -> np.ndarray:
    """Numbers that occur far more often than a smooth column would have them, ascending.

    A smooth column on a grid has about as many rows at each of its steps as at those beside it, the
    empty ones among them; without a grid it has no number twice.
    """
    rows = sizes.sum()
    least = np.full(len(sizes), max(_SPIKE_SHARE * rows, _SPIKE_ROWS))
    if decimals is not None:
        window = min(_NEIGHBOURS, len(sizes) // 2)
        first = np.clip(np.arange(len(sizes)) - window, 0, None)
        last = np.clip(np.arange(len(sizes)) + window, None, len(sizes) - 1)
        until = np.concatenate([[0], np.cumsum(sizes)])
        beside = until[last + 1] - until[first] - sizes
        steps = np.round((values[last] - values[first]) * 10.0**decimals)
        least = np.maximum(least, _SPIKE_TIMES * beside / np.maximum(steps, 1))
    often = np.flatnonzero((sizes >= least) | (sizes >= max(_LARGE_SHARE * rows, _LARGE_ROWS)))
    often = often[np.argsort(-sizes[often], kind="stable")][:_MOST_SPIKES]
    return values[np.sort(often)]


def _decimals(values: np.ndarray, kind: CellType) -> int | None:
    """To how many decimals all numbers are rounded; None where they have too many."""
    if kind.is_temporal:
        return 0
    largest = max(abs(values[0]), abs(values[-1]))
    for decimals in range(_LEAST_DECIMALS, _MOST_DECIMALS + 1):
        if 10.0**-decimals < _FINEST * largest:
            # Steps that float64 can hardly tell apart are no grid.
            return None
        rounded = np.round(values, decimals)
        same = rounded == values
        if single(kind):
            same = rounded.astype(np.float32) == values.astype(np.float32)
        if bool(same.all()):
            return decimals
    return None
