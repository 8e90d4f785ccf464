"""Counts that are large: Binomial and Poisson."""

import math

import pytest
import torch

import einet
from einet.families import Bernoulli, Binomial, Poisson


@pytest.mark.parametrize("rate", [1e6, 1e8, 1e9, 4e9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_rates_are_drawn(rate: float, dtype: torch.dtype):
    x = Poisson().sample(torch.full((2000, 1), rate, dtype=dtype), torch.Generator().manual_seed(0))
    assert (x == x.round()).all()
    z = (x.double() - rate) / math.sqrt(rate)
    if dtype == torch.float64:
        assert abs(z.mean()) < 5 / math.sqrt(2000)
        assert abs(z.std() - 1) < 0.1
    else:
        assert ((x / rate - 1).abs() < 6 / math.sqrt(rate) + 1e-6).all()


def test_small_rates_are_drawn_as_torch_draws_them():
    rate = torch.logspace(-3, 6, 1000, dtype=torch.float64)
    ours = Poisson().sample(rate.unsqueeze(-1), torch.Generator().manual_seed(0))
    assert torch.equal(ours, torch.poisson(rate, generator=torch.Generator().manual_seed(0)))


def test_floors_finer_than_float32_keep_theta_finite():
    for family in (Bernoulli(1e-12), Binomial(255, 1e-12)):
        stored = family.project(torch.tensor([[0.0], [1.0]]))
        assert family.theta_of(stored).isfinite().all()
        assert not family.log_prob(torch.tensor([0.0, 1.0]), stored).isnan().any()


def test_one_trial_is_a_bernoulli():
    stored, x = torch.tensor([[0.3], [0.8]]), torch.tensor([[0.0], [1.0]])
    torch.testing.assert_close(Binomial(1).log_prob(x, stored), Bernoulli().log_prob(x, stored))


def moments_of(drawn: torch.Tensor, mean: float, variance: float) -> None:
    """Raise unless mean and variance of some draws are right up to five deviations of theirs."""
    size = len(drawn)
    z = (drawn.double() - mean) / math.sqrt(variance)
    assert abs(z.mean()) < 5 / math.sqrt(size)
    # The fourth moment of counts with a small mean is larger than a Gaussian's.
    kurtosis = 3 + 1 / variance
    assert abs(z.square().mean() - 1) < 5 * math.sqrt((kurtosis - 1) / size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1000, 2**24 + 1, 10**8, 10**9, 2**32 - 1, 2**32])
@pytest.mark.parametrize("p", [0.5, 0.001, 0.75])
def test_draws_of_many_trials(n: int, p: float, dtype: torch.dtype):
    family = Binomial(n)
    stored = torch.full((20_000, 1), p, dtype=dtype)
    x = family.sample(stored, torch.Generator().manual_seed(0))
    assert x.dtype == dtype
    assert (family.log_h(x.double()) > -math.inf).all()
    p = stored[0].item()
    moments_of(x, n * p, n * p * (1 - p))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rate", [0.25, 1e3, 2.0**24, 1e8, 4e9])
def test_draws_of_large_rates(rate: float, dtype: torch.dtype):
    stored = torch.full((20_000, 1), rate, dtype=dtype)
    x = Poisson().sample(stored, torch.Generator().manual_seed(0))
    assert x.dtype == dtype
    assert (Poisson().log_h(x.double()) > -math.inf).all()
    moments_of(x, stored[0].item(), stored[0].item())


def test_draws_stay_within_the_support_when_they_are_rounded():
    n = 2**32 - 1
    stored = torch.full((50, 1), 1 - 1e-6)
    x = Binomial(n).sample(stored, torch.Generator().manual_seed(0))
    assert (x.double() <= n).all()
    most = Poisson().sample(torch.full((500, 1), 2.0**32), torch.Generator().manual_seed(0))
    assert most.max() == 2.0**32


@pytest.mark.parametrize("family", [einet.Binomial(100_000_000, 1e-12), einet.Bernoulli(1e-12)])
def test_no_probability_is_rounded_to_one(family: einet.ExponentialFamily) -> None:
    """In float32 nothing lies between 1 - 6e-8 and 1, which would be certainty."""
    model = einet.Einet(einet.random_trees(2, 1, 1), family, 2, dtype=torch.float32)
    x = torch.full((5, 2), float((family.num_states or 2) - 1))
    model.initialize(x)
    for _ in range(3):
        model.em_step(x)
        stored = model.leaf.leaf_blocks[0].stored
        assert (stored < 1).all()
    with einet.unconstrained(model):
        assert (model.leaf.leaf_blocks[0].stored < 1).all()
    assert model.log_prob(torch.zeros(1, 2)).isfinite().all()
