"""Step sizes in the course of training."""

import math

import pytest

from einet import cosine, exponential, linear


@pytest.mark.parametrize("schedule", [linear, exponential, cosine])
@pytest.mark.parametrize(("start", "end"), [(0.5, 0.05), (0.1, 0.9), (0.3, 0.3)])
def test_from_start_to_end_without_turning_back(schedule, start: float, end: float) -> None:
    values = [schedule(start, end)(step / 20) for step in range(21)]
    assert values[0] == pytest.approx(start)
    assert values[-1] == pytest.approx(end)
    assert sorted(values, reverse=start > end) == pytest.approx(values)


def test_middle() -> None:
    assert linear(0.5, 0.1)(0.5) == pytest.approx(0.3)
    assert exponential(1.0, 0.01)(0.5) == pytest.approx(0.1)
    assert cosine(0.5, 0.1)(0.5) == pytest.approx(0.3)


@pytest.mark.parametrize("schedule", [linear, exponential, cosine])
@pytest.mark.parametrize("size", [0.0, -0.1, 1.5, math.nan, math.inf])
def test_step_sizes_are_checked_before_the_training(schedule, size):
    with pytest.raises(ValueError, match="start must be a number > 0 and <= 1, got"):
        schedule(size, 0.5)
    with pytest.raises(ValueError, match="end must be a number > 0 and <= 1, got"):
        schedule(0.5, size)
