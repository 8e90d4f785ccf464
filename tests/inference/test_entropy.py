"""Entropies against sums over all states."""

import numpy as np
import pytest
import torch
from scipy import stats

import einet
from einet.inference import entropy as module
from tests.oracle import CONTINUOUS, DISCRETE, NAN, Joint, close, random_model, random_rows


def expected_entropy(joint: Joint, variable: int, evidence) -> float:
    if not evidence[variable].isnan():
        return 0.0
    p = joint.marginal(variable, evidence)
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


@pytest.mark.parametrize("cells", [1 << 22, 5], ids=["at once", "in parts"])
@pytest.mark.parametrize("name", DISCRETE)
def test_it_is_that_of_the_marginal(name: str, cells: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_CELLS_AT_ONCE", cells)
    model = random_model(einet.random_trees(3, depth=2, replicas=2), DISCRETE[name], 3)
    joint = Joint(model)
    evidence = random_rows(model, 6, missing=0.6)
    evidence[0] = NAN
    posterior = model.given(evidence)
    for variable in range(3):
        expected = [expected_entropy(joint, variable, row) for row in evidence]
        # The oracle leaves out what a Poisson has beyond its states.
        close(posterior.entropy(variable), expected, rtol=1e-9, atol=1e-9)


def test_of_a_class():
    graph = einet.random_trees(3, depth=1, replicas=1)
    model = random_model(graph, einet.Categorical(3), 3, num_classes=2)
    joint, nothing = Joint(model), torch.full((2, 3), NAN).double()
    found = model.given(nothing, labels=[0, 1]).entropy(2)
    for label in (0, 1):
        p = joint.marginal(2, nothing[0], label)
        close(found[label], -(p * np.log(p)).sum())


@pytest.mark.parametrize("rate", [1e-6, 3.0, 5000.0])
def test_no_count_that_matters_is_left_out(rate: float):
    model = einet.Einet(einet.RegionGraph(1, [1], []), einet.Poisson(), 1, dtype=torch.float64)
    with torch.no_grad():
        model.leaf.leaf_blocks[0].stored.fill_(rate)
    p = stats.poisson.pmf(np.arange(10_000), rate)
    expected = -(p[p > 0] * np.log(p[p > 0])).sum()
    close(model.prior().entropy(0), [expected], rtol=1e-9, atol=1e-10)


def test_components_with_other_states():
    """Each is a single count, which the mixture adds up."""
    graph = einet.RegionGraph(1, [1], [])
    parts = [
        einet.Einet(graph, family, 1, dtype=torch.float64)
        for family in (einet.Bernoulli(), einet.Categorical(4), einet.Binomial(6))
    ]
    inner = einet.Mixture(parts[1:], [0.5, 0.5])
    model = einet.Mixture([parts[0], inner], [0.2, 0.8])
    with torch.no_grad():
        p = model.log_prob(torch.arange(7.0).unsqueeze(1)).exp()
    close(model.prior().entropy(0), [float(-(p * p.log()).sum())])
    close(model.prior().probabilities(0), p[None])


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_variables_are_refused(name: str):
    model = random_model(einet.random_trees(2, depth=1, replicas=1), CONTINUOUS[name], 2)
    with pytest.raises(ValueError, match=f"variable 1 is {name}, which is continuous"):
        model.prior().entropy(1)


def test_too_many_states_are_refused():
    model = einet.Einet(einet.RegionGraph(1, [1], []), einet.Poisson(), 1)
    with torch.no_grad():
        model.leaf.leaf_blocks[0].stored.fill_(1e20)
    with pytest.raises(ValueError, match="variable 0 has more than 16777216 states"):
        model.prior().entropy(0)


def test_no_rows():
    model = random_model(einet.random_trees(2, depth=1, replicas=1), einet.Bernoulli(), 2)
    assert model.given(torch.empty(0, 2)).entropy(0).shape == (0,)
