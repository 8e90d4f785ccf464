"""Entropies against sums over all states."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

import einet
from einet.inference import entropy as module
from einet.inference import quadrature
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
def test_continuous_variables_are_integrals(name: str):
    model = random_model(einet.random_trees(2, depth=1, replicas=2), CONTINUOUS[name], 3)
    evidence = random_rows(model, 4, missing=0.6)
    evidence[0] = NAN
    evidence[1] = torch.tensor([0.7, NAN])
    value, error = model.given(evidence).entropy(1, with_error=True)
    for row, here in enumerate(evidence):
        if here[1].isnan():
            joint = Joint(model, here)
            p = joint.marginal(1, here)
            with np.errstate(divide="ignore", invalid="ignore"):
                expected = -(joint.weights[1] * np.where(p > 0, p * np.log(p), 0.0)).sum()
            close(value[row], expected, rtol=1e-7, atol=1e-7)
            assert error[row] < 1e-6
        else:
            assert value[row] == -math.inf
    close(model.given(evidence).entropy(1), value)


def mixed(parameters: list[list[float]], weights: list[float]) -> einet.Einet:
    """One variable: a mixture of Gaussians with these means and deviations."""
    model = random_model(einet.RegionGraph(1, [1], []), einet.Gaussian(), len(weights))
    with torch.no_grad():
        stored = np.array([[mean, deviation**2] for mean, deviation in parameters])
        model.leaf.leaf_blocks[0].stored.copy_(torch.from_numpy(stored).unsqueeze(1))
        model.circuit.sum_layers[0].weight.copy_(torch.from_numpy(np.array([[weights]])))
    return model


def test_peaks_far_apart_and_narrow():
    """Each has its own entropy, besides that of which it is."""
    parameters, weights = [[-1e4, 1e-3], [0.0, 1.0], [3e3, 50.0], [5e5, 1e-4]], [0.1, 0.2, 0.3, 0.4]
    each = [0.5 * math.log(2 * math.pi * math.e * s * s) for _, s in parameters]
    expected = sum(w * (h - math.log(w)) for w, h in zip(weights, each, strict=True))
    value, error = mixed(parameters, weights).prior().entropy(0, with_error=True)
    close(value, [expected], rtol=1e-7)
    assert error < 1e-5


def test_a_peak_within_a_wide_density():
    parameters, weights = [[0.1234, 1e-6], [0.0, 1.0]], [0.01, 0.99]

    def entropy(x: float) -> float:
        p = sum(
            w * stats.norm.pdf(x, mean, s) for w, (mean, s) in zip(weights, parameters, strict=True)
        )
        return -float(p) * math.log(p) if p > 0 else 0.0

    ends = [-9, *(0.1234 + 1e-6 * np.arange(-10, 11, 2)), 9]
    expected = sum(integrate.quad(entropy, a, b)[0] for a, b in itertools.pairwise(ends))
    close(mixed(parameters, weights).prior().entropy(0), [expected], rtol=1e-6)


def test_an_error_that_is_large_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quadrature, "_ROUNDS", 1)
    # Panels that begin between quantiles of leaves miss none of these; fewer panels do.
    first = quadrature._first_panels
    monkeypatch.setattr(quadrature, "_first_panels", lambda mixtures, count: first(mixtures, 2))
    posterior = mixed([[0.0, 1.0], [1.0, 0.001], [-7.0, 1e-3]], [0.5, 0.2, 0.3]).prior()
    value, error = posterior.entropy(0, with_error=True)
    assert error > 1e-3
    with pytest.raises(ArithmeticError, match="uncertain by up to .* with_error=True"):
        posterior.entropy(0)
    monkeypatch.undo()
    assert abs(value - posterior.entropy(0)) <= error


def test_densities_that_no_float_holds_are_told(monkeypatch: pytest.MonkeyPatch):
    def infinite(family: object, x: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
        return torch.full((len(parameters), *x.shape), math.inf, dtype=torch.float64)

    monkeypatch.setattr(quadrature, "densities", infinite)
    posterior = mixed([[0.0, 1.0]], [1.0]).prior()
    value, error = posterior.entropy(0, with_error=True)
    close(value, [NAN])
    close(error, [math.inf])
    with pytest.raises(ArithmeticError, match="uncertain by up to inf"):
        posterior.entropy(0)


@pytest.mark.parametrize("degree", [0, 1, 5, 13, 22])
def test_the_rules_are_those_of_gauss_and_kronrod(degree: int):
    ends = torch.tensor([-1.0, 1.0]).double()
    points, fine, coarse = quadrature._on_panels(ends[:1], ends[1:])
    expected = (1 - (-1) ** (degree + 1)) / (degree + 1)
    close((fine * points**degree).sum(), expected, atol=1e-14)
    if degree <= 13:
        close((coarse * points**degree).sum(), expected, atol=1e-14)


def test_too_many_states_are_refused():
    model = einet.Einet(einet.RegionGraph(1, [1], []), einet.Poisson(), 1)
    with torch.no_grad():
        model.leaf.leaf_blocks[0].stored.fill_(1e20)
    with pytest.raises(ValueError, match="variable 0 has more than 16777216 states"):
        model.prior().entropy(0)


def test_no_rows():
    model = random_model(einet.random_trees(2, depth=1, replicas=1), einet.Bernoulli(), 2)
    assert model.given(torch.empty(0, 2)).entropy(0).shape == (0,)


_CUTS = [(0.1, None), (None, 0.9), (0.3, 0.30001)]


@pytest.mark.parametrize("ends", _CUTS, ids=str)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_densities_that_an_event_cuts_off(name: str, ends: tuple[float | None, float | None]):
    """Against a fixed rule of Gauss over the density, divided by what it adds up to."""
    families = [CONTINUOUS[name], einet.Categorical(3)]
    model = einet.Einet(einet.random_trees(2, 1, 1), families, 3, dtype=torch.float64)
    lowest, highest = {"Gaussian": (-40.0, 60.0), "Beta": (1e-12, 1 - 1e-12)}.get(name, (1e-12, 60))
    lower, upper = (
        other if end is None else end for end, other in zip(ends, (lowest, highest), strict=True)
    )
    nodes, weights = np.polynomial.legendre.leggauss(100)
    edges = np.linspace(lower, upper, 81)
    half = np.diff(edges)[:, None] / 2
    x = (edges[:-1, None] + half * (nodes + 1)).reshape(-1)
    rows = torch.tensor(np.stack([x, np.ones_like(x)], 1))
    p = model.log_prob(rows).exp().numpy()
    share = (half * weights).reshape(-1)
    p /= (p * share).sum()
    posterior = model.given([[NAN, 1.0]], where={0: einet.between(*ends)})
    value, error = posterior.entropy(0, with_error=True)
    close(value, [(share * special.entr(p)).sum()], rtol=1e-7, atol=1e-7)
    assert float(error) < 1e-6


def test_rows_with_intervals_of_their_own():
    families = [einet.Gaussian(), einet.Categorical(3), einet.Gaussian()]
    model = random_model(einet.random_trees(3, 1, 2), families, 3)
    ends = [(0.0, 1.0), (-1.0, 0.5)]
    where = {0: einet.between(*zip(*ends, strict=True))}
    every = model.given(torch.full((2, 3), NAN), where=where)
    for row, (lower, upper) in enumerate(ends):
        alone = model.given(where={0: einet.between(lower, upper)})
        close(every.entropy(0)[row], alone.entropy(0)[0])
        close(every.mutual_information(0, 1)[row], alone.mutual_information(0, 1)[0], atol=1e-8)


def test_information_of_a_variable_that_an_event_cuts_off():
    """I(X; C) = H(C) − E[H(C | X)], with a fixed rule of Gauss over the interval."""
    families = [einet.Gaussian(), einet.Categorical(3)]
    model = random_model(einet.random_trees(2, 1, 2), families, 3)
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x = torch.full((200, 2), NAN, dtype=torch.float64)
    x[:, 0] = torch.from_numpy(0.5 * nodes - 0.5)
    p = model.log_prob(x).exp().numpy() * weights
    given = model.given(x).probabilities(1).numpy()
    marginal = (p / p.sum()) @ given
    expected = special.entr(marginal).sum() - (p / p.sum()) @ special.entr(given).sum(1)
    posterior = model.given(where={0: einet.between(-1.0, 0.0)})
    for pair in ((0, 1), (1, 0)):
        close(posterior.mutual_information(*pair), [expected], rtol=1e-6, atol=1e-9)
