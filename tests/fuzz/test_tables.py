"""Tables of extreme numbers and odd types at the door.

Each is either refused, by a ``TypeError`` or ``ValueError`` that names the argument, or it gives
exactly what the same numbers give that were put into a plain float64 array, NaN where missing.
"""

from __future__ import annotations

import decimal
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

import einet
from einet.data import as_batch

NAN = math.nan

#: Numbers at the edges of their types.
NUMBERS: list[float | int] = [
    0, 1, -1, 2, 255, 256, -129, 2**31, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1,
    -(2**63), 2**63, 2**64 - 1, 2**64, 10**30, 0.5, -0.0, 0.1, 1e-320, 1e-38, 1e38, 1e39, 65504.0,
    65520.0, 1e300, -1e300, 1.7976931348623157e308, 9.969209968386869e36, 1e20, math.inf, -math.inf,
]  # fmt: skip


class Refused(Exception):
    """What carries a table refused it, before it came to the library."""


def cells_of(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of Python, and which of them are missing."""
    rows, columns = int(random.integers(1, 5)), int(random.integers(1, 4))
    cells = np.empty((rows, columns), dtype=object)
    # Mostly a few kinds at a time, so that not every table is refused for some cell of it.
    pool = random.choice(len(NUMBERS), size=int(random.integers(1, 6)))
    for place in np.ndindex(cells.shape):
        cells[place] = NUMBERS[pool[random.integers(len(pool))]]
    missing = random.random(cells.shape) < random.choice([0.0, 0.3])
    return cells, missing


def as_type(cells: np.ndarray, missing: np.ndarray, dtype: Any) -> np.ndarray:
    """An array of one type, 0 where a cell is missing; refused where numbers do not fit it."""
    dtype, result = np.dtype(dtype), np.zeros(cells.shape, dtype)
    for place in zip(*np.nonzero(~missing), strict=True):
        cell = cells[place]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                result[place] = cell
        except (OverflowError, ValueError, TypeError, RuntimeWarning) as error:
            raise Refused from error
        if dtype.kind in "iu" and int(result[place]) != cell:
            raise Refused
    return result


def masked(dtype: Any) -> Callable[..., Any]:
    def make(cells: np.ndarray, missing: np.ndarray) -> Any:
        filled = as_type(cells, missing, dtype)
        # What netCDF and others leave in cells that hold nothing.
        hidden = filled.copy()
        hidden[missing] = np.iinfo(dtype).max if np.dtype(dtype).kind in "iu" else 1e20
        return np.ma.array(hidden, mask=missing)

    return make


def plain(dtype: Any) -> Callable[..., Any]:
    def make(cells: np.ndarray, missing: np.ndarray) -> Any:
        array = as_type(cells, missing, dtype)
        if missing.any():
            if array.dtype.kind != "f":
                raise Refused
            array[missing] = NAN
        return array

    return make


def nullable(dtype: str) -> Callable[..., Any]:
    def make(cells: np.ndarray, missing: np.ndarray) -> Any:
        array = as_type(cells, missing, dtype.lower())
        columns = {
            f"c{number}": pd.array(
                [
                    pd.NA if off else value
                    for value, off in zip(array[:, number], gone, strict=True)
                ],
                dtype=dtype,
            )
            for number, gone in enumerate(missing.T)
        }
        return pd.DataFrame(columns)

    return make


def arrow(kind: Any, dtype: Any) -> Callable[..., Any]:
    def make(cells: np.ndarray, missing: np.ndarray) -> Any:
        array = as_type(cells, missing, dtype)
        return pa.table(
            {
                f"c{number}": pa.array(array[:, number], kind, mask=missing[:, number])
                for number in range(array.shape[1])
            }
        )

    return make


def objects(cells: np.ndarray, missing: np.ndarray, none: Any = None) -> np.ndarray:
    result = cells.copy()
    result[missing] = none
    return result


def tensor(cells: np.ndarray, missing: np.ndarray, dtype: Any, numpy: Any) -> torch.Tensor:
    return torch.from_numpy(plain(numpy)(cells, missing)).to(dtype)


def masked_tensor(cells: np.ndarray, missing: np.ndarray) -> Any:
    with warnings.catch_warnings():
        # Those of torch are a prototype, and say so.
        warnings.simplefilter("ignore")
        values = torch.from_numpy(as_type(cells, missing, np.float64))
        return torch.masked.masked_tensor(values, torch.from_numpy(~missing))


def mixed_frame(cells: np.ndarray, missing: np.ndarray) -> Any:
    """Every column of another type."""
    makers = [nullable("Int64"), plain(np.float64), nullable("Float64"), plain(np.uint64)]
    columns = {}
    for number in range(cells.shape[1]):
        part = slice(number, number + 1)
        column = makers[number % len(makers)](cells[:, part], missing[:, part])
        columns[f"c{number}"] = (
            column.iloc[:, 0] if isinstance(column, pd.DataFrame) else column[:, 0]
        )
    return pd.DataFrame(columns)


#: What may carry numbers to the door.
CARRIERS: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    **{f"array of {kind}": plain(kind) for kind in (
        "i1", "u1", ">i2", "u2", "<i4", ">u4", "i8", "u8", ">u8", "f2", "f4", ">f8", "f8")},
    **{f"masked {kind}": masked(kind) for kind in ("i4", "i8", "u8", "f4", "f8")},
    **{f"pandas {kind}": nullable(kind) for kind in ("Int8", "Int64", "UInt64", "Float64")},
    "arrow int64": arrow(pa.int64(), np.int64),
    "arrow uint64": arrow(pa.uint64(), np.uint64),
    "arrow float": arrow(pa.float64(), np.float64),
    "arrow in pandas": lambda cells, missing: arrow(pa.int64(), np.int64)(cells, missing).to_pandas(
        types_mapper=pd.ArrowDtype),
    "nested list": lambda cells, missing: objects(cells, missing).tolist(),
    "objects": objects,
    "objects with NaN": lambda cells, missing: objects(cells, missing, NAN),
    "frame of objects": lambda cells, missing: pd.DataFrame(
        objects(cells, missing, pd.NA), dtype=object),
    "frame of floats": lambda cells, missing: pd.DataFrame(plain(np.float64)(cells, missing)),
    "mixed frame": mixed_frame,
    "decimals": lambda cells, missing: objects(
        np.vectorize(decimal.Decimal, otypes=[object])(cells), missing),
    "tensor": lambda cells, missing: tensor(cells, missing, torch.float64, np.float64),
    "float32 tensor": lambda cells, missing: tensor(cells, missing, torch.float32, np.float32),
    "uint64 tensor": lambda cells, missing: tensor(cells, missing, torch.uint64, np.uint64),
    "masked tensor": masked_tensor,
}  # fmt: skip

#: What is never data.
NO_NUMBERS: list[Callable[[tuple[int, int]], Any]] = [
    lambda shape: np.full(shape, "2020-01-01", dtype="datetime64[s]"),
    lambda shape: np.full(shape, 5, dtype="timedelta64[s]"),
    lambda shape: np.full(shape, "1.5"),
    lambda shape: np.full(shape, "1.5", dtype=object),
    lambda shape: np.full(shape, b"1"),
    lambda shape: np.full(shape, 1j),
    lambda shape: np.zeros(shape, dtype=[("a", float)]),
    lambda shape: np.full(shape, np.datetime64("2020-01-01"), dtype=object),
    lambda shape: pd.DataFrame(np.full(shape, "u")).astype("category"),
    lambda shape: pd.DataFrame(np.full(shape, "2020-01-01", dtype="datetime64[s]")),
    lambda shape: pd.DataFrame(np.full(shape, "u"), dtype="string"),
    lambda shape: torch.zeros(shape).to_sparse(),
    lambda shape: torch.zeros(shape, dtype=torch.cdouble),
]


def exact(cells: np.ndarray, missing: np.ndarray, like: Any) -> np.ndarray:
    """The same numbers in a plain float64 array, as rounded as the type that carried them."""
    narrow = {"f2": np.float16, "f4": np.float32}
    kind = next((narrow[name] for name in narrow if name in like), np.float64)
    if like == "float32 tensor":
        kind = np.float32
    with np.errstate(over="ignore"):
        values = np.array([[float(cell) for cell in row] for row in cells]).astype(kind)
    return np.where(missing, NAN, values.astype(np.float64))


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.numpy().tobytes() == other.numpy().tobytes()


MODELS = {
    columns: einet.Einet(
        einet.random_trees(columns, depth=min(1, columns - 1), replicas=1),
        [einet.Gaussian(), einet.Poisson(), einet.Exponential()][:columns],
        num_sums=2,
        dtype=torch.float64,
    )
    for columns in (1, 2, 3)
}


def test_tables(campaign):
    def refused(x: Any, columns: int) -> str | None:
        try:
            as_batch(x, columns, name="the_rows")
        except (TypeError, ValueError) as error:
            return str(error)
        return None

    def case(random: np.random.Generator, _: Any) -> str:
        cells, missing = cells_of(random)
        if random.random() < 0.1:
            x = NO_NUMBERS[random.integers(len(NO_NUMBERS))](cells.shape)
            message = refused(x, cells.shape[1])
            assert message is not None, f"{x!r} was taken for numbers"
            assert message.startswith("the_rows must "), message
            return "no numbers, refused"
        name = list(CARRIERS)[random.integers(len(CARRIERS))]
        try:
            x = CARRIERS[name](cells, missing)
        except Refused:
            return "not to be carried so"
        message = refused(x, cells.shape[1])
        seen = [cell for cell in cells[~missing] if isinstance(cell, int)]
        if message is not None:
            assert message.startswith("the_rows must "), message
            beyond = [cell for cell in seen if not -(2**63) <= cell < 2**63]
            assert beyond, f"{name} of {cells} was refused: {message}"
            return "too large, refused"
        expected = exact(cells, missing, name)
        batch = as_batch(x, cells.shape[1])
        known = batch.mask.numpy()
        assert np.array_equal(known, ~missing), f"{name} of {cells}: {known}"
        values = batch.x.double().numpy()
        assert np.array_equal(values[known], expected[known]), f"{name} of {cells}: {values}"
        model = MODELS[cells.shape[1]]
        assert same(model.log_prob(x), model.log_prob(expected)), f"{name} of {cells}"
        return "the same answers"

    report = campaign.run("tables", case, cases=120)
    if report.tried >= 300:
        assert report.answers["the same answers"] > report.tried / 4
