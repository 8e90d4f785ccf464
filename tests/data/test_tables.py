"""Tables of pandas, Arrow and others."""

import decimal
import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einet.data import tables
from einet.data.tables import as_column, is_table

NAN = math.nan
WHOLE = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
REAL = st.one_of(st.none(), st.floats(allow_nan=False))


def as_table(table: Any, name: str) -> Any:
    """As the library reads it; tests know whether it is one."""
    return tables.as_table(table, name)


def columns_of(cells, kinds):
    return {f"c{number}": kind(cells[number]) for number, kind in enumerate(kinds)}


def checked(table, cells, names=("c0", "c1")):
    """What a table gives must be these cells, None where one is missing."""
    numbers, known, columns = as_table(table, "x")
    assert columns == names
    expected = np.array(cells, dtype=object).T
    missing = expected == None  # noqa: E711
    if numbers.dtype.kind == "f":
        assert known is None
        np.testing.assert_array_equal(np.isnan(numbers), missing)
    else:
        assert np.array_equal(~missing, known if known is not None else ~missing)
        assert known is not None or not missing.any()
    for got, cell in zip(numbers[~missing], expected[~missing], strict=True):
        assert got == cell if numbers.dtype.kind != "f" else float(got) == float(cell)


@given(st.lists(st.tuples(WHOLE, WHOLE), min_size=1, max_size=5))
def test_whole_numbers_keep_all_digits_beside_nulls(rows):
    cells = list(zip(*rows, strict=True))
    arrow = pa.table({f"c{n}": pa.array(column, pa.int64()) for n, column in enumerate(cells)})
    nullable = pd.DataFrame({f"c{n}": pd.array(c, dtype="Int64") for n, c in enumerate(cells)})
    for table in (
        arrow,
        *arrow.to_batches(),
        nullable,
        arrow.to_pandas(types_mapper=pd.ArrowDtype),
    ):
        assert is_table(table)
        checked(table, cells)


@given(st.lists(st.tuples(REAL, st.one_of(st.none(), st.booleans())), min_size=1, max_size=5))
def test_numbers_beside_booleans(rows):
    cells = list(zip(*rows, strict=True))
    arrow = pa.table({"c0": pa.array(cells[0], pa.float64()), "c1": pa.array(cells[1], pa.bool_())})
    plain = pd.DataFrame({"c0": cells[0], "c1": cells[1]}, dtype=object)
    nullable = pd.DataFrame(
        {"c0": pd.array(cells[0], "Float64"), "c1": pd.array(cells[1], "boolean")}
    )
    for table in (arrow, plain, nullable, arrow.to_pandas(types_mapper=pd.ArrowDtype)):
        checked(table, cells)


def test_odd_columns_of_numbers():
    sparse = pd.arrays.SparseArray([0.0, NAN, 2.0])
    frame = pd.DataFrame({"a": sparse, "b": np.array([1, 2, 3], dtype=np.uint64), "c": [1, 0, 1]})
    numbers, known, _ = as_table(frame, "x")
    np.testing.assert_array_equal(numbers, [[0, 1, 1], [NAN, 2, 0], [2, 3, 1]])
    assert known is None
    table = pa.table(
        {
            "a": pa.array([decimal.Decimal("1.5"), None]),
            "b": pa.nulls(2),
            "c": pa.array([0.5, None], pa.float16()),
            "d": pa.array([1, None], pa.uint64()),
        }
    )
    np.testing.assert_array_equal(
        as_table(table, "x")[0], [[1.5, NAN, 0.5, 1], [NAN, NAN, NAN, NAN]]
    )
    with pytest.raises(ValueError, match="x must hold whole numbers.*got 18446744073709551615"):
        as_table(pd.DataFrame({"a": [2**64 - 1], "b": [0.5]}), "x")


