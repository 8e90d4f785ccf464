"""Mutual information against sums over all pairs of states, and integrals over two variables."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import Tensor

import einet
from einet.inference import information as module
from tests.budgets import limit
from tests.oracle import CONTINUOUS, DISCRETE, NAN, Joint, close, random_model, random_rows

DIFFERENT = [einet.Gaussian(), einet.Categorical(3), einet.Gamma(), einet.Bernoulli()]


def expected(model: einet.Einet, i: int, j: int, evidence: Tensor) -> float:
    """By a table of p(x_i, x_j | e) over all states, or points of a rule of quadrature."""
    if not (evidence[i].isnan() and evidence[j].isnan()):
        return 0.0
    joint = Joint(model, evidence)
    density = joint.density.sum(-1)
    for variable in reversed(range(len(joint.points))):
        if variable not in (i, j):
            density = np.tensordot(density, joint.weights[variable], axes=(variable, 0))
    density = density if i < j else density.T
    weights = np.outer(joint.weights[i], joint.weights[j])
    p = density / (weights * density).sum()
    alone = np.outer(p @ joint.weights[j], joint.weights[i] @ p)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / alone), 0.0)
    return float((weights * terms).sum())


def strongly(model: einet.Einet) -> einet.Einet:
    """The same with sums that speak for one state each, so that variables depend on each other."""
    for layer in model.circuit.sum_layers[:-1]:
        layer.align(0.9)
    return model


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_pairs_are_exact_sums(name: str):
    model = strongly(random_model(einet.random_trees(3, 2, 2), DISCRETE[name], 3))
    evidence = random_rows(model, 4, missing=0.8)
    evidence[0] = NAN
    posterior = model.given(evidence)
    for i, j in [(0, 1), (2, 1), (0, 2)]:
        value, error = posterior.mutual_information(i, j, with_error=True)
        # The oracle leaves out what a Poisson has beyond its states.
        close(value, [expected(model, i, j, row) for row in evidence], rtol=1e-8, atol=1e-9)
        assert (error == 0).all()
        assert (value >= 0).all()


@pytest.mark.parametrize(("i", "j"), [(0, 1), (2, 0), (1, 3)])
def test_pairs_of_any_kind(i: int, j: int):
    model = strongly(random_model(einet.random_trees(4, 2, 2), DIFFERENT, 3))
    evidence = torch.full((2, 4), NAN).double()
    evidence[1, min({0, 1, 2, 3} - {i, j})] = 1.0
    value, error = model.given(evidence).mutual_information(i, j, with_error=True)
    wanted = [expected(model, i, j, row) for row in evidence]
    close(value, wanted, rtol=1e-4, atol=1e-6)
    assert (error < 1e-4).all()
    assert (np.abs(value.numpy() - wanted) <= error.numpy() + 1e-9).all()
    close(model.given(evidence).mutual_information(j, i), value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["Gaussian", "Exponential"])
def test_all_pairs_at_once(name: str):
    families = [CONTINUOUS[name], einet.Categorical(4), CONTINUOUS[name]]
    model = strongly(random_model(einet.random_trees(3, 2, 2), families, 2))
    posterior = model.prior()
    value, error = posterior.mutual_information(with_error=True)
    assert value.shape == error.shape == (1, 3, 3)
    close(value, value.mT)
    close(value[0].diag(), [math.inf, float(posterior.entropy(1)), math.inf])
    for i, j in [(0, 1), (1, 2), (2, 0)]:
        close(posterior.mutual_information(i, j), value[:, i, j], rtol=1e-4, atol=1e-6)
        # The rule of the oracle is for independent variables, and good to a few digits here.
        close(value[0, i, j], expected(model, i, j, torch.full((3,), NAN)), rtol=1e-4, atol=1e-5)


def test_two_gaussians_that_depend_on_each_other():
    """Against the integral over the plane, of a mixture of two."""
    model = random_model(einet.random_trees(2, 1, 1), einet.Gaussian(), 2)
    with torch.no_grad():
        for block in model.leaf.leaf_blocks:
            block.stored[..., 0] = torch.tensor([[-1.0], [2.0]])
            block.stored[..., 1] = torch.tensor([[0.25], [0.04]], dtype=torch.float64)
        weights = torch.tensor([[[0.45, 0.05, 0.1, 0.4]]], dtype=torch.float64)
        model.circuit.sum_layers[0].weight.copy_(weights)

    def p(x: float, mean: float, variance: float) -> float:
        return math.exp(-((x - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)

    def integrand(y: float, x: float) -> float:
        f, g = ((p(v, -1, 0.25), p(v, 2, 0.04)) for v in (x, y))
        both = 0.45 * f[0] * g[0] + 0.05 * f[0] * g[1] + 0.1 * f[1] * g[0] + 0.4 * f[1] * g[1]
        alone = (0.5 * f[0] + 0.5 * f[1]) * (0.55 * g[0] + 0.45 * g[1])
        return both * math.log(both / alone) if both > 0 else 0.0

    options = {"epsabs": 1e-9, "epsrel": 1e-9}
    wanted = sum(
        integrate.dblquad(integrand, *x, *y, **options)[0]
        for x in ((-4.5, 1), (1, 3.5))
        for y in ((-4.5, 1), (1, 3.5))
    )
    value, error = model.prior().mutual_information(0, 1, with_error=True)
    close(value, [wanted], rtol=1e-6)
    assert abs(value.item() - wanted) <= error.item() + 1e-9


def test_independent_variables_tell_nothing():
    model = random_model(einet.random_trees(4, 2, 1), DIFFERENT, 1)
    found = model.prior().mutual_information()[0]
    close(
        found - torch.diag(found.diag().nan_to_num(0, posinf=0)),
        np.diag([math.inf, 0, math.inf, 0]),
    )
    evidence = torch.tensor([[0.5, 1.0, NAN, NAN]])
    found = model.float().given(evidence).mutual_information()
    assert (found[0, :2] == 0).all()
    assert found[0, 2, 3] < 1e-6


def test_a_variable_that_another_decides():
    """All that is to know of it: its entropy."""
    model = random_model(einet.random_trees(2, 1, 1), einet.Bernoulli(1e-9), 2)
    with torch.no_grad():
        for block in model.leaf.leaf_blocks:
            block.stored.copy_(torch.tensor([1e-9, 1 - 1e-9]).view(2, 1, 1).expand_as(block.stored))
        model.circuit.sum_layers[0].weight.copy_(torch.tensor([[[0.3, 0.0, 0.0, 0.7]]]))
    close(model.prior().mutual_information(0, 1), model.prior().entropy(1), rtol=1e-6)


def test_a_mixture():
    """Two products of independent variables, which depend on each other by the component."""
    graph = einet.random_trees(2, 1, 1)
    parts = [random_model(graph, [einet.Bernoulli(), einet.Gaussian()], 1, seed=s) for s in (0, 1)]
    with torch.no_grad():
        for mean, part in zip((-5.0, 5.0), parts, strict=True):
            part.leaf.leaf_blocks[1].stored[..., 0] = mean
    model = einet.Mixture(parts, [0.4, 0.6])
    p = [float(part.mean()[0]) for part in parts]
    # The real number says which component it is, but for 3e-7.
    wanted = float(model.prior().entropy(0)) - sum(
        -w * (q * math.log(q) + (1 - q) * math.log(1 - q))
        for w, q in zip((0.4, 0.6), p, strict=True)
    )
    close(model.prior().mutual_information(0, 1), [wanted], rtol=1e-4)
    close(model.prior().mutual_information(1, 0), [wanted], rtol=1e-4)


def test_rows_in_pieces(monkeypatch: pytest.MonkeyPatch):
    model = strongly(random_model(einet.random_trees(3, 2, 1), einet.Categorical(3), 2))
    evidence = random_rows(model, 5, missing=0.7)
    whole = model.given(evidence).mutual_information()
    limit(monkeypatch, "values")
    limit(monkeypatch, "block")
    close(model.given(evidence).mutual_information(), whole)


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch):
    model = random_model(einet.random_trees(3, 1, 1), einet.Poisson(), 2)
    posterior = model.prior()
    with pytest.raises(ValueError, match="both be given, or neither, got i=1 and j=None"):
        posterior.mutual_information(1)
    with pytest.raises(ValueError, match="two variables, got 2 twice"):
        posterior.mutual_information(2, 2)
    with pytest.raises(ValueError, match="between 0 and 2, got 3"):
        posterior.mutual_information(0, 3)
    monkeypatch.setattr(module, "_MOST_STATES", 5)
    with pytest.raises(ValueError, match="more than 5 states"):
        posterior.mutual_information(0, 1)
    assert model.given(torch.empty(0, 3)).mutual_information(0, 1).shape == (0,)
