"""Log-concave densities between bounds, where the integrals are known."""

import math

import pytest
import torch
from torch import Tensor

from einet.families.log_concave import (
    Truncated,
    fall_of_exponential,
    fall_of_gaussian,
    log_mass_of_beta,
    log_mass_of_gamma,
)
from tests.budgets import limit

INF = math.inf


def wide(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_masses_and_moments_of_exponentials(monkeypatch: pytest.MonkeyPatch):
    length = wide(1e-9, 1.0, 1e3, INF)
    cells = Truncated(fall_of_exponential, (), torch.zeros(4).double(), length)
    expected = torch.log(-torch.expm1(-length))
    torch.testing.assert_close(cells.log_mass(), expected, rtol=1e-13, atol=1e-13)
    mean, variance = cells.moments(lambda s: s)
    torch.testing.assert_close(mean[0], length[0] / 2, rtol=1e-8, atol=0)
    torch.testing.assert_close(mean[2:], wide(1, 1))
    torch.testing.assert_close(variance[2:], wide(1, 1))
    limit(monkeypatch, "block")
    torch.testing.assert_close(cells.log_mass(), expected, rtol=1e-13, atol=1e-13)


def test_nothing_and_no_cells():
    zero = wide(0.0)
    cells = Truncated(fall_of_gaussian, (zero,), zero, zero)
    assert cells.log_mass().item() == -INF
    assert cells.draw().isnan().all()
    assert all(each.isnan().all() for each in cells.moments(lambda s, z: s))
    none = Truncated(fall_of_gaussian, (wide(),), wide(), wide())
    assert none.log_mass().shape == none.draw().shape == (0,)


def test_a_density_that_rises_behind_its_bound():
    # 50 deviations out, cut off towards the mean.
    cells = Truncated(fall_of_gaussian, (wide(50.0, 50.0),), wide(0, 0), wide(INF, 0.0))
    found = cells.log_mass()
    assert found[0].item() == pytest.approx(math.log(1 / 50), abs=1e-3)
    assert found[1].item() == -INF


@pytest.mark.parametrize("shape", [1e-9, 1e-4, 0.01, 0.5, 1.0, 30.0, 1e5, 1e8])
def test_all_of_a_density(shape: float):
    ends = wide(0.0), wide(INF)
    found = log_mass_of_gamma(wide(shape), wide(3.0), *ends)
    assert found.item() == pytest.approx(0, abs=1e-9)
    for other in (0.01, 1.0, 1e3):
        found = log_mass_of_beta(wide(shape), wide(other), wide(0.0), wide(1.0))
        assert found.item() == pytest.approx(0, abs=1e-9)
