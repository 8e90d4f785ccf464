"""Data frames of any library, through narwhals: taken apart, and put together again."""

from __future__ import annotations

import datetime as dt
import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from einet._checks import missing_package, shown
from einet.tables.cells import CellType
from einet.tables.few_cells import FewRows, few_rows

__all__ = [
    "ARRAY",
    "as_frame",
    "as_rows",
    "backend_of",
    "build_frame",
    "column_names",
    "usable_backend",
]

#: The backend of plain arrays, whose columns are named x0, x1, …
ARRAY = "array"
_BACKENDS = ("pandas", "polars", "pyarrow")
_EPOCH = dt.datetime(1970, 1, 1)


def as_frame(data: Any, name: str = "frame") -> tuple[Any, str]:
    """A data frame behind the interface of narwhals, and the name of its library.

    Args:
        data: A pandas, polars or Arrow table; a dict of columns; or an array ``[rows, columns]``,
            whose columns are named x0, x1, ….
        name: What errors call it.

    Raises:
        TypeError: It is nothing of the kind.
        ValueError: Two columns have the same name.
    """
    try:
        import narwhals.stable.v2 as nw
        from narwhals.exceptions import DuplicateError
    except ImportError as error:
        raise missing_package("narwhals", "reading tables", "tables") from error
    if isinstance(data, nw.DataFrame):
        return data, backend_of(data)
    backend = None
    if isinstance(data, np.ndarray):
        if data.ndim != 2:
            raise ValueError(
                f"{name} must be a table, or an array [rows, columns], got shape {data.shape}"
            )
        data, backend = {f"x{n}": data[:, n] for n in range(data.shape[1])}, ARRAY
    if isinstance(data, Mapping):
        data = _native_of(data, name)
    try:
        frame = nw.from_native(data, eager_only=True)
    except DuplicateError as error:
        raise ValueError(f"{name} must have a different name for each column: {error}") from error
    except TypeError as error:
        raise TypeError(
            f"{name} must be a pandas, polars or Arrow table, a dict of columns or an array "
            f"[rows, columns], got {type(data).__name__}"
        ) from error
    if not isinstance(frame, nw.DataFrame):
        raise TypeError(f"{name} must be a table, got {type(data).__name__}")
    return frame, backend or backend_of(frame)


def as_rows(data: Any, name: str = "frame") -> tuple[Any, str]:
    """The same for rows whose schema is known: a few rows of pandas are read in one go."""
    if isinstance(data, FewRows):
        return data, "pandas"
    few = few_rows(data)
    return as_frame(data, name) if few is None else (few, "pandas")


def column_names(frame: Any, name: str = "frame") -> list[Any]:
    """The names of the columns: text or whole numbers, as pandas has them."""
    names = list(frame.columns)
    for column in names:
        if not isinstance(column, str | int) or isinstance(column, bool):
            raise TypeError(f"{name} must have text for names of columns, got {shown(column)}")
    if len(set(names)) != len(names):
        twice = next(column for column in names if names.count(column) > 1)
        raise ValueError(f"{name} must have a different name for each column, got {twice!r} twice")
    return names


def backend_of(frame: Any) -> str:
    """The name of the library that a frame is of."""
    return str(frame.implementation)


@cache
def usable_backend(backend: str) -> str:
    """The same library where it is installed, and otherwise one that is."""
    for name in (backend, *_BACKENDS):
        if name == ARRAY or importlib.util.find_spec(name) is not None:
            return name
    raise missing_package("pandas", "answers as tables", "tables")


def build_frame(
    columns: Sequence[tuple[Any, np.ndarray, CellType]], backend: Any, rows: int
) -> Any:
    """A data frame of the user's library, names and types.

    A column of integers or flags that has missing cells gets the type that its library gives it.

    Args:
        columns: Name, cells (numbers or objects) and type of each.
        backend: The library, or :data:`ARRAY`.
        rows: How many there are.
    """
    if backend == ARRAY:
        return _array([cells for _, cells, _ in columns], rows)
    if backend == "pandas":
        import pandas as pd

        arrays = _pandas_arrays(columns, rows)
        # The arrays are nobody else's.
        return pd.DataFrame(arrays, index=pd.RangeIndex(rows), copy=False)
    import narwhals.stable.v2 as nw

    parts = []
    for name, cells, kind in columns:
        objects = _python_objects(cells, kind)
        series: Any = nw.new_series(str(name), objects, _dtype(kind, nw), backend=backend)
        parts.append(series.to_frame())
    if not parts:
        return nw.from_dict({}, backend=backend).to_native()
    return nw.concat(parts, how="horizontal").to_native()


def _native_of(columns: Mapping[Any, Any], name: str) -> Any:
    backend: Any = usable_backend("pandas")
    if backend != "pandas":
        import narwhals.stable.v2 as nw

        return nw.from_dict(dict(columns), backend=backend).to_native()
    import pandas as pd

    lengths = {len(cells) for cells in columns.values() if hasattr(cells, "__len__")}
    if len(lengths) > 1:
        raise ValueError(f"{name} must have columns of one length, got {sorted(lengths)}")
    return pd.DataFrame(dict(columns))


def _array(columns: list[np.ndarray], rows: int) -> np.ndarray:
    if not columns:
        return np.empty((rows, 0))
    kind = np.result_type(*columns)
    return np.stack([column.astype(kind) for column in columns], 1)


