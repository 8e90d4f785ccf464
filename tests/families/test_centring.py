"""Sums that are counted from anywhere."""

from fractions import Fraction

import torch
from hypothesis import given
from hypothesis import strategies as st

from einet.families.centring import counted_from, refitted, seen_from, variance_of

numbers = st.floats(-1e6, 1e6)


@given(values=st.lists(numbers, min_size=1, max_size=6), first=numbers, second=numbers)
def test_sums_from_another_origin(values: list[float], first: float, second: float):
    def sums(origin: float) -> torch.Tensor:
        exact = [Fraction(value) - Fraction(origin) for value in values]
        numbers = [float(sum(exact)), float(sum(e * e for e in exact))]
        return torch.tensor(numbers, dtype=torch.float64)

    total = torch.tensor(float(len(values)), dtype=torch.float64)
    moved = torch.tensor(second, dtype=torch.float64) - first
    found = counted_from(total, sums(first), moved)
    torch.testing.assert_close(found, sums(second), rtol=1e-9, atol=1e-1)
    back = counted_from(total, found, -moved)
    torch.testing.assert_close(back, sums(first), rtol=1e-9, atol=1e-1)


def test_parameters_come_back():
    stored = torch.tensor([[1.5, 2.0], [-3.0, 1e-9]], dtype=torch.float64)
    origin = torch.tensor([1.7e9, -0.25], dtype=torch.float64)
    assert torch.equal(seen_from(seen_from(stored, origin), -origin)[:, 1], stored[:, 1])
    assert torch.equal(seen_from(seen_from(stored, origin)[1], -origin[1]), stored[1])


@given(mean=st.floats(-1e12, 1e12), deviation=st.floats(1e-6, 1e6))
def test_variances_are_never_lost(mean: float, deviation: float):
    phi = torch.tensor([mean, mean * mean + deviation * deviation], dtype=torch.float64)
    found = variance_of(phi).item()
    assert found > 0
    assert abs(found - deviation**2) <= 1.1e-14 * phi[1].item()


@given(mean=st.floats(-3, 3), rounded=st.floats(-3, 3), variance=st.floats(0.01, 9))
def test_the_best_variance_for_a_mean_that_was_rounded(mean, rounded, variance):
    phi = torch.tensor([mean, mean * mean + variance], dtype=torch.float64)
    given = torch.tensor([rounded + 5, variance], dtype=torch.float64)
    found = refitted(given, phi, torch.tensor(5.0).double())
    expected = phi[1] - 2 * rounded * phi[0] + rounded**2
    torch.testing.assert_close(found[1], expected, rtol=1e-9, atol=1e-12)
    assert found[0] == given[0]