def test_types_stay_small():
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4]}, dtype=np.uint8)
    assert as_table(frame, "x")[0].dtype == np.uint8
    assert as_table(frame.assign(c=[True, False]), "x")[0].dtype == np.uint8
    assert as_table(pd.DataFrame({"a": [True]}), "x")[0].dtype == bool
    empty = as_table(pd.DataFrame(index=range(3)), "x")
    assert empty[0].shape == (3, 0)


DATES = pd.to_datetime(["2020-01-01", "2020-01-02"])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (DATES, r"of datetime64\[.*\]; dates must be given as numbers"),
        (DATES.tz_localize("UTC"), r"of datetime64\[.*UTC\]; dates must"),
        (DATES - DATES[0], r"of timedelta64\[.*\]; durations must"),
        (DATES.to_period("D"), r"of period\[D\]; dates must"),
        (["u", "v"], "of (object|str).*text must be given as numbers"),
        (pd.Categorical(["u", "v"]), "of category; text must be given as numbers"),
        (pd.Categorical([1, 2]), "of category"),
        (pd.interval_range(0, 2), "of interval"),
        ([1j, 2], "of complex128; real"),
        (pd.array(["u", "v"], dtype="string[pyarrow]"), "of string; text"),
        (pd.Series(DATES, dtype="timestamp[ns][pyarrow]"), r"of timestamp\[ns\]; dates"),
        ([[1], [2]], "of objects, one of them of list"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else type(value).__name__,
)
def test_columns_that_are_no_numbers_are_named(column, message):
    frame = pd.DataFrame({"id": [1, 2], "when": column})
    with pytest.raises(
        TypeError, match=f"x must be an array.*DataFrame whose column 'when' is {message}"
    ):
        as_table(frame, "x")


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["u", None]),
        pa.array(["u", "v"]).dictionary_encode(),
        pa.array(list(DATES)),
        pa.array([[1], [2]]),
        pa.array([{"a": 1}, None]),
        pa.array([b"u", None]),
    ],
    ids=lambda column: str(column.type),
)
def test_arrow_columns_that_are_no_numbers(column):
    with pytest.raises(TypeError, match="^data must be an array.*Table whose column 'when' is of"):
        as_table(pa.table({"id": [1, 2], "when": column}), "data")
    with pytest.raises(TypeError, match=f"^labels must be .* of {type(column).__name__}|^labels"):
        as_column(column, "labels")


def test_columns_by_themselves():
    for column in (
        pd.Series([1, None], dtype="Int8"),
        pa.array([1, None]),
        pa.chunked_array([[1, None]]),
    ):
        read: Any = as_column(column, "labels")
        numbers, known = read
        assert (numbers.tolist(), known.tolist()) == ([1, 0], [True, False])
    assert as_column(np.ones(2), "labels") is None
    assert not is_table(np.ones((2, 2)))
    assert as_table(np.ones((2, 2)), "x") is None


class Foreign:
    """A frame of a package that nobody here knows of; numpy can read it."""

    def __init__(self, columns, cells):
        self.columns, self.cells = columns, cells

    def __array__(self, dtype=None, copy=None):
        return np.array(self.cells, dtype=dtype)


def test_frames_of_other_packages():
    numbers, known, columns = as_table(Foreign(["b", "a"], [[1, 2], [3, 4]]), "x")
    assert (numbers.tolist(), known, columns) == ([[1, 2], [3, 4]], None, ("b", "a"))
    # What has as many names as something else is no frame.
    assert as_table(Foreign(["b"], [[1, 2], [3, 4]]), "x") is None
    assert as_table(Foreign([1, 2], [[1, 2], [3, 4]]), "x") is None


def test_numbers_for_names_are_positions():
    frame = pd.DataFrame(np.arange(6).reshape(2, 3))
    numbers, _, columns = as_table(frame[[2, 0, 1]], "x")
    assert columns is None
    assert numbers.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert as_table(frame[[2, 0]], "x")[2] == ("2", "0")
