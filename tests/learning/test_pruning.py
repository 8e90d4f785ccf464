"""Pruned models are distributions, fall by no more than they say, and stay pruned under EM."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import einet
from einet import (
    EM,
    Bernoulli,
    Einet,
    Prior,
    StochasticEM,
    grow,
    poon_domingos,
    prune,
    random_trees,
)

STATES = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 4)
X = torch.randint(0, 2, (60, 4), generator=torch.Generator().manual_seed(0)).double()


def weights(model: Einet) -> list[Tensor]:
    return [weight.detach().clone() for weight in model.circuit.weights]


def flow_of(model: Einet, pruned: Einet, rows: Tensor) -> float:
    """How many of the dropped weights rows are expected to use, all together."""
    statistics = model.e_step(rows)
    found = zip(model.circuit.weights, pruned.circuit.weights, statistics.weights, strict=True)  # type: ignore[attr-defined]
    return sum(float((w * n)[(w > 0) & (new == 0)].sum()) for w, new, n in found)


@settings(max_examples=8, deadline=None)
@given(
    keep=st.floats(0.01, 1.0),
    sums=st.sampled_from(["einsum", "linear"]),
    classes=st.integers(1, 2),
    seed=st.integers(0, 9),
)
def test_normalised_and_no_lower_than_it_says(keep: float, sums: str, classes: int, seed: int):
    graph = random_trees(4, depth=2, replicas=2, seed=seed)
    model = Einet(
        graph, Bernoulli(), 4, sums=sums, num_classes=classes, seed=seed, dtype=torch.float64
    )
    model.em_step(X, step_size=0.7)
    before = weights(model)
    pruned = prune(model, X, keep)
    assert all(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))
    assert pruned.of == sum(w.numel() for w in before if w.ndim == 3)
    assert pruned.kept >= keep * pruned.of
    assert pruned.kept == sum(int((w > 0).sum()) for w in weights(pruned.model) if w.ndim == 3)
    assert float(pruned.model.log_prob(STATES).exp().sum()) == pytest.approx(1, abs=1e-12)
    # What it says of its rows.
    assert pruned.before == pytest.approx(float(model.log_prob(X).mean()), abs=1e-10)
    assert pruned.after == pytest.approx(float(pruned.model.log_prob(X).mean()), abs=1e-10)
    mean = flow_of(model, pruned.model, X) / len(X)
    assert pruned.dropped_flow == pytest.approx(mean, abs=1e-9)
    # And of every row, by the union of what it may have lost.
    states = STATES[::3]
    flows = torch.tensor([flow_of(model, pruned.model, row) for row in states.split(1)])
    lost = model.log_prob(states) - pruned.model.log_prob(states)
    told = torch.where(flows < 1, -torch.log1p(-flows.clamp(max=1.0)), torch.inf)
    assert bool((lost <= told + 1e-9).all())


def test_the_least_used_weights_go_first():
    model = Einet(random_trees(4, 2, 1), Bernoulli(), 6, sums="linear", dtype=torch.float64)
    einet.fit(model, X, epochs=3, optimizer=EM(), progress=False)
    assert prune(model, X, 1).fall == 0
    flows = [prune(model, X, keep).dropped_flow for keep in (1.0, 0.9, 0.6, 0.3)]
    assert flows == sorted(flows)
    pruned, gradients = prune(model, X, 0.6), model.e_step(X).weights  # type: ignore[attr-defined]
    pairs = list(zip(model.circuit.weights, gradients, pruned.model.circuit.weights, strict=True))
    used = torch.cat([(w * n).flatten() for w, n, _ in pairs]).sort(descending=True).values
    dropped = torch.cat([(w * n)[new == 0] for w, n, new in pairs])
    assert float(dropped.max()) <= float(used[math.ceil(0.6 * len(used)) - 1])
    # Again: of those that are left.
    once = prune(model, X, 0.8)
    assert prune(once.model, X, 0.8).of == once.kept


@pytest.mark.parametrize(
    "learner",
    [
        EM(),
        EM(Prior(sums=5.0, leaves=1.0)),
        StochasticEM(0.3),
        StochasticEM(0.5, Prior(sums=5.0), momentum=0.8),
    ],
    ids=["em", "em-prior", "stochastic", "momentum"],
)
def test_zeros_stay_under_em_and_when_growing(learner: einet.Learner):
    graph = poon_domingos((2, 2), delta=1)
    model = Einet(graph, Bernoulli(), 4, dtype=torch.float64).initialize(X)
    model = prune(model, X, 0.4).model
    zeros = [weight == 0 for weight in weights(model)]
    assert sum(int(zero.sum()) for zero in zeros) > 50
    history = einet.fit(model, X, epochs=4, batch_size=20, optimizer=learner, progress=False)
    assert all(math.isfinite(value) for value in history.train)
    for zero, weight in zip(zeros, weights(model), strict=True):
        assert bool((weight[zero] == 0).all())
        assert bool((weight[~zero] > 0).all())
    assert float(model.log_prob(STATES).exp().sum()) == pytest.approx(1, abs=1e-12)
    grown = grow(model, 6)
    shares = [float((w == 0).double().mean()) for w in grown.circuit.weights if w.ndim == 3]
    assert max(shares) > 0.3
    torch.testing.assert_close(grown.log_prob(STATES), model.log_prob(STATES))


def test_em_with_a_prior_does_not_decrease_its_objective():
    model = Einet(random_trees(4, 2, 2), Bernoulli(), 4, dtype=torch.float64).initialize(X)
    model = prune(model, X, 0.5).model
    prior = Prior(sums=10.0, leaves=1.0)
    counts, values = prior.pseudo_counts(model, X), []
    for _ in range(5):
        values.append(float(model.log_prob(X).sum() + counts.log_density(model)))
        einet.fit(model, X, epochs=1, optimizer=EM(prior), progress=False)
    assert all(after >= before - 1e-6 for before, after in pairwise(values))


def test_bad_arguments():
    model = Einet(random_trees(4, 1, 1), Bernoulli(), 3)
    with pytest.raises(ValueError, match="keep must be"):
        prune(model, X, 1.5)
    with pytest.raises(ValueError, match="keep must be above 0, got 0"):
        prune(model, X, 0)
    with pytest.raises(TypeError, match="model must be an Einet, got Mixture"):
        prune(einet.Mixture([model]), X, 0.5)
    with pytest.raises(ValueError, match="rows must be some, .* 1 impossible"):
        prune(model, [[0.0, 1.0, 0.0, 0.5]], 0.5)
