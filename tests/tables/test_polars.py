"""Frames of polars: the same answers as those of pandas, as frames of polars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from einet.tables import TableModel, cell_surprise
from tests.tables.frames import mixed_frame

polars: Any = pytest.importorskip("polars")

FRAME = mixed_frame(120)


def _in_polars(frame: pd.DataFrame) -> Any:
    return polars.DataFrame(
        {
            name: [None if pd.isna(cell) else cell for cell in frame[name].tolist()]
            for name in frame.columns
        },
        strict=False,
    )


@pytest.fixture(scope="module")
def model() -> TableModel:
    return TableModel.fit(_in_polars(FRAME), num_sums=3, epochs=2, device="cpu")


def test_answers_are_frames_of_polars(model: TableModel):
    frame = _in_polars(FRAME.head(12))
    full = model.impute(frame)
    assert isinstance(full, polars.DataFrame)
    assert full.columns == frame.columns
    assert full.null_count().to_numpy().sum() == 0
    for name in frame.columns:
        known = frame[name].is_not_null()
        kept, given = full[name].filter(known).to_list(), frame[name].filter(known).to_list()
        assert kept == (pytest.approx(given, rel=1e-9) if name == "height" else given), name
    drawn = model.sample(5, seed=0)
    assert isinstance(drawn, polars.DataFrame)
    assert drawn.schema == full.schema
    assert isinstance(model.given(frame).probabilities("sex"), polars.DataFrame)


@pytest.mark.parametrize("rows", [1, 12])
def test_the_same_numbers_as_of_pandas(model: TableModel, rows: int):
    some = FRAME.head(rows)
    one, other = model.log_prob(_in_polars(some)), model.log_prob(some)
    np.testing.assert_allclose(one, other, rtol=1e-12)
    first, second = cell_surprise(model, _in_polars(some)), cell_surprise(model, some)
    for name, numbers in first.items():
        np.testing.assert_allclose(numbers, second[name], rtol=1e-9, atol=1e-9)
