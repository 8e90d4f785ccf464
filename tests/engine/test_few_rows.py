"""Passes over a few rows in numpy, against those in torch."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import einet
from einet.engine import few_rows as module
from einet.engine.few_rows import MOST_ROWS, few_passes
from einet.kernels.dispatch import backend
from tests.oracle import close

_FAMILIES = [
    einet.Gaussian(),
    einet.Categorical(3),
    einet.Categorical(2),
    einet.Gaussian(),
    einet.Categorical(3),
]


def _model(num_classes: int = 1, seed: int = 0) -> einet.Einet:
    """A hidden tree over columns of both kinds, in which some nodes have three children."""
    rows = np.random.default_rng(0).integers(0, 2, size=(60, 5))
    graph = einet.chow_liu(rows)
    model = einet.Einet(
        graph, _FAMILIES, 4, sums="linear", num_classes=num_classes, seed=seed, dtype=torch.float64
    )
    return model.initialize(_rows(40, seed=3), seed=seed)


def _rows(count: int, seed: int = 0, holes: float = 0.3) -> torch.Tensor:
    generator = np.random.default_rng(seed)
    x = generator.normal(2.0, 3.0, size=(count, 5))
    for column, states in ((1, 3), (2, 2), (4, 3)):
        x[:, column] = generator.integers(0, states, count)
    x[generator.random(x.shape) < holes] = math.nan
    return torch.from_numpy(x)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, MOST_ROWS), st.sampled_from([1, 3]))
def test_the_same_as_in_torch(seed: int, count: int, num_classes: int):
    model, x = _model(num_classes, seed % 7), _rows(count, seed)
    assert few_passes(model) is not None
    with backend("torch"):
        assert few_passes(model) is None
        roots, log_prob = model.class_log_prob(x), model.log_prob(x)
        shares = model.class_posterior(x)
        flow = model.given(x)._flow(slice(0, count))
    close(model.class_log_prob(x), roots)
    close(model.log_prob(x), log_prob)
    close(model.class_posterior(x), shares)
    passes = few_passes(model)
    assert passes is not None
    upward = passes.up(x.numpy())
    assert upward is not None
    joint = upward.roots + passes.log_prior
    seeds = np.exp(joint - np.logaddexp.reduce(joint, 0))
    close(passes.down(upward, seeds), flow)


_OUTSIDE = [(1, 3.0), (1, 0.5), (2, 1e300), (0, 1e31), (1, math.inf)]


@pytest.mark.parametrize(("column", "cell"), _OUTSIDE)
def test_cells_outside_of_the_support(column: int, cell: float):
    model, x = _model(), _rows(1, holes=0.0)
    x[0, column] = cell
    assert model.log_prob(x).item() == -math.inf


def test_masks_and_integers():
    model = _model()
    x, known = (
        torch.ones(2, 5, dtype=torch.int64),
        torch.tensor([[True] * 5, [False, True] * 2 + [True]]),
    )
    with backend("torch"):
        expected = model.log_prob(x, known)
    close(model.log_prob(x, known), expected)


def test_far_outliers():
    """Where a product of densities is no float any more."""
    model, x = _model(), _rows(3, holes=0.0)
    x[:, 0], x[:, 3] = 1e6, torch.tensor([-1e6, 0.0, 1e6])
    with backend("torch"):
        expected = model.log_prob(x)
    assert expected.max() < -1e4
    close(model.log_prob(x), expected)


def test_changed_parameters_change_the_answers():
    model, x = _model(), _rows(2)
    before, first = model.log_prob(x), few_passes(model)
    assert few_passes(model) is first
    other = copy.deepcopy(model)
    model.em_step(_rows(40))
    assert few_passes(model) is not first
    assert not torch.allclose(model.log_prob(x), before)
    close(other.log_prob(x), before)
    model.load_state_dict(other.state_dict())
    close(model.log_prob(x), before)
    # Locations are no parameters, but densities depend on them.
    model.initialize(10 * _rows(40).abs().round() % 2, seed=1)
    with backend("torch"):
        expected = model.log_prob(x)
    close(model.log_prob(x), expected)


def test_who_is_not_served(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_MOST_ENTRIES", 8)
    assert few_passes(_model()) is None
    monkeypatch.undo()
    model = _model()
    graph = einet.random_trees(5, 1, 1)
    others = [
        copy.deepcopy(model).float(),
        einet.Einet(graph, _FAMILIES, 4, dtype=torch.float64),
        einet.Einet(graph, _FAMILIES, 4, sums="linear", dtype=torch.float64),
        einet.Einet(model.graph, einet.Bernoulli(), 4, sums="linear", dtype=torch.float64),
    ]
    assert all(few_passes(other) is None for other in others)
    with einet.unconstrained(model):
        assert few_passes(model) is None
    assert few_passes(model) is not None


def test_gradients_are_recorded_as_before():
    x = _rows(1, holes=0.0).requires_grad_()
    _model().log_prob(x).sum().backward()
    assert x.grad is not None
    assert bool((x.grad[0, [0, 3]] != 0).all())
