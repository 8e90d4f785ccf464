import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from einet.families import Bernoulli, Gaussian


def fit(x: torch.Tensor, family: Gaussian | None = None) -> tuple[Gaussian, torch.Tensor]:
    """Adapt to the data and take one full M-step."""
    family = (family or Gaussian()).adapt(x, torch.ones_like(x, dtype=torch.bool))
    return family, family.project(family.store(family.T(x).mean(0)))


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e8])
@pytest.mark.parametrize("deviation", [1e-2, 1.0, 1e6])
def test_variance_far_from_the_origin(offset: float, deviation: float):
    noise = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = offset + deviation * noise
    family, stored = fit(x)
    torch.testing.assert_close(family.mean(stored), x.mean(0), rtol=1e-12, atol=1e-9 * deviation)
    # torch's own variance loses digits here, unless the offset is taken off (exactly) before.
    variance = (x - offset).var(0, correction=0)
    torch.testing.assert_close(family.variance(stored), variance, rtol=1e-9, atol=0)
    # Nor does it hurt to keep the parameters in float32.
    small = stored.float().double()
    torch.testing.assert_close(family.variance(small), variance, rtol=1e-6, atol=0)
    torch.testing.assert_close(
        family.log_prob(x, small), family.log_prob(x, stored), atol=1e-3, rtol=0
    )


def test_default_bounds_are_relative_to_the_column():
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x * torch.tensor([1e-3, 1.0, 1e3])
    family, stored = fit(x, Gaussian(relative_floor=0.01))
    low = family.variance(family.project(stored * 0))
    torch.testing.assert_close(low, 0.01 * x.var(0, correction=0), rtol=1e-6, atol=0)
    assert family.project(stored * 1e9)[:, 1].isfinite().all()


