"""Parts of columns: exact probabilities, against distribution functions and questions in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import einet
from einet.kernels.dispatch import backend
from einet.tables.bins import Bins
from einet.tables.columns import States
from einet.tables.constraints import Interval, complement
from einet.tables.information import column_information

_ROWS = 300
_EDGES = {
    "height": [150.0, 160.0, 170.0, 180.0],
    "gain": [5.0, 50.0, 100.0],
    "age": [9.5, 29.5, 45.5],
}
_GIVEN: dict[str, Any] = {
    "nothing": {},
    "a state": {"sex": "f"},
    "an interval": {"height": (158, 171)},
    "two sides": {
        "height": complement([Interval(158, 171)]),
        "gain": complement([Interval(10, 60)]),
    },
    "a spike": {"gain": [0.0]},
    "a point": {"height": 166.5},
    "points": {"height": [155.25, 166.5]},
    "on a grid": {"age": (20, 33)},
}


@pytest.fixture(scope="module")
def model() -> einet.TableModel:
    generator = np.random.default_rng(0)
    sex = generator.choice(["f", "m"], _ROWS)
    height = generator.normal(np.where(sex == "f", 165, 180), 7)
    gain = np.where(generator.random(_ROWS) < 0.7, 0.0, generator.gamma(2.0, 50.0, _ROWS))
    frame = pd.DataFrame({"sex": sex, "height": height, "gain": gain, "age": height.round() % 60})
    return einet.TableModel.fit(frame, num_sums=5, epochs=2, device="cpu")


def _bins(model: einet.TableModel) -> dict[str, Bins]:
    return {
        n: Bins(model.table.coding(n), _EDGES.get(n, ())) for n in ("sex", "height", "gain", "age")
    }


@pytest.mark.parametrize("name", _GIVEN)
def test_masses_are_those_of_the_distribution(model: einet.TableModel, name: str):
    posterior = model.given(_GIVEN[name])
    for column, bins in _bins(model).items():
        masses = bins.masses(posterior.marginal(column))
        assert masses.shape == (1, len(bins))
        assert masses.sum() == pytest.approx(1)
        if column == "sex":
            assert np.allclose(masses, posterior.state_probabilities("sex"))
            continue
        # Differences of the distribution function, spikes taken off.
        below = np.array([posterior.cdf(column, edge)[0] for edge in bins.edges])
        expected = np.diff(np.concatenate([[0.0], below, [1.0]]))
        if column == "gain":
            expected[0] -= masses[0, 0]
        assert np.allclose(masses[0, len(bins.values) :], expected, atol=1e-9), column


def test_the_same_without_tables(model: einet.TableModel):
    for given in _GIVEN.values():
        one = {c: b.masses(model.given(given).marginal(c)) for c, b in _bins(model).items()}
        with backend("torch"):
            other = {c: b.masses(model.given(given).marginal(c)) for c, b in _bins(model).items()}
        for column in one:
            assert np.allclose(one[column], other[column], atol=1e-9), (given, column)


def test_many_rows(model: einet.TableModel):
    frame = pd.DataFrame({"sex": ["f", "m", None] * 20, "height": [160.0, None, 171.0] * 20})
    posterior = model.given(frame)
    for column, bins in _bins(model).items():
        masses = bins.masses(posterior.marginal(column))
        assert np.allclose(masses.sum(1), 1)
        assert masses.shape == (60, len(bins))
    known = _bins(model)["height"].masses(posterior.marginal("height"))
    assert known[0].tolist() == [0, 1, 0, 0, 0]


def test_places_and_pieces(model: einet.TableModel):
    bins = _bins(model)["gain"]
    assert bins.place(np.array([0.0, 1.0, 60.0, 1e6, np.nan])).tolist() == [0, 1, 3, 4, -1]
    assert [str(piece) for (piece,) in bins.pieces][:2] == ["[0, 0]", "(-inf, 5]"]
    sexes = _bins(model)["sex"]
    assert sexes.place(np.array(["m", "x", None], dtype=object)).tolist() == [1, -1, -1]
    assert [str(piece) for (piece,) in sexes.pieces] == ["{f}", "{m}"]


@pytest.mark.parametrize("edges", [(), [1.0], [2.0, 1.0], [1.0, 1.0]])
def test_edges_must_ascend(model: einet.TableModel, edges: list):
    with pytest.raises(ValueError, match="edges must be two or more, and ascend"):
        Bins(model.table.coding("height"), edges)
    with pytest.raises(ValueError, match="edges are for columns of numbers"):
        Bins(States(["a", "b"]), [1.0, 2.0])


# -- information ---------------------------------------------------------------------------------


def _brute(model: einet.TableModel, given: dict, bins: dict[str, Bins], a: str, b: str) -> float:
    """Every cell of the table of two columns, by a posterior of its own."""
    joint = np.zeros((len(bins[a]), len(bins[b])))
    for n, pieces in enumerate(bins[a].pieces):
        try:
            narrowed = model.given({**given, a: pieces})
            if not narrowed.log_evidence[0] > -np.inf:
                continue
        except ValueError:
            continue
        joint[n] = np.exp(narrowed.log_evidence[0]) * bins[b].masses(narrowed.marginal(b))[0]
    joint /= joint.sum()
    product = joint.sum(1, keepdims=True) * joint.sum(0)
    some = joint > 0
    return float((joint[some] * np.log(joint[some] / product[some])).sum())


@pytest.mark.parametrize(
    "name", ["nothing", "a state", "an interval", "two sides", "a point", "points"]
)
def test_information_by_brute_force(model: einet.TableModel, name: str):
    given, bins = _GIVEN[name], _bins(model)
    found = column_information(model.given(given), bins)
    names = list(bins)
    assert np.isnan(np.diag(found)).all()
    assert np.allclose(found, found.T, equal_nan=True)
    for a in ("sex", "age"):
        for b in names:
            if a == b or a in given:
                continue
            expected = _brute(model, given, bins, a, b)
            assert found[names.index(a), names.index(b)] == pytest.approx(expected, abs=1e-8), (
                a,
                b,
            )
    for fixed in [n for n in names if name in ("a state", "a point") and n in given]:
        others = np.delete(found[names.index(fixed)], names.index(fixed))
        assert np.allclose(others, 0, atol=1e-9)


def test_information_by_torch(model: einet.TableModel):
    bins = _bins(model)
    for name in ("nothing", "two sides", "points"):
        found = column_information(model.given(_GIVEN[name]), bins)
        with backend("torch"):
            other = column_information(model.given(_GIVEN[name]), bins)
        assert np.allclose(found, other, atol=1e-8, equal_nan=True)


def test_information_of_states_is_the_models(model: einet.TableModel):
    frame = pd.DataFrame({"a": list("xyz") * 40, "b": list("xyzzyx") * 20, "c": list("uv") * 60})
    states = einet.TableModel.fit(frame, num_sums=3, epochs=3, device="cpu")
    found = column_information(states.given(), {n: Bins(states.table.coding(n)) for n in "abc"})
    expected = states.model.prior().mutual_information()[0].numpy()
    off = ~np.eye(3, dtype=bool)
    assert np.allclose(found[off], expected[off], atol=1e-6)
    rows = states.given(pd.DataFrame({"a": ["x", "y"]}))
    with pytest.raises(ValueError, match="one row of evidence"):
        column_information(rows, {})


# -- several at once -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", _GIVEN)
def test_several_quantiles_are_each_by_itself(model: einet.TableModel, name: str):
    posterior, shares = model.given(_GIVEN[name]), [0.0, 0.05, 0.5, 0.77, 1.0]
    for column in ("height", "gain", "age"):
        together = posterior.quantile(column, shares)
        alone = [posterior.quantile(column, share) for share in shares]
        assert np.allclose(together, np.stack(alone)), column


def test_points_count_by_their_densities(model: einet.TableModel):
    points = [155.25, 166.5]
    posterior = model.given({"height": points})
    logs = np.array([model.given({"height": point}).log_evidence[0] for point in points])
    assert posterior.log_evidence[0] == pytest.approx(np.logaddexp(*logs))
    weights = np.exp(logs - np.logaddexp(*logs))
    assert posterior.mean("height")[0] == pytest.approx(float(weights @ points))
    assert posterior.cdf("height", 160)[0] == pytest.approx(weights[0])
    assert posterior.points.tolist() == [1]
    # A number counts for nothing next to a spike.
    both = model.given({"gain": [0.0, 33.25]})
    assert both.points.tolist() == [0]
    assert both.log_evidence[0] == pytest.approx(model.given({"gain": [0.0]}).log_evidence[0])
