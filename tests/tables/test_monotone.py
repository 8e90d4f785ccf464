"""Maps to a normal scale: they ascend, have an inverse and the slope that they say."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from einet.tables.monotone import MonotoneMap


def values_of(seed: int, rows: int) -> np.ndarray:
    """Skewed, heavy-tailed, clustered or repeating numbers above 0."""
    generator = np.random.default_rng(seed)
    kind = seed % 4
    if kind == 0:
        return generator.lognormal(0.0, 2.0, rows)
    if kind == 1:
        return np.abs(generator.standard_t(2, rows)) + 1e-3
    if kind == 2:
        return np.concatenate([generator.normal(5, 0.1, rows), generator.normal(50, 1, rows)])
    return np.round(generator.gamma(2.0, 3.0, rows), 1) + 0.1


@given(st.integers(0, 1000), st.integers(1, 400), st.booleans(), st.booleans())
def test_the_inverse_and_the_slope_are_those_of_the_map(
    seed: int, rows: int, has_lower: bool, has_upper: bool
):
    values = values_of(seed, rows)
    lower = 0.0 if has_lower else -math.inf
    upper = values.max() * 1.5 if has_upper else math.inf
    scale = MonotoneMap.fit(values, lower, upper)
    x = np.concatenate([values, scale.inverse(np.linspace(-3, 3, 101))])
    z = scale.forward(x)
    span = x.max() - x.min() + abs(x).max()
    assert np.allclose(scale.inverse(z), x, rtol=1e-8, atol=1e-9 * span)
    assert bool((np.diff(scale.forward(np.sort(x))) >= 0).all())
    # An even number of points, none of which is a knot.
    z = np.linspace(-2.5, 2.5, 40)
    x, h = scale.inverse(z), 1e-6
    numeric = 2 * h / (scale.inverse(z + h) - scale.inverse(z - h))
    # At a knot the slope is continuous, but its own slope is not.
    assert np.allclose(scale.log_slope(x), np.log(numeric), atol=1e-3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("lower", "upper"), [(-math.inf, math.inf), (0.0, math.inf), (0.0, 200.0)])
def test_densities_integrate_to_one_after_the_change_of_variables(
    seed: int, lower: float, upper: float
):
    values = np.minimum(values_of(seed, 300), 190.0)
    scale = MonotoneMap.fit(values, lower, upper)

    # Gauss' rule in each of many pieces, between which the density has no kinks of its own.
    points, weights = np.polynomial.legendre.leggauss(10)
    ends = np.unique(np.concatenate([scale.inverse(np.linspace(-9.0, 9.0, 721)), scale.x]))
    half = np.diff(ends)[:, None] / 2
    x = ends[:-1, None] + half * (points + 1)
    density = norm.pdf(scale.forward(x.ravel())) * np.exp(scale.log_slope(x.ravel()))
    total = (density.reshape(x.shape) * half * weights).sum()
    assert total == pytest.approx(1, abs=1e-6)


def test_the_scale_is_normal_where_the_data_are_many():
    values = np.random.default_rng(0).gamma(0.5, 3.0, 20_000)
    z = MonotoneMap.fit(values, lower=0.0).forward(values)
    shares = np.quantile(z, norm.cdf([-2, -1, 0, 1, 2]))
    assert np.allclose(shares, [-2, -1, 0, 1, 2], atol=0.1)


def test_nothing_decodes_beyond_a_bound_and_far_numbers_stay_in_reach():
    values = np.random.default_rng(0).uniform(2, 3, 100)
    scale = MonotoneMap.fit(values, 1.0, 4.0)
    x = scale.inverse(np.array([-1e9, -50.0, 50.0, 1e9]))
    assert x.min() >= 1.0
    assert x.max() <= 4.0
    far = MonotoneMap.fit(values).forward(np.array([-1e9, 1e9, 1e300]))
    assert np.isfinite(far).all()
    assert abs(far).max() < 1e4


@pytest.mark.parametrize("value", [0.0, 5.0, -1e150, 1e-300])
def test_values_that_do_not_differ(value: float):
    scale = MonotoneMap.fit(np.full(7, value))
    assert scale.forward(np.array([value]))[0] == pytest.approx(0, abs=1e-6)


def test_a_map_comes_back_from_plain_values():
    scale = MonotoneMap.fit(values_of(0, 100), 0.0)
    again = MonotoneMap.from_dict(scale.to_dict())
    x = np.linspace(0.1, 99, 50)
    assert np.array_equal(again.forward(x), scale.forward(x))
    with pytest.raises(ValueError, match="ascend"):
        MonotoneMap.from_dict({**scale.to_dict(), "x": scale.x[::-1].tolist()})
    with pytest.raises(ValueError, match="slopes"):
        MonotoneMap.from_dict({**scale.to_dict(), "slopes": (-scale.slopes).tolist()})
    with pytest.raises(ValueError, match="enclose"):
        MonotoneMap.from_dict({**scale.to_dict(), "lower": 1e9})


def test_pickles_hold_the_map_alone():
    scale = MonotoneMap.fit(np.random.default_rng(0).gamma(2.0, size=200), lower=0.0)
    assert set(scale.__getstate__()) == {"x", "z", "slopes", "lower", "upper"}
    again = pickle.loads(pickle.dumps(scale))
    x = np.array([0.1, 1.0, 30.0, np.nan])
    np.testing.assert_array_equal(again.forward(x), scale.forward(x))
    np.testing.assert_array_equal(again.log_slope(x), scale.log_slope(x))
