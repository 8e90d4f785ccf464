"""Sums that are counted from anywhere."""

from fractions import Fraction

import torch
from hypothesis import given
from hypothesis import strategies as st

from einet.families.centring import counted_from, moved, seen_from, variance_of

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


@given(
    mean=st.floats(-3, 3), variance=st.floats(0.01, 9), step_size=st.sampled_from([0.3, 1.0]),
    kind=st.sampled_from([torch.float32, torch.float64]),
)  # fmt: skip
def test_the_best_variance_for_the_mean_that_is_kept(mean, variance, step_size, kind):
    total = torch.tensor(3.0).double()
    sums = total * torch.tensor([mean, mean * mean + variance], dtype=torch.float64)
    origin = torch.tensor(1e3).double()
    before = torch.tensor([1e3 + 0.5, 2.0], dtype=kind)
    found = moved(before, total, sums, origin, step_size)
    # E[x − o] and E[(x − o)²] after the step.
    first = (1 - step_size) * 0.5 + step_size * mean
    second = (1 - step_size) * 2.25 + step_size * (mean * mean + variance)
    kept = torch.tensor(1e3 + first, dtype=torch.float64).to(kind).double()
    torch.testing.assert_close(found[0], kept, rtol=0, atol=1e-12 if kind.itemsize > 4 else 7e-5)
    away = found[0] - origin
    expected = second - 2 * away * first + away**2
    torch.testing.assert_close(found[1], expected, rtol=1e-9, atol=1e-12)
