"""What the cells of a column are in a data frame, and the numbers or objects behind them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Float

from einet.tables.few_cells import FewCells

__all__ = ["CellType", "cell_type", "instant", "numbers_of", "objects_of", "single"]

#: Microseconds in what dates and times may be whole numbers of, coarsest first.
_UNITS = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000, 1_000, 1)
_EPOCH = dt.datetime(1970, 1, 1)
# Squares of larger numbers are none any more.
_LARGEST = 1e150
_TEMPORAL = ("Datetime", "Date", "Duration", "Time")


@dataclass(frozen=True)
class CellType:
    """The type of a column in the user's data frame: what answers come back as.

    Attributes:
        name: The type, in the words of narwhals: "Int64", "String", "Datetime", …
        native: What pandas calls it; None for other data frames.
        unit, zone: Of dates with times, the unit they are kept in and the time zone.
        per_unit: Of dates and times, the microseconds in one unit of the numbers behind them.
        categories: All categories of a categorical column, in their order.
        ordered: Whether this order says something.
    """

    name: str
    native: str | None = None
    unit: str | None = None
    zone: str | None = None
    per_unit: int = 1
    categories: tuple[Any, ...] | None = None
    ordered: bool = False

    @property
    def is_temporal(self) -> bool:
        """Whether cells are dates, times or durations."""
        return self.name in _TEMPORAL

    @property
    def is_numeric(self) -> bool:
        """Whether cells are numbers."""
        return self.name.startswith(("Int", "UInt", "Float", "Decimal"))

    @property
    def is_whole(self) -> bool:
        """Whether cells are integers by type."""
        return self.name.startswith(("Int", "UInt"))

    def to_dict(self) -> dict[str, Any]:
        """The type in plain values, those that say nothing left out."""
        plain = {name: value for name, value in asdict(self).items() if value not in (None, False)}
        if self.categories is not None:
            plain["categories"] = list(self.categories)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> CellType:
        """The type that :meth:`to_dict` told of, checked."""
        known = {field.name for field in fields(cls)}
        if not isinstance(plain.get("name"), str) or not set(plain) <= known:
            raise ValueError(f"a type of cells must have a name and no more than {sorted(known)}")
        values = dict(plain)
        if type(values.get("per_unit", 1)) is not int or values.get("per_unit", 1) < 1:
            raise ValueError(f"per_unit must be a positive integer, got {values['per_unit']!r}")
        if "categories" in values:
            values["categories"] = tuple(values["categories"])
        return cls(**values)


def cell_type(series: Any, column: Any) -> CellType:
    """The type of the cells of a narwhals series; objects are looked at one by one."""
    import narwhals.stable.v2 as nw

    dtype, own = series.dtype, series.to_native()
    native = str(own.dtype) if series.implementation.is_pandas() else None
    if isinstance(dtype, nw.Enum | nw.Categorical):
        if native is None:
            categories = None
            if isinstance(dtype, nw.Enum):
                categories = tuple(dtype.categories)
            return CellType(type(dtype).__name__, categories=categories, ordered=bool(categories))
        values = tuple(plain(value, column) for value in own.cat.categories)
        return CellType("Categorical", native, categories=values, ordered=bool(own.cat.ordered))
    if isinstance(dtype, nw.Datetime):
        kind = CellType("Datetime", native, unit=dtype.time_unit, zone=dtype.time_zone)
    elif isinstance(dtype, nw.Duration):
        kind = CellType("Duration", native, unit=dtype.time_unit)
    elif isinstance(dtype, nw.Object):
        kind = CellType(_kind_of_objects(series, column), native)
    elif isinstance(dtype, nw.List | nw.Struct | nw.Array | nw.Binary | nw.Unknown):
        raise TypeError(
            f"column {column!r} holds {dtype}, which is no number, text, flag, date or time"
        )
    else:
        kind = CellType(type(dtype).__name__, native)
    if not kind.is_temporal:
        return kind
    instants = _microseconds(series, kind, column)
    known = instants[~np.isnan(instants)]
    whole = (unit for unit in _UNITS if not bool((known % unit).any()))
    unit = 1 if not len(known) else next(whole, 1)
    return CellType(kind.name, native, kind.unit, kind.zone, unit)


def numbers_of(series: Any, kind: CellType, column: Any) -> Float[np.ndarray, " rows"]:
    """A column as float64, NaN where missing; dates and times in the units of ``kind``."""
    if isinstance(series, FewCells):
        return _few_numbers(series.objects, kind, column)
    if kind.is_temporal:
        return _microseconds(series, kind, column) / kind.per_unit
    import narwhals.stable.v2 as nw

    if isinstance(series.dtype, nw.Object | nw.Boolean) or not series.dtype.is_numeric():
        numbers = np.array([_number(cell, column) for cell in _cells(series)], dtype=np.float64)
    else:
        if isinstance(series.dtype, nw.Decimal):
            series = series.cast(nw.Float64())
        numbers = np.asarray(series.to_numpy(), dtype=np.float64)
    return _finite(numbers, column)


def _few_numbers(cells: list[Any], kind: CellType, column: Any) -> Float[np.ndarray, " rows"]:
    """The same of cells that are objects."""
    if kind.is_temporal:
        instants = [instant(cell, kind, column) for cell in cells]
        return np.array(instants, dtype=np.float64) / kind.per_unit
    return _finite(np.array([_number(cell, column) for cell in cells], dtype=np.float64), column)


def _finite(numbers: Float[np.ndarray, " rows"], column: Any) -> Float[np.ndarray, " rows"]:
    """The numbers, none of which may be infinite or too large for its square to be one."""
    if not (np.abs(numbers) > _LARGEST).any():
        return numbers
    if bool(np.isinf(numbers).any()):
        row = int(np.isinf(numbers).argmax())
        raise ValueError(f"column {column!r} must hold finite numbers, got infinity in row {row}")
    raise ValueError(
        f"column {column!r} must hold numbers up to {_LARGEST:g}, got {np.nanmax(numbers):g}"
    )


def objects_of(series: Any, column: Any) -> np.ndarray:
    """A column as Python's own text, numbers and flags; None where missing."""
    cells = np.empty(len(series), dtype=object)
    objects = series.objects if isinstance(series, FewCells) else _cells(series)
    cells[:] = [None if cell is None else plain(cell, column) for cell in objects]
    return cells


