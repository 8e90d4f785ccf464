import numpy as np
import pytest

from einet._checks import as_int, as_smoothing


def test_takes_integers_of_other_libraries():
    number = as_int("depth", np.int16(3), minimum=0)
    assert number == 3
    assert type(number) is int


@pytest.mark.parametrize("value", [True, 2.0, "2", None, [2]])
def test_other_types_are_named(value: object):
    with pytest.raises(TypeError, match="depth must be an integer >= 0, got"):
        as_int("depth", value, minimum=0)


def test_too_small_is_named():
    with pytest.raises(ValueError, match="replicas must be an integer >= 1, got 0"):
        as_int("replicas", 0, minimum=1)


@pytest.mark.parametrize("value", [True, "1", None])
def test_smoothing_is_a_number(value: object):
    with pytest.raises(TypeError, match="smoothing must be a number >= 0, got"):
        as_smoothing(value)


def test_whole_numbers_smooth_too():
    assert as_smoothing(2) == 2.0