def _pandas_arrays(
    columns: Sequence[tuple[Any, np.ndarray, CellType]], rows: int
) -> dict[Any, Any]:
    """All columns as arrays of pandas or numpy, which are made sooner than series."""
    import pandas as pd

    text = [n for n, (_, _, kind) in enumerate(columns) if kind.name == "String" and _is_text(kind)]
    if len(text) < 2:
        return {name: _pandas_array(cells, kind) for name, cells, kind in columns}
    # An array of text takes its time, however short it is: one for all, and parts of it.
    cells = [cell for n in text for cell in columns[n][1]]
    every = pd.array(cells, dtype=_dtype_of("str"))
    parts = {n: every[place * rows : (place + 1) * rows] for place, n in enumerate(text)}
    return {
        name: parts[n] if n in parts else _pandas_array(cells, kind)
        for n, (name, cells, kind) in enumerate(columns)
    }


def _is_text(kind: CellType) -> bool:
    return kind.native == "str" and kind.categories is None


def _pandas_array(cells: np.ndarray, kind: CellType) -> Any:
    """One of them."""
    import pandas as pd

    if kind.is_temporal and kind.name not in ("Time", "Date"):
        return _pandas_instants(cells, kind).array
    if kind.is_temporal:
        objects = pd.Series(_python_objects(cells, kind), dtype=object)
        arrow = kind.native is not None and "pyarrow" in kind.native
        return (objects.astype(kind.native) if arrow else objects).array  # type: ignore[arg-type]
    if kind.categories is not None:
        values = [None if _is_missing(cell) else cell for cell in cells]
        return pd.Categorical(values, categories=list(kind.categories), ordered=kind.ordered)
    native = kind.native or _NATIVE.get(kind.name, "object")
    missing = np.array([_is_missing(cell) for cell in cells], dtype=bool)
    nullable = native[:1].isupper() or native in ("boolean", "string", "str") or "[" in native
    if missing.any() and not nullable and not native.startswith("float"):
        # numpy's integers and flags cannot be missing.
        return pd.Series(cells).array
    if nullable and not native.startswith(("string", "str")):
        cells = cells.astype(object)
        cells[missing] = pd.NA
    if kind.is_whole:
        whole = [
            None if gone else _integer(cell, kind)
            for cell, gone in zip(cells, missing, strict=True)
        ]
        plain = not missing.any() and native.lower() in _NATIVE.values()
        cells = np.array(whole, dtype=native.lower() if plain else object)
    if native == "category":
        return pd.Categorical(cells)
    dtype = _dtype_of(native)
    return cells.astype(dtype) if isinstance(dtype, np.dtype) else pd.array(cells, dtype=dtype)


@cache
def _dtype_of(native: str) -> Any:
    """What pandas means by the name of a type."""
    import pandas as pd

    return pd.api.types.pandas_dtype(native)


_NATIVE = {
    "Int8": "int8", "Int16": "int16", "Int32": "int32", "Int64": "int64", "UInt8": "uint8",
    "UInt16": "uint16", "UInt32": "uint32", "UInt64": "uint64", "Float32": "float32",
    "Float64": "float64", "Boolean": "bool", "String": "str", "Decimal": "float64",
}  # fmt: skip


def _pandas_instants(cells: np.ndarray, kind: CellType) -> Any:
    import pandas as pd

    whole = np.round(np.where(np.isnan(cells), 0.0, cells) * kind.per_unit).astype(np.int64)
    letter = "M8[us]" if kind.name == "Datetime" else "m8[us]"
    instants = whole.view(np.dtype(letter)).copy()
    instants[np.isnan(cells)] = np.array("NaT", dtype=letter)
    series = pd.Series(instants)
    if kind.zone is not None:
        series = series.dt.tz_localize("UTC").dt.tz_convert(kind.zone)
    if kind.native is not None and kind.native != "object":
        series = series.astype(kind.native)  # type: ignore[arg-type]
    return series


def _is_missing(cell: Any) -> bool:
    return cell is None or bool(cell != cell)


def _python_objects(cells: np.ndarray, kind: CellType) -> list[Any]:
    """Cells as Python's own objects: what every library takes."""
    if kind.is_temporal:
        return [None if np.isnan(cell) else _moment(float(cell), kind) for cell in cells]
    if kind.is_whole:
        return [None if _is_missing(cell) else _integer(cell, kind) for cell in cells]
    return [
        None if _is_missing(cell) else cell.item() if isinstance(cell, np.generic) else cell
        for cell in cells
    ]


def _integer(cell: Any, kind: CellType) -> int:
    """A whole number, within what its type can hold: floats near the end of it lie beyond."""
    if kind.native == "object" or kind.name.lower() not in _NATIVE.values():
        return int(cell)
    ends = np.iinfo(kind.name.lower())
    return min(max(int(cell), int(ends.min)), int(ends.max))


def _moment(number: float, kind: CellType) -> Any:
    since = dt.timedelta(microseconds=round(number * kind.per_unit))
    if kind.name == "Duration":
        return since
    if kind.name == "Time":
        within = min(max(since, dt.timedelta(0)), dt.timedelta(days=1) - dt.timedelta.resolution)
        return (_EPOCH + within).time()
    moment = _EPOCH + since
    if kind.name == "Date":
        return moment.date()
    if kind.zone is not None:
        from zoneinfo import ZoneInfo

        return moment.replace(tzinfo=dt.UTC).astimezone(ZoneInfo(kind.zone))
    return moment


def _dtype(kind: CellType, nw: Any) -> Any:
    if kind.name == "Datetime":
        return nw.Datetime(kind.unit or "us", kind.zone)
    if kind.name == "Duration":
        return nw.Duration(kind.unit or "us")
    if kind.name == "Enum":
        return nw.Enum(list(kind.categories or ()))
    if kind.name == "Decimal":
        return nw.Float64()
    return None if kind.name == "Object" else getattr(nw, kind.name)()