def plain(value: Any, column: Any) -> Any:
    """A value that JSON has a word for, and that compares as the given one does."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise TypeError(
        f"column {column!r} must hold text, numbers or flags, got {type(value).__name__} {value!r}"
    )


def single(kind: CellType) -> bool:
    """Whether numbers have half the usual digits, so that decimals look crooked as float64."""
    return kind.name in ("Float32", "Float16")


def _cells(series: Any) -> list[Any]:
    """The cells as objects; what marks missing ones differs between data frames."""
    missing = series.is_null().to_list()
    cells = series.to_list()
    return [
        None if gone or cell is None or cell != cell else cell
        for cell, gone in zip(cells, missing, strict=True)
    ]


def _kind_of_objects(series: Any, column: Any) -> str:
    """The name of the type that all known cells of a column of objects have."""
    kinds = {type(cell.item() if isinstance(cell, np.generic) else cell)
             for cell in _cells(series) if cell is not None}  # fmt: skip
    if not kinds:
        return "Object"
    for name, allowed in (
        ("Boolean", (bool,)),
        ("Datetime", (dt.datetime,)),
        ("Date", (dt.date,)),
        ("Time", (dt.time,)),
        ("Duration", (dt.timedelta,)),
        ("String", (str,)),
    ):
        if all(issubclass(kind, allowed) for kind in kinds):
            return name
    if bool not in kinds and all(issubclass(kind, Real | Decimal) for kind in kinds):
        return "Int64" if all(issubclass(kind, int) for kind in kinds) else "Float64"
    if kinds <= {str, bool, int, float}:
        return "Object"
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise TypeError(f"column {column!r} must hold text, numbers, flags or dates, got {names}")


def _number(cell: Any, column: Any) -> float:
    if cell is None:
        return math.nan
    if isinstance(cell, Real | Decimal | np.number | np.bool_):
        try:
            return float(cell)
        except OverflowError:
            return math.inf
    raise TypeError(
        f"column {column!r} is one of numbers, but holds {type(cell).__name__} {str(cell)[:60]!r}"
    )


def _microseconds(series: Any, kind: CellType, column: Any) -> Float[np.ndarray, " rows"]:
    """Dates and times since 1970, times of day since midnight, and durations; NaN if missing."""
    import narwhals.stable.v2 as nw

    dtype = series.dtype
    fitting = {"Datetime": (nw.Datetime, nw.Date), "Date": (nw.Datetime, nw.Date)}
    if isinstance(dtype, fitting.get(kind.name, ())):
        return _floats(series.dt.timestamp("us").to_list())
    if isinstance(dtype, nw.Duration) and kind.name == "Duration":
        return _floats(series.dt.total_microseconds().to_list())
    return np.array([instant(cell, kind, column) for cell in _cells(series)], dtype=np.float64)


def _floats(numbers: list[Any]) -> Float[np.ndarray, " rows"]:
    return np.array(
        [math.nan if n is None or n != n else float(n) for n in numbers],
        dtype=np.float64,
    )


def instant(cell: Any, kind: CellType, column: Any) -> float:
    """Microseconds of a Python date, time or duration; NaN for None."""
    if cell is None:
        return math.nan
    second = dt.timedelta(microseconds=1)
    if kind.name in ("Datetime", "Date") and isinstance(cell, dt.datetime):
        if cell.tzinfo is not None:
            cell = cell.astimezone(dt.UTC).replace(tzinfo=None)
        return (cell - _EPOCH) / second
    if kind.name in ("Datetime", "Date") and isinstance(cell, dt.date):
        return (dt.datetime(cell.year, cell.month, cell.day) - _EPOCH) / second
    if kind.name == "Duration" and isinstance(cell, dt.timedelta):
        return cell / second
    if kind.name == "Time" and isinstance(cell, dt.time):
        clock = dt.timedelta(
            hours=cell.hour, minutes=cell.minute, seconds=cell.second, microseconds=cell.microsecond
        )
        return clock / second
    word = {"Time": "times of day", "Duration": "durations"}.get(kind.name, "dates")
    raise TypeError(
        f"column {column!r} is one of {word}, but holds {type(cell).__name__} {str(cell)[:60]!r}"
    )
