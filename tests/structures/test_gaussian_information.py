"""Information of normal variables against numpy, one pair at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from einet.data.batch import as_batch
from einet.structures import gaussian_information
from tests.budgets import limit


def by_definition(
    x: np.ndarray, known: np.ndarray, weights: np.ndarray, smoothing: float
) -> np.ndarray:
    """−½ log(1 − ρ²), pair by pair."""
    variables = x.shape[1]
    result = np.zeros((variables, variables))
    variance = np.zeros(variables)
    for v in range(variables):
        rows = known[:, v] & (weights > 0)
        if rows.any():
            mean = np.average(x[rows, v], weights=weights[rows])
            variance[v] = np.average((x[rows, v] - mean) ** 2, weights=weights[rows])
    for u in range(variables):
        for v in set(range(variables)) - {u}:
            rows = known[:, u] & known[:, v] & (weights > 0)
            if not rows.any():
                continue
            w = weights[rows]
            a, b = (x[rows, c] - np.average(x[rows, c], weights=w) for c in (u, v))
            bound = (w @ a**2 + smoothing * variance[u]) * (w @ b**2 + smoothing * variance[v])
            if bound > 1e-20:
                result[u, v] = -0.5 * np.log1p(-min((w @ (a * b)) ** 2 / bound, 1 - 1e-12))
    return result


@given(
    st.integers(1, 12), st.integers(1, 6), st.integers(0, 2**31),
    st.sampled_from([0.0, 0.3, 5.0]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_agrees_with_the_definition(
    rows: int, variables: int, seed: int, smoothing: float, holes: bool, weigh: bool
):
    generator = np.random.default_rng(seed)
    # Of whole numbers, so that what does not vary in the rows of a pair is exactly so.
    x = generator.integers(-3, 4, (rows, 1)) + generator.integers(-2, 3, (rows, variables))
    x[:, generator.random(variables) < 0.2] = 7
    known = generator.random(x.shape) < (0.6 if holes else 1.1)
    weights = generator.integers(0, 3, rows).astype(float) if weigh else np.ones(rows)
    # Rows of which none counts are refused.
    weights[0] = max(weights[0], 1.0)
    expected = by_definition(x, known, weights, smoothing)
    options = {"weights": weights if weigh else None, "smoothing": smoothing}
    found = gaussian_information(x, known, **options)
    # Where one variable determines the other, what is left of 1 − ρ² is rounding.
    clear = expected < 10
    np.testing.assert_allclose(found.numpy()[clear], expected[clear], atol=1e-9)
    assert bool((found.numpy()[~clear] > 10).all())
    assert torch.equal(found, found.T)
    assert not bool(found.diagonal().any())
    gaps = np.where(known, x, np.nan)
    torch.testing.assert_close(gaussian_information(gaps, **options), found)
    batch = as_batch(x, variables, known, weights=options["weights"])
    assert torch.equal(gaussian_information(batch, smoothing=smoothing), found)


def test_is_that_of_normal_variables():
    covariance = np.array([[2.0, 1.2, 0.0], [1.2, 1.0, -0.3], [0.0, -0.3, 0.5]])
    generator = np.random.default_rng(0)
    x = generator.multivariate_normal([1.0, -2.0, 0.0], covariance, size=200_000)
    d = np.diag(covariance)
    exact = 0.5 * np.log(np.outer(d, d) / (np.outer(d, d) - covariance**2 * (1 - np.eye(3))))
    np.testing.assert_allclose(gaussian_information(x).numpy(), exact, atol=3e-3)


def test_does_not_depend_on_location_and_scale():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(50, 1)) + generator.normal(size=(50, 4))
    found = gaussian_information(x)
    moved = x * [1.0, -1e-9, 1e6, 3.0] + [1e3, 0.0, -1e9, 5.0]
    torch.testing.assert_close(gaussian_information(moved), found, rtol=1e-5, atol=1e-8)


def test_what_does_not_vary_tells_nothing():
    x = np.full((40, 3), 0.1)
    x[:, 1] = np.random.default_rng(0).normal(size=40)
    for smoothing in (0.0, 1.0):
        assert not bool(gaussian_information(x, smoothing=smoothing).any())
    assert not bool(gaussian_information(np.full((4, 2), np.nan)).any())


def test_blocks_of_rows_add_up(monkeypatch: pytest.MonkeyPatch):
    x = np.random.default_rng(0).normal(size=(103, 5)).cumsum(1)
    gaps = np.where(np.random.default_rng(1).random(x.shape) < 0.2, np.nan, x)
    whole = [gaussian_information(each) for each in (x, gaps)]
    limit(monkeypatch, "information", 400)
    for each, expected in zip((x, gaps), whole, strict=True):
        torch.testing.assert_close(gaussian_information(each), expected)


def test_bytes_are_numbers():
    x = torch.randint(256, (100, 6), generator=torch.manual_seed(0), dtype=torch.uint8)
    assert torch.equal(gaussian_information(x), gaussian_information(x.double()))


@pytest.mark.parametrize("bad", [-1.0, float("inf"), float("nan")])
def test_smoothing_is_checked(bad: float):
    with pytest.raises(ValueError, match="smoothing must be a number >= 0, got"):
        gaussian_information([[1.0, 2.0]], smoothing=bad)


def test_data_are_checked():
    with pytest.raises(ValueError, match=r"data must have shape \[rows, variables\], got \[3\]"):
        gaussian_information([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="data must have at least one row"):
        gaussian_information(np.zeros((0, 3)))
