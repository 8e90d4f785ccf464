"""Answers about single rows, against those of many rows at once and of the model's posterior."""

from __future__ import annotations

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch

import einet
from einet.inference.few_rows import MOST_ROWS
from einet.kernels.dispatch import backend
from einet.tables.piece import Piece

_ROWS = 300


@pytest.fixture(scope="module")
def model() -> einet.TableModel:
    generator = np.random.default_rng(0)
    sex = generator.choice(["f", "m"], _ROWS)
    height = generator.normal(np.where(sex == "f", 165, 180), 7)
    gain = np.where(generator.random(_ROWS) < 0.7, 0.0, generator.gamma(2.0, 50.0, _ROWS))
    frame = pd.DataFrame({"sex": sex, "height": height, "gain": gain, "age": height.round() % 60})
    return einet.TableModel.fit(frame, num_sums=6, epochs=2, device="cpu")


def _holes(count: int, seed: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "sex": generator.choice(["f", "m"], count),
            "height": generator.normal(170, 10, count),
            "gain": np.where(generator.random(count) < 0.5, 0.0, 80.0),
            "age": generator.integers(0, 60, count).astype(float),
        }
    )
    return frame.mask(generator.random(frame.shape) < 0.4)


@pytest.mark.parametrize("method", ["mean", "median", "mode"])
def test_single_rows_as_many(model: einet.TableModel, method: str):
    frame = _holes(MOST_ROWS + 1)
    many = model.impute(frame, method)
    for row in range(0, len(frame), 3):
        alone = model.impute(frame.iloc[[row]], method)
        expected = many.iloc[[row]].reset_index(drop=True)
        pd.testing.assert_frame_equal(alone, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "events",
    [{}, {"gain": (0, 100)}, {"gain": (10, 100), "sex": ["f"]}, {"height": (160, 170), "age": 20}],
)
def test_events_as_in_torch(model: einet.TableModel, events: dict):
    few = model.given(events)
    with backend("torch"):
        plain = model.given(events)
        expected = [plain.mean(c) for c in ("height", "gain", "age")]
        quantiles = [plain.quantile(c, 0.3) for c in ("height", "gain", "age")]
        shares, log_evidence = plain.probabilities("sex"), plain.log_evidence
    np.testing.assert_allclose(few.log_evidence, log_evidence, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(few.probabilities("sex"), shares, rtol=1e-10)
    for n, column in enumerate(("height", "gain", "age")):
        np.testing.assert_allclose(few.mean(column), expected[n], rtol=1e-10)
        np.testing.assert_allclose(few.quantile(column, 0.3), quantiles[n], rtol=1e-10)


def test_leaves_beside_a_state(model: einet.TableModel):
    z = np.full((2, model.model.num_variables), math.nan)
    start = model.table.variables("gain").start
    z[1, start] = 0.0
    few = Piece(model.model, z, {}).leaves(start + 1, beside=start)
    with backend("torch"):
        plain = Piece(model.model, z, {}).leaves(start + 1, beside=start)
    for one, other in zip(few, plain, strict=True):
        torch.testing.assert_close(one.weight, other.weight)
        torch.testing.assert_close(one.mean, other.mean)
        torch.testing.assert_close(one.deviation, other.deviation)


def test_questions_follow_the_model(model: einet.TableModel):
    """What is kept for questions in words is of no other model, and is not pickled."""
    text = "P(sex=f | height < 170)"
    before = model.query(text).value
    other = copy.deepcopy(model)
    other.model.em_step(torch.from_numpy(model.table.encode(_holes(50, seed=1))), step_size=0.9)
    assert other.query(text).value != pytest.approx(before, rel=1e-6)
    assert model.query(text).value == before
    assert "_source" in model.__dict__
    again = pickle.loads(pickle.dumps(model))
    assert "_source" not in again.__dict__
    assert again.query(text).value == before
    other.model = model.model
    assert other.query(text).value == before


def test_threads_that_ask_one_model(model: einet.TableModel):
    """They share what is kept of its parameters, and answer bit by bit as one does."""
    frame = _holes(12, seed=2)
    rows = [frame.iloc[[n]] for n in range(len(frame))]

    def answers(row: pd.DataFrame) -> tuple:
        full = model.impute(row)
        text = f"P(sex=f | height<{full['height'][0]:.3f})"
        return (*full.iloc[0].tolist(), float(model.log_prob(row)[0]), model.query(text).value)

    expected = [answers(row) for row in rows]
    fresh = copy.deepcopy(model.model)
    model = einet.TableModel(fresh, model.table)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(answers, rows)) == expected
