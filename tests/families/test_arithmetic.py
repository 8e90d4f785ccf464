import math

import pytest
import torch

from einet.families.arithmetic import (
    from_interval,
    log_standard_gamma,
    softplus,
    to_interval,
    within,
)


def test_softplus_keeps_its_digits():
    x = torch.tensor([-800.0, -30.0, 0.0, 21.0, 30.0, 800.0], dtype=torch.float64)
    expected = [math.log1p(math.exp(-abs(v))) + max(v, 0.0) for v in x.tolist()]
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(softplus(x), expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("bounds", [(1e-4, math.inf), (1e-2, 1e5), (0.1, 0.9), (2.0, 2.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_intervals(bounds: tuple[float, float], dtype: torch.dtype):
    low, high = (torch.tensor(bound, dtype=torch.float64) for bound in bounds)
    raw = torch.linspace(-100, 100, 201, dtype=dtype).requires_grad_()
    value = to_interval(raw, low, high)
    assert (value >= low.to(dtype)).all()
    assert (value <= high.to(dtype)).all()
    assert (value.diff() >= 0).all()
    (gradient,) = torch.autograd.grad(value.sum(), raw)
    assert gradient.isfinite().all()
    again = to_interval(from_interval(value, low, high), low, high)
    torch.testing.assert_close(again, value, rtol=1e-5 if dtype == torch.float32 else 1e-10, atol=0)


def test_logarithms_of_gamma_variates():
    shape = torch.tensor([0.01, 1.0, 300.0], dtype=torch.float64).expand(20_000, 3)
    drawn = log_standard_gamma(shape, torch.Generator().manual_seed(0))
    error = drawn.std(0) / math.sqrt(20_000)
    assert ((drawn.mean(0) - torch.digamma(shape[0])).abs() < 4 * error).all()
    torch.testing.assert_close(drawn.var(0), torch.polygamma(1, shape[0]), rtol=0.1, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("largest", [1e30, 1.0, 2.0**32, 0.1])
def test_within_a_limit_that_the_type_cannot_hold(largest: float, dtype: torch.dtype) -> None:
    x = torch.tensor([-math.inf, -3 * largest, 0.5 * largest, largest, math.inf], dtype=dtype)
    found = within(x, largest).double()
    assert (found.abs() <= largest).all()
    torch.testing.assert_close(found[2].item(), 0.5 * largest, rtol=1e-7, atol=0)
    assert found[-1] >= largest * (1 - 1e-7)