def test_given_bounds_are_in_units_of_the_data():
    x = 100 * torch.randn(100, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    family, stored = fit(x, Gaussian(min_variance=[1e-6, 2e5], max_variance=[10.0, math.inf]))
    torch.testing.assert_close(family.variance(stored), torch.tensor([10.0, 2e5]).double())


def test_an_upper_bound_below_the_relative_floor_wins():
    family = Gaussian(max_variance=1e-6)
    stored = torch.tensor([0.0, 1.0])
    for bounded in (family.project(stored), family.constrain(stored)):
        torch.testing.assert_close(bounded, torch.tensor([0.0, 1e-6]))


@pytest.mark.parametrize("value", [0.0, 1.0, 1e4 + 1 / 3, -1e8, 1e-12])
def test_constant_columns_have_a_finite_density(value: float):
    x = torch.full((20, 1), value, dtype=torch.float64)
    family, stored = fit(x)
    assert family.scale > 0
    assert family.log_prob(x, stored).isfinite().all()
    assert family.log_prob(x + 1 + value, stored).isfinite().all()
    # The density is sharp, but not beyond what float32 data could tell apart.
    assert 0 < family.variance(stored).sqrt() < 1e-4 * max(abs(value), 1)


@pytest.mark.parametrize("deviation", [1e-6, 1e-3, 1.0])
def test_a_column_is_judged_by_its_deviation(deviation: float):
    noise = torch.randn(1000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = 1.7e9 + deviation * noise
    family, stored = fit(x)
    exact = (x - 1.7e9).std(correction=0)
    # The mean itself is rounded to a multiple of 2.4e-7.
    rtol = 1e-9 + (2.4e-7 / deviation) ** 2
    torch.testing.assert_close(family.scale, exact.expand(1), rtol=rtol, atol=0)
    torch.testing.assert_close(family.location, x.mean(0), rtol=1e-15, atol=0)
    torch.testing.assert_close(family.variance(stored).sqrt(), exact.expand(1), rtol=rtol, atol=0)


def test_what_a_type_cannot_tell_apart_is_constant():
    near = torch.tensor([[1.7e9], [1.7e9 + 128.0]], dtype=torch.float64)
    observed = torch.ones_like(near, dtype=torch.bool)
    assert Gaussian().adapt(near, observed).scale == 64
    assert Gaussian().adapt(near.float(), observed).scale == pytest.approx(1700)
    last = torch.tensor([[1.0], [1 + 2.0**-52]], dtype=torch.float64)
    assert Gaussian().adapt(last, observed).scale == pytest.approx(1e-3)
    assert Gaussian().adapt(1e-200 * near, observed).scale == 1e-140


def test_bounds_far_below_the_data_stay_numbers_in_float32():
    x = torch.tensor([[1e24], [-1e24], [3e24]], dtype=torch.float64)
    family, stored = fit(x, Gaussian(min_variance=1e-12))
    assert (family.project(0 * stored).float()[:, 1] > 0).all()


def test_huge_values_do_not_spoil_the_scale():
    x = torch.tensor([[1e300], [1.0], [-1e300]], dtype=torch.float64)
    family, stored = fit(x)
    assert family.scale.isfinite().all()
    assert not family.log_prob(x, stored).isnan().any()


def test_probabilities_of_intervals():
    family = Gaussian().adapt(torch.tensor([[2.0], [6.0]]).double(), torch.ones(2, 1).bool())
    stored = torch.tensor([[0.3, 0.5]]).double()
    reference = stats.norm(family.mean(stored).item(), family.variance(stored).sqrt().item())
    low = torch.tensor([-math.inf, -3.0, 0.0, 4.0, 4.5, 9.0, -math.inf]).double()
    high = torch.tensor([-3.0, 0.0, 4.0, 4.5, 9.0, math.inf, math.inf]).double()
    found = family.log_prob_between(low, high, stored.expand(7, 2))
    expected = torch.tensor(
        [reference.cdf(b) - reference.cdf(a) for a, b in zip(low, high, strict=True)]
    )
    torch.testing.assert_close(found.exp(), expected, rtol=1e-10, atol=1e-300)
    assert found[-1] == 0


def test_intervals_far_out_keep_their_digits():
    family, stored = Gaussian(), torch.tensor([[0.0, 1.0]]).double()
    for sign in (-1, 1):
        ends = sorted([sign * 40.0, sign * 41.0])
        low, high = (torch.tensor([end]).double() for end in ends)
        # Almost all of it lies beyond the nearer bound, where Φ is about φ(40)/40.
        expected = stats.norm.logsf(40.0)
        assert family.log_prob_between(low, high, stored).item() == pytest.approx(
            expected, rel=1e-12
        )
    wide = torch.tensor([[0.0, 1e24]]).double()
    bounds = torch.tensor([[0.0], [1.0]]).double()
    found = family.log_prob_between(bounds[0], bounds[1], wide)
    expected = family.log_prob(torch.tensor([0.5]).double(), wide)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)
    same = torch.tensor([1.0]).double()
    assert family.log_prob_between(same, same, stored).item() == -math.inf


@given(
    deviation=st.floats(1e-3, 1e3),
    distance=st.floats(-1e3, 1e3),
    width=st.floats(1e-2, 1e2),
    share=st.floats(0.1, 1.0),
)
def test_the_bound_of_an_interval(deviation: float, distance: float, width: float, share: float):
    family = Gaussian().with_hyperparameters(
        {"location": torch.tensor(3.0).double(), "scale": torch.tensor(7.0).double()}
    )
    stored = torch.tensor([-0.5, (deviation / 7) ** 2], dtype=torch.float64)
    middle = family.mean(stored) + distance
    half = width * share / 2
    exact = family.log_prob_between(middle - half, middle + half, stored)
    most = torch.tensor(width, dtype=torch.float64)
    theta, constant = family.interval_bound(most, stored)
    bound = theta @ family.T(middle) + constant
    assert bound >= exact - 1e-9 * exact.abs()
    if share == 1 and deviation > width and abs(distance) < 3 * deviation:
        assert bound <= exact + 0.1


def test_other_families_know_of_no_bound_but_one():
    theta, constant = Bernoulli().interval_bound(torch.ones(()).double(), torch.rand(4, 1))
    assert theta.shape == (4, 1)
    assert not theta.any()
    assert not constant.any()
