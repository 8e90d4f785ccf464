"""Schemas: rows go there and back, and what is strange in a frame is dealt with as documented."""

import datetime as dt
import json
import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from einet.tables import Column, Table, TableWarning
from einet.tables.columns import Constant, Identifier, Number, Spiked, States
from tests.tables.frames import mixed_frame


def coding_of(table: Table, column: str) -> Any:
    """A coding of which more is asked than all of them have."""
    return table.coding(column)


def test_the_kinds_are_read_off_the_data():
    table = Table.of(mixed_frame())
    kinds = {name: type(coding) for name, coding in table.codings.items()}
    assert kinds == {
        "age": Number,
        "sex": States,
        "gain": Spiked,
        "height": Number,
        "size": States,
        "member": States,
        "since": Number,
        "children": States,
        "country": Constant,
    }
    assert coding_of(table, "age").decimals == 0
    assert coding_of(table, "size").ordered
    assert not coding_of(table, "sex").ordered
    assert coding_of(table, "gain").spikes.tolist() == [0.0]
    assert table.num_variables == 9
    assert list(table.variables("gain")) == [2, 3]


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(20, 200))
def test_rows_come_back_with_their_types_and_categories(seed: int, rows: int):
    frame = mixed_frame(rows, seed)
    table = Table.of(frame)
    z = table.encode(frame)
    assert z.dtype == np.float64
    assert z.shape == (rows, table.num_variables)
    assert_frame_equal(table.decode(z), frame, rtol=1e-9)


def test_arrow_tables_come_back_as_such():
    frame = mixed_frame(60).drop(columns=["size"])
    arrow = pa.Table.from_pandas(frame).replace_schema_metadata()
    table = Table.of(arrow)
    back = table.decode(table.encode(arrow))
    assert isinstance(back, pa.Table)
    assert back.schema.names == arrow.schema.names
    for name in arrow.schema.names:
        if name != "height":
            assert back[name].to_pylist() == arrow[name].to_pylist()
    assert np.allclose(table.encode(frame), table.encode(arrow), equal_nan=True)


