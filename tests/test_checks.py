import decimal
import fractions
import math
from typing import Any

import numpy as np
import pytest
import torch

from einet._checks import (
    as_device,
    as_int,
    as_number,
    as_seed,
    as_smoothing,
    as_step_size,
    check_choice,
    check_flag,
    shown,
)


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


def test_numbers_within_bounds():
    for value in (1, np.float32(0.5), np.int8(1), fractions.Fraction(1, 2), 1.0):
        assert as_number("rate", value, above=0, at_most=1) == float(value)
    wrong: Any
    for wrong in (True, "1", None, 1j, [1.0], decimal.Decimal(1), torch.tensor(1.0)):
        with pytest.raises(TypeError, match="rate must be a number, got"):
            as_number("rate", wrong)
    for wrong in (math.nan, math.inf, 10**400):
        with pytest.raises(ValueError, match="rate must be a number, got"):
            as_number("rate", wrong)
    for wrong in (0, -1, 1.5):
        with pytest.raises(ValueError, match="rate must be a number > 0 and <= 1, got"):
            as_number("rate", wrong, above=0, at_most=1)
    with pytest.raises(ValueError, match="rate must be a number >= 2, got 1"):
        as_number("rate", 1, at_least=2)


def test_seeds():
    assert as_seed(np.uint8(3)) == 3
    assert as_seed(2**63 - 1) == 2**63 - 1
    for wrong in (-1, 2**63):
        with pytest.raises(ValueError, match="seed must be an integer"):
            as_seed(wrong)


def test_step_sizes():
    assert as_step_size(np.float64(0.5)) == 0.5
    size = torch.tensor(0.5, requires_grad=True)
    given = as_step_size(size)
    assert isinstance(given, torch.Tensor)
    assert not given.requires_grad
    with pytest.raises(ValueError, match=r"step_size must lie in \(0, 1\], got nan"):
        as_step_size(math.nan)
    with pytest.raises(TypeError, match=r"floating tensor of shape \[\], got torch.int64 of shape"):
        as_step_size(torch.tensor([1]))


@pytest.mark.gpu
def test_a_step_size_on_a_gpu_is_not_waited_for():
    size = torch.tensor(0.5, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        as_step_size(size)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_choices_and_flags():
    check_choice("sums", "b", ("a", "b", "c"))
    wrong: Any
    for wrong in ("d", None, ["a"], np.array(["a", "b"])):
        with pytest.raises(ValueError, match="sums must be one of 'a', 'b', 'c', got"):
            check_choice("sums", wrong, ("a", "b", "c"))
    check_flag("resume", True)
    for wrong in ("no", 0, None, np.True_):
        with pytest.raises(TypeError, match="resume must be True or False, got"):
            check_flag("resume", wrong)


def test_devices():
    assert as_device("cpu") == torch.device("cpu")
    wrong: Any
    for wrong in ("abacus", 2**64, 1.5, [], "cuda:9999"):
        with pytest.raises(ValueError, match="device must be one that torch has here"):
            as_device(wrong)


def test_what_is_shown_can_be_read():
    assert shown(3) == "3"
    assert shown(10**100_000) == "an int of many digits"
    assert len(shown("a" * 10_000)) < 210
