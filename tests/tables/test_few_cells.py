"""A few rows of pandas, read in one go: the same cells as column by column."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from einet import Table
from einet.tables.few_cells import MOST_ROWS, few_rows

_COUNT = 60


def _frame() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    whole = generator.integers(0, 1000, _COUNT)
    text = np.where(whole % 2, "odd", "even").astype(object)
    text[3] = None
    return pd.DataFrame(
        {
            "float": np.where(whole % 7, whole / 3, np.nan),
            "whole": whole,
            "large": 2**53 + 2 * (whole % 3) + 1,
            "small": (whole % 5).astype("uint8"),
            "half": (whole / 3).astype("float32"),
            "nullable": pd.array([None if n % 5 == 0 else n for n in whole], dtype="Int64"),
            "flag": whole % 3 == 0,
            "maybe": pd.array([None, *(whole[1:] % 3 == 0)], dtype="boolean"),
            "text": text,
            "string": pd.array(text, dtype="string"),
            "category": pd.Categorical(text, categories=["odd", "even", "other"], ordered=True),
            "code": pd.Categorical(whole % 4),
        }
    )


def test_the_same_as_column_by_column():
    frame = _frame()
    table = Table.of(frame, {"large": "categories", "small": "categories"})
    z, change = table.encode(frame), table.log_density_change(frame)
    for size in (1, 2, MOST_ROWS):
        for start in range(0, 24, size):
            some = frame.iloc[start : start + size]
            assert few_rows(some) is not None
            np.testing.assert_array_equal(table.encode(some), z[start : start + size])
            found = table.log_density_change(some)
            np.testing.assert_array_equal(found, change[start : start + size])


def test_numbers_alone():
    """Integers beside floats keep their digits: as floats these two would be one."""
    frame = pd.DataFrame({"a": [2**53, 2**53 + 1] * 40, "b": np.linspace(0, 1, 80)})
    table = Table.of(frame, {"a": "categories"})
    assert [table.encode(frame.iloc[[n]])[0, 0] for n in range(2)] == [0.0, 1.0]


def test_others_go_the_usual_way():
    frame = _frame()
    assert few_rows(frame) is None
    assert few_rows(frame.iloc[:0]) is None
    assert few_rows({"a": [1]}) is None
    assert few_rows(frame[["text"]].iloc[:2].set_axis(["a"], axis=1)) is not None
    assert few_rows(pd.DataFrame([[1, 2]], columns=["a", "a"])) is None
    dates = pd.DataFrame({"date": [dt.datetime(2020, 1, 1)]})
    assert few_rows(dates) is None

    class Own(pd.DataFrame):
        pass

    assert few_rows(Own({"a": [1]})) is None


def test_errors_are_the_same():
    table = Table.of(_frame())
    with pytest.raises(TypeError, match="column 'whole' is one of numbers, but holds str 'many'"):
        table.encode(pd.DataFrame({"whole": ["many"], "text": ["odd"]}))
    with pytest.raises(ValueError, match="column 'float' must hold finite numbers, got infinity"):
        table.encode(pd.DataFrame({"float": [np.inf], "text": ["odd"]}))
    with pytest.raises(ValueError, match=r"column 'float' must hold numbers up to 1e\+150"):
        table.encode(pd.DataFrame({"float": [1e200], "text": ["odd"]}))
    with pytest.raises(TypeError, match="column 'text' must hold text, numbers or flags"):
        table.encode(pd.DataFrame({"float": [1.0], "text": [dt.date(2020, 1, 1)]}))
