import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch

import einet
from einet.families.hyper import as_hyper, check_lengths, check_limits, check_order


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.array(3), torch.tensor(3)])
def test_one_number(value):
    tensor = as_hyper("n", value)
    assert tensor.dtype == torch.float64
    assert tensor.shape == ()
    assert tensor == 3


@pytest.mark.parametrize("value", [[1, 2], (1.0, 2), np.array([1, 2]), torch.tensor([1.0, 2.0])])
def test_one_number_a_variable(value):
    assert torch.equal(as_hyper("n", value), torch.tensor([1.0, 2.0], dtype=torch.float64))


def test_the_tensor_is_a_copy():
    given = torch.ones(2, dtype=torch.float64, requires_grad=True)
    tensor = as_hyper("n", given)
    assert not tensor.requires_grad
    tensor += 1
    assert given.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("value", "rules", "message"),
    [
        (None, {}, "n is required"),
        (math.nan, {}, "n must be not NaN, got nan"),
        ([1, 0], {"above": 0}, "n must be greater than 0, got 0"),
        (0.5, {"at_least": 1}, "n must be at least 1, got 0.5"),
        (0.5, {"below": 0.5}, "n must be less than 0.5, got 0.5"),
        (0.5, {"integer": True}, "n must be a whole number, got 0.5"),
        (math.inf, {"integer": True}, "n must be a whole number, got inf"),
        (
            torch.ones(1, 1),
            {},
            r"n must be one number or one number a variable, got shape \(1, 1\)",
        ),
        ([], {}, "n must be one number or one number a variable"),
    ],
)
def test_mistakes_are_named(value, rules, message):
    with pytest.raises(ValueError, match=message):
        as_hyper("n", value, **rules)


def test_lengths_and_order_are_named():
    two, three = torch.ones(2), torch.ones(3)
    with pytest.raises(ValueError, match="a, c must be of one length, got 2 for a and 3 for c"):
        check_lengths(a=two, b=torch.ones(()), c=three)
    with pytest.raises(ValueError, match="high must not be below low, got high=1 and low=2"):
        check_order("low", torch.tensor([0.0, 2.0]), "high", torch.ones(()))
    check_order("low", torch.tensor(math.nan), "high", two)


def test_limits_of_what_a_file_says():
    limits = {"n": {"at_least": 1, "integer": True}, "least": {"above": 0, "absent": math.nan}}
    good = {"n": torch.tensor([1.0, 3.0]), "least": torch.tensor([math.nan, 0.5])}
    check_limits(good, limits)
    check_limits({**good, "least": torch.full((2,), math.nan)}, limits)
    # As by the constructor, but where NaN stands for an argument that was not given.
    for name, value, message in (
        ("n", math.nan, "n must be not NaN"),
        ("n", 1.5, "n must be a whole number, got 1.5"),
        ("least", 0.0, "least must be greater than 0, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            check_limits({**good, name: torch.tensor([1.0, value])}, limits)


def test_numbers_keep_their_digits():
    for value in (1e-50, 1e-4, 2.0**32 - 1, 1 / 3):
        assert as_hyper("n", value).item() == value
        assert as_hyper("n", [value]).tolist() == [value]


@pytest.mark.parametrize(
    "value",
    [
        True,
        [1.0, True],
        "1",
        b"1",
        1j,
        10**400,
        [[1.0], "a"],
        np.array([True]),
        np.array(["1"]),
        np.array(["2020"], dtype="datetime64[Y]"),
        np.ma.array([1.0, 2.0], mask=[False, True]),
        torch.tensor(True),
        torch.tensor(1j),
        torch.eye(2).to_sparse(),
        {"a": 1},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_torch_would_make_another_number_of(value: Any) -> None:
    with pytest.raises(TypeError, match="rate must be a number or a sequence of numbers, got"):
        inspect.unwrap(as_hyper)("rate", value)


def test_bounds_must_be_finite() -> None:
    for make in (
        lambda: einet.Gaussian(min_variance=math.inf),
        lambda: einet.Gaussian(relative_floor=math.inf),
        lambda: einet.Exponential(min_mean=math.inf),
        lambda: einet.Beta(min_concentration=math.inf),
        lambda: einet.Gamma(min_shape=math.inf),
        lambda: einet.Categorical(2**31, min_probability=1e-12),
    ):
        with pytest.raises(ValueError, match="must be less than"):
            make()