def test_types_of_all_kinds():
    count = 40
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=3 * n) for n in range(count)]
    frame = pd.DataFrame(
        {
            "nullable": pd.array([None, *range(1, count)], dtype="Int64"),
            "flag": pd.array([None, True, False, True] * (count // 4), dtype="boolean"),
            "single": np.linspace(0, 1, count, dtype=np.float32).round(2),
            "zone": pd.date_range("2020-03-01", periods=count, freq="h", tz="Europe/Berlin"),
            "lasts": pd.to_timedelta(np.arange(count) ** 2, unit="s"),
            "day": days,
            "clock": [dt.time(n % 24, n % 60) for n in range(count)],
            "small": np.arange(count, dtype=np.int8)[::-1],
            "text": pd.array(["a", "b", None, "c"] * (count // 4), dtype="string"),
        }
    )
    table = Table.of(frame)
    assert_frame_equal(table.decode(table.encode(frame)), frame)
    drawn = table.decode(np.random.default_rng(0).normal(size=(5, table.num_variables)) ** 2 * 0.3)
    assert drawn.dtypes.tolist() == frame.dtypes.tolist()
    assert Table.from_dict(json.loads(json.dumps(table.to_dict(), allow_nan=False))) == table


def test_an_array_has_columns_by_position():
    x = np.random.default_rng(0).normal(size=(50, 3))
    table = Table.of(x)
    assert table.names == ["x0", "x1", "x2"]
    assert np.allclose(table.decode(table.encode(x)), x)
    with pytest.raises(ValueError, match="3 columns"):
        table.encode(x[:, :2])


def test_a_user_corrects_what_was_read():
    frame = mixed_frame()
    table = Table.of(
        frame,
        columns={
            "children": Column("integer", lower=0, upper=20),
            "age": "states",
            "sex": Column("categories", categories=["Female", "Male", "Other"]),
            "country": "identifier",
            "height": Column("bounded", lower=100, upper=250),
        },
    )
    assert isinstance(table.coding("age"), States)
    assert isinstance(table.coding("country"), Identifier)
    assert coding_of(table, "sex").values == ["Female", "Male", "Other"]
    assert (coding_of(table, "children").smallest, coding_of(table, "children").largest) == (0, 20)
    assert "country" not in table.decode(table.encode(frame)).columns
    drawn = table.decode(np.random.default_rng(0).normal(size=(400, table.num_variables)) * 30 % 2)
    assert drawn["height"].between(100, 250).all()
    with pytest.raises(ValueError, match="did you mean 'age'"):
        Table.of(frame, columns={"agee": "integer"})
    with pytest.raises(ValueError, match="kind must be one of"):
        Table.of(frame, columns={"age": "whole"})
    with pytest.raises(ValueError, match="between 20 and"):
        Table.of(frame, columns={"age": Column("integer", lower=20)})
    with pytest.raises(TypeError, match="for numbers"):
        Table.of(frame, columns={"sex": "integer"})
    with pytest.raises(TypeError, match="einet.tables.Column"):
        Table.of(frame, columns={"sex": 3})


@settings(max_examples=10)
@given(st.integers(0, 1000))
def test_no_bound_is_ever_crossed(seed: int):
    frame = mixed_frame(400, 0, missing=0.0)
    table = Table.of(frame)
    z = np.random.default_rng(seed).normal(0, 10, (50, table.num_variables))
    for name in ("sex", "size", "member", "children"):
        z[:, table.variables(name).start] = 0
    z[:, table.variables("gain").start] = 0
    drawn = table.decode(z)
    assert drawn["age"].min() >= 17
    assert (drawn["age"] == drawn["age"].round()).all()
    assert drawn["gain"].min() >= 0
    assert np.allclose(drawn["gain"], drawn["gain"].round(2))


def test_a_spike_is_a_state_and_its_number_is_missing():
    frame = mixed_frame(missing=0.0)
    table = Table.of(frame)
    which, value = table.encode(frame)[:, list(table.variables("gain"))].T
    spike = frame["gain"] == 0
    assert (which == spike).all()
    assert (np.isnan(value) == spike).all()
    change = table.log_density_change(pd.DataFrame({"gain": [0.0, None, 500.0]}))
    assert change[0] == change[1] == 0
    assert change[2] != 0


def test_jitter_stays_within_the_interval_of_the_grid():
    frame = mixed_frame(500, missing=0.0)
    table = Table.of(frame)
    z, spread = table.encode(frame), table.encode(frame, seed=3)
    assert_frame_equal(table.decode(spread), frame)
    column = table.variables("age").start
    assert not np.allclose(z[:, column], spread[:, column])
    assert np.array_equal(table.encode(frame, seed=3), spread, equal_nan=True)


# -- hostile frames ------------------------------------------------------------------------------


def test_strange_cells_are_warned_of_or_refused():
    frame = mixed_frame(missing=0.0)
    table = Table.of(frame)
    odd = frame.head(2).assign(sex=["Other", "Male"], age=[5.0, 20.0])
    with pytest.warns(TableWarning, match="'age' has 1 cell beyond.*5.*'sex' has 1 cell never"):
        z = table.encode(odd)
    assert np.isnan(z[0, table.variables("sex").start])
    assert table.decode(z)["age"].tolist() == [17.0, 20.0]
    assert np.array_equal(table.encode(odd, strange="ignore"), z, equal_nan=True)
    with pytest.raises(ValueError, match="'sex' has 1 cell never seen, such as Other"):
        table.encode(odd, strange="refuse")
    assert table.log_density_change(odd).tolist()[0] == -np.inf


def test_absent_and_extra_columns():
    frame = mixed_frame(missing=0.0)
    table = Table.of(frame)
    z = table.encode(frame[["age", "sex"]])
    assert np.isnan(z[:, 2:]).all()
    assert np.array_equal(table.encode(frame.assign(more=1)), table.encode(frame), equal_nan=True)
    with pytest.warns(TableWarning, match="lacks \\['age'\\].*has \\['Age'\\]"):
        table.encode(frame.rename(columns={"age": "Age"}))
    with pytest.raises(ValueError, match="no column of the table"):
        table.encode(pd.DataFrame({"a": [1]}))


def test_identifiers_are_left_out_with_a_warning():
    frame = pd.DataFrame(
        {"id": range(100, 150), "name": [f"n{k}" for k in range(50)], "x": [0, 1] * 25}
    )
    with pytest.warns(TableWarning) as caught:
        table = Table.of(frame)
    assert ["identifier" in str(warning.message) for warning in caught] == [True, True]
    assert table.modelled == ["x"]
    assert table.decode(table.encode(frame)).columns.tolist() == ["x"]


@pytest.mark.parametrize(
    ("frame", "error", "words"),
    [
        ([[1, 2]], TypeError, "pandas, polars or Arrow"),
        (None, TypeError, "pandas, polars or Arrow"),
        (pd.DataFrame(), ValueError, "rows and columns"),
        (pd.DataFrame({"a": []}), ValueError, "rows and columns"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "different name"),
        (pd.DataFrame({"a": [1.0, np.inf]}), ValueError, "'a' must hold finite.*row 1"),
        (pd.DataFrame({"a": [1.0, 1e200]}), ValueError, "'a' must hold numbers up to"),
        (pd.DataFrame({"a": [[1], [2]]}), TypeError, "'a' must hold text"),
        (pd.DataFrame({"a": [1, dt.date(2020, 1, 1)]}), TypeError, "'a' must hold text"),
        (pd.DataFrame({("a", 1): [1, 2]}), TypeError, "text for names"),
        (np.zeros(3), ValueError, "rows, columns"),
        ({"a": [1, 2], "b": [1]}, ValueError, "one length"),
    ],
)
def test_what_is_no_table_is_refused(frame: object, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        Table.of(frame)


def test_cells_of_another_kind_are_refused():
    table = Table.of(pd.DataFrame({"a": np.linspace(0, 1, 50), "b": ["x", "y"] * 25}))
    with pytest.raises(TypeError, match="'a' is one of numbers, but holds str 'oops'"):
        table.encode(pd.DataFrame({"a": ["oops"], "b": ["x"]}))


def test_odd_columns_that_are_no_error():
    frame = pd.DataFrame(
        {
            "nothing": [None] * 30,
            "one": [3] * 30,
            "huge": np.linspace(1e149, 9e149, 30),
            "tiny": np.linspace(1e-300, 1e-299, 30),
            "mixed": [1, "a", True] * 10,
            "decimal": [Decimal(n) / 10 for n in range(30)],
            "ünïcode \n": ["ß", "'\"", ","] * 10,
        }
    )
    with pytest.warns(TableWarning, match="no value at all"):
        table = Table.of(frame)
    z = table.encode(frame)
    assert np.isfinite(z).all()
    back = table.decode(z)
    assert np.allclose(back["huge"], frame["huge"], rtol=1e-9)
    assert np.allclose(back["tiny"], frame["tiny"], rtol=1e-9, atol=0)
    assert back["mixed"].tolist() == frame["mixed"].tolist()
    assert back["ünïcode \n"].tolist() == frame["ünïcode \n"].tolist()
    drawn = np.random.default_rng(0).normal(0, 100, (20, z.shape[1]))
    for name in ("mixed", "ünïcode \n"):
        drawn[:, table.variables(name).start] = 0
    assert np.isfinite(table.decode(drawn)["huge"]).all()


def test_a_damaged_description_is_refused():
    plain = Table.of(mixed_frame(50)).to_dict()
    assert Table.from_dict(json.loads(json.dumps(plain, allow_nan=False))).to_dict() == plain
    for damage in (
        {"version": 99},
        {"columns": [{"name": "a"}]},
        {"columns": [{**plain["columns"][0], "kind": "other"}]},
        {"columns": [{**plain["columns"][0], "type": {"name": 3}}]},
        {"columns": [{**plain["columns"][0], "scale": None}]},
        {"columns": plain["columns"] * 2},
    ):
        with pytest.raises(ValueError, match=r"version|damaged|kind|type|name"):
            Table.from_dict({**plain, **damage})


def test_few_rows():
    for rows in (1, 2, 3):
        frame = mixed_frame(rows, missing=0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TableWarning)
            table = Table.of(frame)
        assert_frame_equal(table.decode(table.encode(frame)), frame)
