"""Labels and weights: what they may be, and what is said of anything else."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from einet.data.beside import as_labels, as_weights

NAN = math.nan


def test_labels():
    for labels in ([0, 2, -1], np.array([0, 2, -1]), torch.tensor([0.0, 2.0, -1.0])):
        found = as_labels(labels, 3, 3)
        assert found.tolist() == [0, 2, -1]
        assert found.dtype == torch.int64
    assert as_labels(np.empty(0), 0, 3).tolist() == []
    assert as_labels(np.array([0, 1], dtype=np.uint8), 2, 2).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("labels", "kind", "message"),
    [
        ([0, 1], ValueError, r"labels must have shape \[3\], got \[2\]"),
        ([[0], [1], [2]], ValueError, r"labels must have shape \[3\], got \[3, 1\]"),
        ([0, 1, 3], ValueError, "labels must lie between 0 and 2.*got 0 to 3"),
        ([0, 1, -2], ValueError, "labels must lie between 0 and 2"),
        ([0, 0.5, 1], ValueError, "labels must be whole numbers"),
        ([0, 1e300, 1], ValueError, "labels must lie between 0 and 2"),
        ([0, math.inf, 1], ValueError, "labels must"),
        (["a", "b", "c"], TypeError, "labels must be an array of numbers"),
    ],
)
def test_bad_labels_are_named(labels, kind, message):
    with pytest.raises(kind, match=message):
        as_labels(labels, 3, 3)


def test_weights():
    assert as_weights([1, 0, 2.5], 3).tolist() == [1, 0, 2.5]
    for bad in ([1, -1, 1], [1, NAN, 1], [1, math.inf, 1]):
        with pytest.raises(ValueError, match="weights must be finite and not negative"):
            as_weights(bad, 3)
    with pytest.raises(ValueError, match=r"weights must have shape \[3\], got \[1\]"):
        as_weights([1.0], 3)


@pytest.mark.parametrize(
    "labels",
    [
        [2, None, 0],
        [2, NAN, 0],
        np.ma.array([2, 1, 0], mask=[False, True, False]),
        np.ma.array([2.0, 0.5, 0.0], mask=[False, True, False]),
        torch.tensor([2.0, NAN, 0.0]),
        pd.Series([2, None, 0], dtype="Int64"),
        pd.Series([2, None, 0], dtype="int8[pyarrow]"),
        pd.array([2, None, 0], dtype="UInt64"),
        pa.array([2, None, 0]),
        pa.chunked_array([[2, None], [0]]),
    ],
    ids=lambda labels: type(labels).__name__,
)
def test_a_missing_label_is_unknown(labels):
    assert as_labels(labels, 3, 3).tolist() == [2, -1, 0]


@pytest.mark.parametrize(
    "weights",
    [
        np.ma.array([2, 1, 0], mask=[False, True, False]),
        np.ma.array([2.0, 0.5, 0.0], mask=[False, True, False]),
        pd.Series([2, None, 0], dtype="Int64"),
        pa.array([2, None, 0]),
        [2, None, 0],
    ],
    ids=lambda weights: type(weights).__name__,
)
def test_a_missing_weight_is_refused(weights):
    with pytest.raises(ValueError, match="^weights must be"):
        as_weights(weights, 3)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1e308, 1e308], r"weights must add up to at most 2\*\*53.*got inf"),
        ([1e17, 0.0], r"weights must add up to at most 2\*\*53.*got 1e\+17"),
        (
            np.array([2**64 - 1, 0], dtype=np.uint64),
            "weights must hold whole numbers.*got 18446744073709551615",
        ),
        ([1e-300, 1e-320], "weights must be at least 1e-12 somewhere"),
        (["1", "2"], "weights must be an array of numbers"),
        (np.array(["2020-01-01", "NaT"], dtype="datetime64[s]"), "dates must be given as numbers"),
    ],
)
def test_weights_that_would_overflow_or_vanish(weights, message):
    with pytest.raises((TypeError, ValueError), match=message):
        as_weights(weights, 2)


def test_weights_of_any_scale_within_reason():
    for weights in ([2.0**53, 0.0], [1e-9, 1e-300], [0.0, 0.0], [True, False]):
        assert as_weights(weights, 2).tolist() == weights
