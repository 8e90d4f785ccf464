"""Posteriors of a few rows in numpy, against those of the model itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import einet
from einet.inference.few_rows import MOST_ROWS, FewPosterior
from einet.structures import RegionGraph
from tests.oracle import close

_FAMILIES = [einet.Gaussian(), einet.Categorical(3), einet.Gaussian(), einet.Categorical(4)]
_X = torch.tensor([[math.nan, 1, math.nan, math.nan], [0.5, math.nan, math.nan, 3]]).double()


def _graph() -> RegionGraph:
    return einet.chow_liu(np.random.default_rng(0).integers(0, 2, size=(50, 4)))


def _einet(seed: int, num_classes: int = 1) -> einet.Einet:
    options = {"sums": "linear", "seed": seed, "dtype": torch.float64, "num_classes": num_classes}
    return einet.Einet(_graph(), _FAMILIES, 5, **options)


_MODELS = {
    "einet": lambda: _einet(0),
    "classes": lambda: _einet(1, num_classes=3),
    "mixture": lambda: einet.Mixture([_einet(2), _einet(3)], [0.3, 0.7]),
}


@pytest.fixture(params=_MODELS)
def model(request: pytest.FixtureRequest) -> einet.Einet | einet.Mixture:
    return _MODELS[request.param]()


def test_without_events(model: einet.Einet | einet.Mixture):
    few, posterior = FewPosterior.of(model, _X.numpy()), model.given(_X)
    assert few is not None
    close(few.log_evidence, posterior.exact_log_evidence)
    for variable in (1, 3):
        close(few.probabilities(variable), posterior.probabilities(variable))
    assert few.probabilities(0) is None
    total = sum(leaves.weight.sum(0) for leaves in few.leaves(2))
    close(total, np.ones(2))


def test_with_events(model: einet.Einet | einet.Mixture):
    where = {1: einet.among([0, 2]), 0: einet.between(-1.0, 0.3)}
    x = torch.tensor([[math.nan, math.nan, 0.7, math.nan]]).double()
    few, posterior = FewPosterior.of(model, x.numpy(), [where]), model.given(x, where=where)
    assert few is not None
    close(few.log_evidence, posterior.exact_log_evidence)
    for variable in (1, 3):
        close(few.probabilities(variable), posterior.probabilities(variable))


def test_rows_with_events_of_their_own():
    model = _einet(0)
    x = np.full((3, 4), math.nan)
    x[1, 1] = 2.0
    events = [{1: einet.among([1])}, {}, {0: einet.between(upper=0.0), 3: einet.among([0, 3])}]
    few = FewPosterior.of(model, x, events)
    assert few is not None
    for row, known in enumerate(events):
        options = {"where": known} if known else {}
        expected = model.log_prob(torch.from_numpy(x[row : row + 1]), **options)
        close(few.log_evidence[row : row + 1], expected)


@pytest.mark.parametrize("state", [0, 2])
def test_leaves_given_another_variable(state: int):
    """By Bayes' rule, and by one more pass with the state as evidence."""
    builder = einet.RegionGraphBuilder(3)
    model = einet.Einet(
        _with_siblings(builder),
        [einet.Categorical(3), einet.Gaussian(), einet.Categorical(3)],
        5, sums="linear", dtype=torch.float64,
    )  # fmt: skip
    x = np.array([[math.nan, math.nan, 1.0], [float(state), math.nan, math.nan]])
    few = FewPosterior.of(model, x)
    held = FewPosterior.of(model, np.where(np.isnan(x) & [True, False, False], state, x))
    assert few is not None
    assert held is not None
    found = few.leaves_given(1, 0, state)
    assert found is not None
    for one, other in zip(found, held.leaves(1), strict=True):
        close(one.weight, other.weight)
    # The third variable hangs from another product.
    assert few.leaves_given(1, 2, state) is None
    known = FewPosterior.of(model, np.full((1, 3), math.nan), [{0: einet.among([0, state])}])
    assert known is not None
    assert known.leaves_given(1, 0, state) is None


def _with_siblings(builder: einet.RegionGraphBuilder) -> RegionGraph:
    pair = builder.partition([builder.leaf([0]), builder.leaf([1])])
    builder.partition([pair, builder.leaf([2])])
    return builder.build()


def test_who_is_not_served():
    model = _einet(0)
    assert FewPosterior.of(model, np.full((MOST_ROWS + 1, 4), math.nan)) is None
    assert FewPosterior.of(model, np.full((0, 4), math.nan)) is None
    assert FewPosterior.of(model.float(), np.full((1, 4), math.nan)) is None
    model = _einet(0)
    nothing = np.full((1, 4), math.nan)
    for event in (einet.between(0, 1), einet.likelihood([0.1, 0.2, 0.7])):
        assert FewPosterior.of(model, nothing, [{1: event}]) is None


def test_impossible_rows():
    model = _einet(0)
    few = FewPosterior.of(model, np.full((1, 4), math.nan), [{0: einet.between(1e9, 2e9)}])
    assert few is not None
    assert few.log_evidence[0] < -1e5
