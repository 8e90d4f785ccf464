"""Saddle-point forms against many digits."""

import math

import mpmath
import pytest
import torch

from einet.families.deviance import deviance, stirling_error

mpmath.mp.dps = 60


@pytest.mark.parametrize("x", [1e-4, 0.3, 1.0, 14.999, 15.0, 1e3, 1e8, 2.0**32, 1e15])
def test_stirling_error(x: float):
    exact = mpmath.loggamma(mpmath.mpf(x) + 1) - (mpmath.mpf(x) + 0.5) * mpmath.log(x) + x
    exact = float(exact - mpmath.log(2 * mpmath.pi) / 2)
    found = stirling_error(torch.tensor(x, dtype=torch.float64)).item()
    assert found == pytest.approx(exact, rel=1e-13, abs=3e-14)


@pytest.mark.parametrize("x", [1e-4, 1.0, 7.0, 1e3, 1e9, 1e15])
@pytest.mark.parametrize("by", [0.0, 1e-15, 1e-9, 1e-3, 0.09, 0.2, 0.3, 0.9, 50.0, 1e9])
@pytest.mark.parametrize("up", [True, False])
def test_deviance(x: float, by: float, up: bool):
    mean = x * (1 + by) if up else x / (1 + by)
    exact = mpmath.mpf(x) * mpmath.log(mpmath.mpf(x) / mpmath.mpf(mean)) + mean - mpmath.mpf(x)
    found = deviance(*torch.tensor([x, mean], dtype=torch.float64)).item()
    assert found == pytest.approx(float(exact), rel=1e-13, abs=1e-300)
    first, second = torch.tensor([x, mean], dtype=torch.float64)
    ratio = torch.tensor(math.log(x) - math.log(mean), dtype=torch.float64)
    by_logarithm = deviance(first, second, ratio).item()
    assert by_logarithm == pytest.approx(float(exact), rel=1e-13, abs=1e-13 * x)
