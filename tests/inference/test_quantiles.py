"""Distribution functions and quantiles, against sums and integrals, and against each other."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from torch import Tensor

import einet
from einet.inference.mixtures import Mixtures
from tests.budgets import limit
from tests.oracle import CONTINUOUS, DISCRETE, NAN, Joint, close, random_model, random_rows

FAMILIES = DISCRETE | CONTINUOUS
INF = math.inf
NUMBERS = {name: family for name, family in FAMILIES.items() if name != "Categorical"}
NUMBERS["numeric Categorical"] = einet.Categorical(3, numeric=True)


def case(name: str, rows: int = 6) -> tuple[einet.Einet, Tensor]:
    model = random_model(einet.random_trees(3, 2, 2), NUMBERS[name], 3)
    for layer in model.circuit.sum_layers[:-1]:
        layer.align(0.8)
    x = random_rows(model, rows, missing=0.6)
    x[0] = NAN
    return model, x


def gaussians() -> einet.Einet:
    """One variable: a mixture of two Gaussians, 0.3 N(−1, 0.25) + 0.7 N(2, 4)."""
    model = random_model(einet.RegionGraph(1, [1], []), einet.Gaussian(), 2)
    with torch.no_grad():
        model.leaf.leaf_blocks[0].stored.copy_(torch.tensor([[[-1.0, 0.25]], [[2.0, 4.0]]]))
        model.circuit.sum_layers[0].weight[..., 0] = 0.3
        model.circuit.sum_layers[0].weight[..., 1] = 0.7
    return model


def by_hand(x: float) -> float:
    return float(0.3 * stats.norm.cdf(x, -1, 0.5) + 0.7 * stats.norm.cdf(x, 2, 2))


# -- distribution functions ------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in NUMBERS if n not in CONTINUOUS])
def test_a_distribution_function_is_a_sum_over_states(name: str):
    model, x = case(name)
    joint, posterior = Joint(model), model.given(x)
    for value in (-1.0, 0.0, 1.0, 1.5, 2.0, 7.0):
        found = posterior.cdf(value)
        for row, evidence in enumerate(x):
            for variable in range(3):
                if evidence[variable].isnan():
                    p = joint.marginal(variable, evidence)
                    wanted = p[joint.points[variable] <= value].sum()
                else:
                    wanted = float(evidence[variable] <= value)
                # The oracle leaves out what a Poisson has beyond its states.
                close(found[row, variable], wanted, atol=1e-9)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_its_derivative_is_the_density(name: str):
    model, x = case(name)
    posterior, points = model.given(x), random_rows(model, 6, seed=5, missing=0.0)
    step = 1e-5 * points.abs().clamp(min=1e-3)
    rise = (posterior.cdf(points + step) - posterior.cdf(points - step)) / (2 * step)
    density = posterior.log_marginals(points).exp()
    missing = x.isnan()
    close(rise[missing], density[missing], rtol=1e-5, atol=1e-7)
    close(posterior.cdf(torch.full_like(x, -INF)), torch.zeros_like(x))
    close(posterior.cdf(torch.full_like(x, INF)), torch.ones_like(x))


def test_a_mixture_of_two_far_into_its_tails():
    posterior = gaussians().prior()
    for x in (-30.0, -1.0, 0.3, 4.0):
        close(posterior.cdf(x), [[by_hand(x)]], rtol=1e-9)


def test_what_is_asked():
    model = random_model(
        einet.random_trees(3, 1, 1), [einet.Gaussian(), einet.Categorical(3), einet.Poisson()], 2
    )
    evidence = torch.tensor([[NAN, NAN, 4.0], [0.5, 2.0, NAN]])
    posterior = model.given(evidence)
    row = torch.tensor([0.2, 1.0, 3.0])
    found = posterior.cdf(row)
    # Categories have no order, be they observed or not.
    assert found[:, 1].isnan().all()
    close(found[:, 0], [float(model.given(evidence[:1]).cdf(0.2)[0, 0]), 0.0])
    assert found[0, 2] == 0
    assert 0 < found[1, 2] < 1
    close(posterior.cdf(row.tolist()), found)
    close(posterior.cdf(row.expand(2, 3)), found)
    close(posterior.cdf(np.array([[0.2, 1.0, 3.0]])), found)
    hidden = posterior.cdf(torch.tensor([[NAN, 1.0, 3.0], [0.2, 1.0, NAN]]))
    assert hidden[0, 0].isnan()
    assert hidden[1, 2].isnan()
    whole = torch.tensor([[0, 1, 3], [0, 1, 3]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    masked = posterior.cdf(whole, mask)
    assert masked[0, 2].isnan()
    close(masked[1, 2], found[1, 2])
    with pytest.raises(ValueError, match="one row, or as many as the evidence, 2, got 3"):
        posterior.cdf(torch.zeros(3, 3))
    with pytest.raises(ValueError, match="observed is for rows"):
        posterior.cdf(1.0, torch.ones(2, 3, dtype=torch.bool))
    assert model.given(torch.empty(0, 3)).cdf(0.0).shape == (0, 3)


def test_impossible_evidence_is_refused():
    model = random_model(einet.random_trees(2, 1, 1), einet.Gamma(), 2)
    posterior = model.given(torch.tensor([[-1.0, NAN]]))
    for question in (lambda: posterior.cdf(1.0), posterior.median, posterior.interval):
        with pytest.raises(ValueError, match="probability 0"):
            question()


# -- quantiles -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NUMBERS)
def test_a_quantile_is_the_least_that_reaches_the_level(name: str):
    model, x = case(name, rows=4)
    posterior, missing = model.given(x), x.isnan()
    levels = [1e-4, 0.8]
    found = posterior.quantile(levels)
    assert found.shape == (2, 4, 3)
    assert found.isfinite().all()
    for level, quantiles in zip(levels, found, strict=True):
        close(quantiles[~missing], x[~missing])
        reached = posterior.cdf(quantiles)[missing]
        if name in CONTINUOUS:
            close(reached, level, rtol=1e-9)
        else:
            assert (quantiles == quantiles.round()).all()
            assert (reached >= level).all()
            assert (posterior.cdf(quantiles - 1)[missing] < level).all()


def test_one_level_medians_and_intervals():
    model, x = case("Gaussian")
    posterior = model.given(x)
    low, middle, high = posterior.quantile([0.05, 0.5, 0.95])
    close(posterior.quantile(0.95), high)
    close(posterior.median(), middle)
    close(posterior.interval(0.9).lower, low)
    close(posterior.interval().upper, high)


@pytest.mark.parametrize("name", ["Gaussian", "Poisson"])
def test_in_float32(name: str):
    model, x = case(name)
    missing, exact = x.isnan(), model.given(x).quantile([0.05, 0.8])
    found = model.float().given(x.float()).quantile([0.05, 0.8])
    assert found.dtype == torch.float32
    if name == "Poisson":
        assert torch.equal(found, exact.float())
    else:
        close(found[:, missing], exact[:, missing], rtol=1e-5, atol=1e-5)


@settings(max_examples=10)
@given(st.floats(1e-12, 1 - 1e-12))
def test_a_mixture_of_two(level: float):
    posterior = gaussians().prior()
    found = optimize.root_scalar(lambda x: by_hand(x) - level, bracket=(-40, 40), xtol=1e-13)
    wanted = float(found.root)
    # In the upper tail it is 1 − level whose digits count.
    slack = 1e-15 / (1 - level) + 1e-13 * abs(wanted) + 2e-13
    close(posterior.quantile(level), [[wanted]], atol=10 * slack)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("away", [0.0, 1e6])
def test_columns_of_any_scale(scale: float, away: float):
    data = scale * (away + torch.randn(40, 2, generator=torch.manual_seed(0)).double())
    model = einet.Einet(einet.random_trees(2, 1, 2), einet.Gaussian(), 4, dtype=torch.float64)
    model.initialize(data)
    posterior = model.given(torch.tensor([[NAN, NAN], [float(data[0, 0]), NAN]]).double())
    found = posterior.quantile([0.01, 0.5, 0.99])
    for level, quantiles in zip([0.01, 0.5, 0.99], found, strict=True):
        close(posterior.cdf(quantiles)[0], [level, level], rtol=1e-7)
        close(posterior.cdf(quantiles)[1, 1], level, rtol=1e-7)


def test_large_counts():
    model = random_model(einet.RegionGraph(1, [1], []), einet.Poisson(), 2)
    with torch.no_grad():
        model.leaf.leaf_blocks[0].stored.copy_(torch.tensor([3.0, 1e4]).view(2, 1, 1))
        model.circuit.sum_layers[0].weight.copy_(torch.tensor([[[0.5, 0.5]]]))
    assert model.prior().quantile(0.7).item() == stats.poisson.ppf(0.4, 1e4)


def test_categories_have_none():
    model = random_model(einet.random_trees(2, 1, 1), [einet.Categorical(3), einet.Gaussian()], 2)
    found = model.given(torch.tensor([[NAN, NAN], [2.0, NAN]]).double()).quantile(0.5)
    close(found[:, 0], [NAN, 2.0])
    assert found[:, 1].isfinite().all()


def test_a_mixture_with_a_component_that_explains_nothing():
    graph = einet.random_trees(2, 1, 1)
    parts = [random_model(graph, family, 2) for family in (einet.Gaussian(), einet.Gamma())]
    model = einet.Mixture(parts, [0.5, 0.5])
    evidence = torch.tensor([[-1.0, NAN], [1.0, NAN], [NAN, NAN]]).double()
    posterior = model.given(evidence)
    found = posterior.quantile([0.2, 0.9])
    for level, quantiles in zip((0.2, 0.9), found, strict=True):
        close(posterior.cdf(quantiles)[:, 1], [level] * 3)
    close(found[:, 0, 1], parts[0].given(evidence[:1]).quantile([0.2, 0.9])[:, 0, 1])


def test_components_of_different_kinds_are_refused():
    graph = einet.random_trees(2, 1, 1)
    parts = [random_model(graph, family, 2) for family in (einet.Gaussian(), einet.Poisson())]
    posterior = einet.Mixture(parts).given(torch.tensor([[1.0, NAN]]).double())
    with pytest.raises(ValueError, match="variable 1 is discrete in some components"):
        posterior.quantile(0.5)


def test_rows_in_pieces(monkeypatch: pytest.MonkeyPatch):
    model, x = case("Gaussian", rows=20)
    mixture = einet.Mixture([model, case("Gaussian")[0]], [0.5, 0.5])
    wanted = [part.given(x).quantile(0.3) for part in (model, mixture)]
    limit(monkeypatch, "values")
    for part, whole in zip((model, mixture), wanted, strict=True):
        close(part.given(x).quantile(0.3), whole)
        close(part.given(x).cdf(whole)[x.isnan()], 0.3)
    limit(monkeypatch, "block")
    monkeypatch.setattr("einet.kernels.memory._FEWEST_COLUMNS", 2)
    close(mixture.given(x).cdf(wanted[1])[x.isnan()], 0.3)
    assert len(list(Mixtures.pieces(model.given(x), torch.tensor([1])))) == 2


@pytest.mark.parametrize("q", [0.0, 1.0, -0.5, [0.2, 1.5], NAN, [[0.5]]])
def test_levels_that_are_none(q: object):
    with pytest.raises(ValueError, match="q must be a number between 0 and 1"):
        gaussians().prior().quantile(q)


@pytest.mark.parametrize("q", ["half", None, [0.1, "x"], {}])
def test_levels_that_are_no_numbers(q: object):
    with pytest.raises(TypeError, match="q must be a number between 0 and 1"):
        gaussians().prior().quantile(q)


def test_masses_that_are_none():
    for mass in (0.0, 1.0, 1.5):
        with pytest.raises(ValueError, match="mass must be"):
            gaussians().prior().interval(mass)
    assert gaussians().given(torch.empty(0, 1)).quantile([0.1, 0.2]).shape == (2, 0, 1)
