"""Models of tables: densities are those of the columns, answers those of enumeration."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import einet
from einet.tables import TableModel, TableWarning
from tests.tables.frames import mixed_frame

FRAME = mixed_frame(400)


@pytest.fixture(scope="module")
def model() -> TableModel:
    return TableModel.fit(FRAME, num_sums=4, epochs=4)


def integral(model: TableModel, column: str, rest: dict[str, object], values: np.ndarray) -> tuple:
    """Densities of a column at values beside other cells, and the weights of a trapezoidal rule."""
    frame = pd.DataFrame({column: values, **{name: [v] * len(values) for name, v in rest.items()}})
    for name in rest:
        frame[name] = frame[name].astype(FRAME[name].dtype)
    weights = np.gradient(values)
    return np.exp(model.log_prob(frame)), weights


def heights(model: TableModel) -> np.ndarray:
    z = np.linspace(-9, 9, 6001)
    return model.table.coding("height").scale.inverse(z)  # type: ignore[attr-defined]


def test_the_density_of_a_column_integrates_to_one(model: TableModel):
    p, weights = integral(model, "height", {}, heights(model))
    assert (p * weights).sum() == pytest.approx(1, abs=1e-4)


def test_a_spike_and_the_numbers_beside_it_add_up_to_one(model: TableModel):
    z = np.linspace(-9, 9, 6001)
    gains = model.table.coding("gain").number.scale.inverse(z)  # type: ignore[attr-defined]
    # A cell is on the grid; the density beside it is that of the number spread over its interval.
    p, weights = integral(model, "gain", {}, gains[gains >= 0])
    spike = np.exp(model.log_prob(pd.DataFrame({"gain": [0.0]})))[0]
    assert 0.5 < spike < 0.9
    # The grid leaves out what lies half a step from the bound.
    assert spike + (p * weights).sum() == pytest.approx(1, abs=2e-3)


def test_probabilities_are_those_of_bayes(model: TableModel):
    evidence = {"age": 30.0, "height": 180.0}
    joint = np.array(
        [model.log_prob(pd.DataFrame({**{k: [v] for k, v in evidence.items()}, "sex": [sex]}))[0]
         for sex in ("Female", "Male")]
    )  # fmt: skip
    expected = np.exp(joint - np.logaddexp(*joint))
    posterior = model.given(evidence)
    assert posterior.probabilities("sex").loc[0, ["Female", "Male"]].tolist() == pytest.approx(
        expected, rel=1e-6
    )
    assert posterior.log_evidence[0] == pytest.approx(np.logaddexp(*joint), rel=1e-9)


@pytest.mark.parametrize("rest", [{}, {"sex": "Male"}, {"sex": "Female", "age": 60.0}])
def test_means_and_quantiles_are_those_of_the_density(model: TableModel, rest: dict):
    x = heights(model)
    p, weights = integral(model, "height", rest, x)
    p = p * weights / (p * weights).sum()
    posterior = model.given(rest)
    assert posterior.mean("height")[0] == pytest.approx((p * x).sum(), rel=1e-4)
    for q in (0.05, 0.5, 0.9):
        expected = np.interp(q, np.cumsum(p), x)
        assert posterior.quantile("height", q)[0] == pytest.approx(expected, rel=1e-3)
        at = posterior.cdf("height", posterior.quantile("height", q)[0])[0]
        assert at == pytest.approx(q, abs=1e-9)
    lower, upper = posterior.interval("height", 0.8)
    assert posterior.cdf("height", upper) - posterior.cdf("height", lower) == pytest.approx(0.8)


def test_answers_about_spikes(model: TableModel):
    posterior = model.given({"sex": "Female"})
    spike = posterior.cdf("gain", 0.0)[0]
    assert 0.5 < spike < 0.9
    assert posterior.quantile("gain", [0.0, spike / 2, spike])[:, 0].tolist() == [0, 0, 0]
    quantile = posterior.quantile("gain", 0.95)[0]
    assert posterior.cdf("gain", quantile)[0] == pytest.approx(0.95, abs=1e-3)
    draws = model.sample(20_000, given={"sex": "Female"}, seed=0)["gain"]
    assert (draws == 0).mean() == pytest.approx(spike, abs=0.02)
    error = 5 * draws.std() / np.sqrt(len(draws))
    assert posterior.mean("gain")[0] == pytest.approx(draws.mean(), abs=error)


def test_known_cells_are_their_own_answers(model: TableModel):
    posterior = model.given(pd.DataFrame({"height": [170.0, None], "gain": [0.0, 55.5]}))
    assert posterior.mean("height")[0] == pytest.approx(170)
    assert posterior.quantile("height", 0.9)[0] == pytest.approx(170)
    assert posterior.mean("gain").tolist() == pytest.approx([0, 55.5])
    assert posterior.cdf("gain", 1.0).tolist() == [1.0, 0.0]


def test_dates_and_ordered_categories(model: TableModel):
    posterior = model.given({"age": 20.0})
    assert posterior.mean("since").dtype == np.dtype("M8[us]")
    assert posterior.quantile("since", 0.5).astype("M8[D]")[0] > np.datetime64("2020-06-01")
    young, old = (model.given({"age": age}).quantile("size", 0.5)[0] for age in (18.0, 80.0))
    order = ["S", "M", "L", "XL"]
    assert order.index(young) < order.index(old)
    assert posterior.mean("children").shape == (1,)


def test_draws_keep_bounds_types_and_dependencies(model: TableModel):
    drawn = model.sample(4000, seed=1)
    assert drawn.dtypes.tolist() == FRAME.dtypes.tolist()
    assert drawn.columns.tolist() == FRAME.columns.tolist()
    assert not drawn.isna().any().any()
    assert drawn["age"].min() >= 17
    assert drawn["gain"].min() >= 0
    assert (drawn["age"] % 1 == 0).all()
    tall = drawn.groupby("sex")["height"].mean()
    assert tall["Male"] - tall["Female"] > 5
    assert drawn.equals(model.sample(4000, seed=1))
    assert model.sample(0).shape == (0, 9)


def test_draws_for_several_rows_follow_one_another(model: TableModel):
    given = pd.DataFrame({"sex": ["Male", "Female"], "height": [None, 160.0]})
    drawn = model.sample(3, given=given, seed=0)
    assert drawn["sex"].tolist() == ["Male"] * 3 + ["Female"] * 3
    assert drawn["height"].tolist()[3:] == pytest.approx([160.0] * 3)
    assert drawn["height"].nunique() == 4


@pytest.mark.parametrize("method", ["mean", "median", "mode", "sample"])
def test_missing_cells_are_filled_and_known_ones_kept(model: TableModel, method: str):
    filled = model.impute(FRAME, method, seed=0 if method == "sample" else None)
    assert not filled.isna().any().any()
    assert filled.dtypes.tolist() == FRAME.dtypes.tolist()
    for name in FRAME:
        known = FRAME[name].notna()
        if name == "height":
            assert np.allclose(filled[name][known], FRAME[name][known])
        else:
            assert (filled[name][known] == FRAME[name][known]).all()


def test_a_saved_model_answers_the_same(model: TableModel, tmp_path: Path):
    model.save(tmp_path / "model.einet", {"by": "me"})
    again = TableModel.load(tmp_path / "model.einet")
    assert np.array_equal(again.log_prob(FRAME), model.log_prob(FRAME))
    assert again.sample(5, seed=0).equals(model.sample(5, seed=0))
    assert einet.load_metadata(tmp_path / "model.einet")["by"] == "me"
    assert repr(again) == repr(model)
    with pytest.raises(ValueError, match="'table'"):
        model.save(tmp_path / "model.einet", {"table": 1})
    model.model.save(tmp_path / "plain.einet")
    with pytest.raises(einet.FormatError, match="without the schema"):
        TableModel.load(tmp_path / "plain.einet")
    model.model.save(tmp_path / "damaged.einet", {"table": {"version": 1, "columns": [{}]}})
    with pytest.raises(einet.FormatError, match="no model of a table"):
        TableModel.load(tmp_path / "damaged.einet")


def test_frames_of_arrow_are_asked_and_answered_as_such(model: TableModel):
    arrow = pa.Table.from_pandas(FRAME[["age", "sex"]].head(4), preserve_index=False)
    assert isinstance(model.sample(2, given=arrow, seed=0), pa.Table)
    assert np.allclose(model.log_prob(arrow), model.log_prob(FRAME[["age", "sex"]].head(4)))
    assert model.given(arrow).probabilities("sex").num_rows == 4


def test_strange_evidence(model: TableModel):
    with pytest.warns(TableWarning, match="never seen"):
        unseen = model.log_prob(pd.DataFrame({"sex": ["Other"], "age": [20.0]}))
    assert unseen[0] == pytest.approx(model.log_prob(pd.DataFrame({"age": [20.0]}))[0])
    with pytest.warns(TableWarning, match="beyond its bounds"):
        assert model.log_prob(pd.DataFrame({"age": [3.0]}))[0] == -np.inf
    with pytest.raises(ValueError, match="never seen, such as Other"):
        model.given({"sex": "Other"})
    with pytest.raises(ValueError, match="did you mean 'sex'"):
        model.given({"sexx": "Male"})
    with pytest.raises(ValueError, match="always NL"):
        model.given({"country": "NL"})
    with pytest.raises(ValueError, match="no finite list"):
        model.given().probabilities("height")
    with pytest.raises(ValueError, match="without an order"):
        model.given().quantile("sex", 0.5)
    with pytest.raises(ValueError, match="no mean"):
        model.given().mean("sex")
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.given().quantile("age", 2.0)
    with pytest.raises(ValueError, match="two ends"):
        model.given({"age": (1, 2, 3)})
    with pytest.raises(ValueError, match="seed is for"):
        model.impute(FRAME, "mean", seed=1)
    with pytest.raises(ValueError, match="9 variables"):
        TableModel(einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), 2), model.table)


def test_a_frame_without_anything_to_learn():
    with pytest.raises(ValueError, match="something to learn from"):
        TableModel.fit(pd.DataFrame({"a": [1, 1, 1]}))


def test_validation_rows_are_those_that_learning_held_back(model: TableModel):
    history, rows = model.history, model.validation_rows
    assert history is not None
    assert rows is not None
    assert len(rows) == 40
    z = torch.from_numpy(model.table.encode(FRAME, strange="ignore", seed=0))
    assert history.best_epoch is not None
    measured = history.valid[history.best_epoch]
    assert float(model.model.log_prob(z[rows]).mean()) == pytest.approx(measured, abs=1e-4)
