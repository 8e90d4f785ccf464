"""Counts that are large: Binomial and Poisson."""

import math

import pytest
import torch

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
