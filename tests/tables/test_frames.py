"""Frames that are put together again: types, and numbers at the ends of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from einet import Table

_HALF = np.arange(60.0) ** 0.5


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([2**63 - 1, 2**63 - 2, -(2**63)], "int64"),
        ([2**64 - 1, 0, 5], "uint64"),
        ([-128, 0, 127], "int8"),
        ([2**63 - 1, None, -(2**63)], "Int64"),
        ([10**25, 7, -(10**25)], "object"),
    ],
)
def test_whole_numbers_at_the_ends_of_their_types(cells: list[Any], kind: str):
    """As floats the largest ones lie beyond, or a little beside."""
    column = pd.Series(cells * 20, dtype=kind)
    frame = pd.DataFrame({"a": column, "b": _HALF})
    table = Table.of(frame)
    back = table.decode(table.encode(frame))["a"]
    assert back.dtype == column.dtype
    for found, given in zip(back.tolist(), column.tolist(), strict=True):
        assert pd.isna(found) == pd.isna(given)
        if not pd.isna(given):
            assert float(found) == float(given)


def test_text_of_several_columns_stays_in_its_column():
    words = pd.Series(["a", "b", None] * 20)
    frame = pd.DataFrame({"one": words, "n": _HALF, "two": words.iloc[::-1].tolist()})
    table = Table.of(frame)
    back = table.decode(table.encode(frame))
    pd.testing.assert_frame_equal(back.loc[:, ["one", "two"]], frame.loc[:, ["one", "two"]])
    # One column changes without the other.
    back.loc[0, "one"] = "b"
    assert back["two"].tolist()[1:] == frame["two"].tolist()[1:]
