"""Surprise of cells, against log densities of rows with and without them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import einet
from einet.tables import TableWarning, cell_surprise


@pytest.fixture(scope="module")
def model() -> einet.TableModel:
    generator = np.random.default_rng(0)
    job = generator.choice(["clerk", "nurse", "smith"], 200)
    gain = np.where(generator.random(200) < 0.7, 0.0, generator.gamma(2.0, 50.0, 200))
    hours = (generator.normal(40, 8, 200) + 10 * (job == "smith")).clip(1)
    frame = pd.DataFrame({"job": job, "gain": gain, "hours": hours})
    return einet.TableModel.fit(frame, num_sums=4, epochs=2, device="cpu")


@pytest.mark.parametrize("copies", [1, 5])
def test_the_same_as_without_the_cell(model: einet.TableModel, copies: int):
    """By rows of few, and of many."""
    frame = pd.DataFrame(
        {
            "job": ["clerk", "smith", None, "nurse"],
            "gain": [0.0, 75.0, 900.0, np.nan],
            "hours": [38.0, np.nan, 60.0, 1.5],
        }
    )
    frame = pd.concat([frame] * copies, ignore_index=True)
    found, whole = cell_surprise(model, frame), model.log_prob(frame)
    assert list(found) == ["job", "gain", "hours"]
    for name, surprise in found.items():
        expected = model.log_prob(frame.assign(**{name: None})) - whole
        known = frame[name].notna().to_numpy()
        np.testing.assert_allclose(surprise[known], expected[known], rtol=1e-9, atol=1e-9)
        assert np.isnan(surprise[~known]).all()


def test_impossible_cells(model: einet.TableModel):
    """A number beyond its bounds is infinitely surprising; the others of its row are not."""
    frame = pd.DataFrame({"job": ["clerk"], "gain": [-5.0], "hours": [38.0]})
    with pytest.warns(TableWarning, match="beyond its bounds"):
        found = cell_surprise(model, frame)
    assert found["gain"][0] == np.inf
    assert np.isfinite([found["job"][0], found["hours"][0]]).all()


def test_columns_that_are_absent(model: einet.TableModel):
    found = cell_surprise(model, pd.DataFrame({"job": ["clerk", "nurse"]}))
    assert np.isnan(found["gain"]).all()
    assert np.isfinite(found["job"]).all()
