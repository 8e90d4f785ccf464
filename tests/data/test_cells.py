"""Cells of numpy arrays as numbers."""

import datetime
import decimal
import fractions
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from einet.data.cells import as_numbers

NAN = math.nan
NUMBERS = st.sampled_from(
    [
        np.dtype(kind)
        for kind in ("?", "i1", "u1", "<i2", ">i4", "<i8", "u2", ">u4", "f2", ">f4", "f8")
    ]
)


@given(st.data(), NUMBERS)
def test_what_is_hidden_is_missing_and_nothing_else_changes(data, dtype):
    shape = data.draw(arrays.array_shapes(max_dims=2, max_side=4))
    array = data.draw(arrays.arrays(dtype, shape))
    mask = data.draw(arrays.arrays(bool, shape))
    before = array.copy()
    numbers, known = as_numbers(np.ma.array(array, mask=mask), "x", "an array")
    assert numbers.dtype.isnative
    if dtype.kind == "f":
        assert known is None
        expected = np.where(mask, np.nan, array.astype(dtype.newbyteorder("=")))
        np.testing.assert_array_equal(numbers, expected)
    else:
        assert np.array_equal(known if known is not None else np.ones(shape, bool), ~mask)
        assert np.array_equal(numbers[~mask], array[~mask])
        assert not numbers[mask].any()
    np.testing.assert_array_equal(array, before)
    plain, of_plain = as_numbers(array, "x", "an array")
    assert of_plain is None
    np.testing.assert_array_equal(plain, array)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1), st.lists(st.booleans(), min_size=1))
def test_unsigned_numbers_never_change_their_value(values, hidden):
    hidden = (hidden * len(values))[: len(values)]
    array = np.ma.array(np.array(values, dtype=np.uint64), mask=hidden)
    seen = [value for value, off in zip(values, hidden, strict=True) if not off]
    if seen and max(seen) >= 2**63:
        with pytest.raises(ValueError, match=f"x must hold whole numbers.*got {max(seen)}$"):
            as_numbers(array, "x", "an array")
    else:
        numbers, _ = as_numbers(array, "x", "an array")
        assert numbers[~np.array(hidden)].tolist() == seen


def objects(*cells):
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def test_numbers_of_all_kinds_as_objects():
    cells = objects(
        1, True, 2.5, np.float32(0.5), np.int8(-3), decimal.Decimal("0.25"),
        fractions.Fraction(3, 4), np.True_, None, pd.NA, NAN, np.ma.masked,
    )  # fmt: skip
    numbers, known = as_numbers(cells, "x", "an array")
    assert known is None
    expected = [1, 1, 2.5, 0.5, -3, 0.25, 0.75, 1, NAN, NAN, NAN, NAN]
    np.testing.assert_array_equal(numbers, expected)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("1.5", "objects, one of them of str; text must be given as numbers"),
        (b"1", "one of them of bytes; bytes must be given as numbers"),
        (datetime.date(2020, 1, 1), "one of them of date; dates must be given as numbers"),
        (pd.Timestamp("2020-01-01"), "one of them of Timestamp; dates must be given as numbers"),
        (np.datetime64("2020-01-01"), "one of them of datetime64; dates must be given as numbers"),
        (np.timedelta64(1, "s"), "one of them of timedelta64"),
        (pd.NaT, "one of them of NaTType; dates must be given as numbers"),
        (1j, "one of them of complex; real and imaginary parts"),
        ([1.0], "one of them of list"),
        (decimal.Decimal("sNaN"), "one of them sNaN"),
        (fractions.Fraction(10**400), "one of them 1000"),
    ],
)
def test_objects_that_are_no_numbers(cell, message):
    with pytest.raises(
        TypeError, match=f"x must be an array of numbers.*got an array of.*{message}"
    ):
        as_numbers(objects(1.0, cell, None), "x", "an array")
    hidden = np.ma.array(objects(1.0, cell), mask=[False, True])
    np.testing.assert_array_equal(as_numbers(hidden, "x", "an array")[0], [1, NAN])


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**400])
def test_integers_of_many_digits(value):
    with pytest.raises(ValueError, match="x must hold whole numbers between .*, got"):
        as_numbers(objects(1, value), "x", "an array")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array(["a"]), "<U1; text must be given as numbers"),
        (np.array([b"a"]), "S1; bytes"),
        (np.array([1j]), "complex128; real and imaginary"),
        (np.array(["2020"], dtype="datetime64[D]"), r"datetime64\[D\]; dates must"),
        (np.array([1], dtype="timedelta64[s]"), r"timedelta64\[s\]; durations must"),
        (np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]), "the fields of records"),
        (np.ma.array([(1,)], dtype=[("a", int)]), "the fields of records"),
        (np.ones(1, dtype=np.longdouble), "which torch does not know"),
    ],
)
def test_types_that_are_no_numbers(array, message):
    if array.dtype == np.float64:
        pytest.skip("long numbers are no longer here than others")
    with pytest.raises(TypeError, match=f"x must be an array of numbers.*{message}"):
        as_numbers(array, "x", "ndarray")
