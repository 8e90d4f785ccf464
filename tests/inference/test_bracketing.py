"""Roots of monotone functions, to the last digit."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from einet.inference.bracketing import first_not_below, root_between


def within(x: torch.Tensor) -> torch.Tensor:
    return 2.0**-52 * x.abs().clamp(min=1e-300)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e3))
def test_a_root_is_found_to_the_last_digit(root: float, slope: float):
    ends = torch.tensor([-1e7, 1e7], dtype=torch.float64)
    tried = 0

    def function(x: torch.Tensor) -> torch.Tensor:
        nonlocal tried
        tried += 1
        return torch.tanh(slope * (x - root))

    lower, upper = ends[:1], ends[1:]
    found = root_between(function, lower, upper, function(lower), function(upper), within)
    assert abs(found.item() - root) <= 4 * 2.0**-52 * max(abs(root), 1e-300)
    assert tried < 200


def test_whole_numbers_and_many_cells():
    levels = torch.tensor([0.5, 3.0, 17.0, 99.5], dtype=torch.float64)
    lower, upper = torch.full_like(levels, -1.0), torch.full_like(levels, 120.0)
    found = root_between(
        lambda x: x.floor() - levels, lower, upper, lower - levels, upper - levels, within, True
    )
    assert found.tolist() == [1.0, 3.0, 17.0, 100.0]


def test_functions_that_do_not_work_are_told():
    lower, upper = torch.zeros(1).double(), torch.ones(1).double()
    ends = (lower, upper, lower - 1, upper)
    with pytest.raises(ArithmeticError, match="is NaN"):
        root_between(lambda x: torch.full_like(x, math.nan), *ends, within)
    with pytest.raises(ArithmeticError, match="no quantile to the last digit"):
        root_between(lambda x: torch.ones_like(x), *ends, lambda x: torch.full_like(x, -1.0))


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
def test_the_first_number_of_all(root: float):
    level = torch.full((3,), 0.5, dtype=torch.float64)
    below, reached = first_not_below(lambda x: (x >= root).double(), level)
    assert reached.tolist() == [root] * 3
    assert below.tolist() == [math.nextafter(root, -math.inf)] * 3
    below, reached = first_not_below(lambda x: (x >= root).double(), level, rounds=36)
    assert (below < root).all()
    assert (reached >= root).all()
    assert (reached - below <= 2.0**-20 * abs(root) + 1e-300).all()
    if abs(root) < 2**52:
        below, reached = first_not_below(lambda x: (x >= root).double(), level, whole=True)
        assert reached.tolist() == [math.ceil(root)] * 3
        assert (below < root).all()
