"""Families between two bounds: probabilities, moments, draws and modes, in far tails too."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from einet.families import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Exponential,
    ExponentialFamily,
    Gamma,
    Gaussian,
    Poisson,
)
from tests.families.cases import CASES, Case
from tests.families.negative_binomial import NegativeBinomial

INF = math.inf
OURS = [case for case in CASES if not isinstance(case.family, NegativeBinomial)]
every_case = pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def wide(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def to_chart(case: Case, x: np.ndarray) -> np.ndarray:
    if case.chart == "log":
        return np.log(x)
    return np.log(x) - np.log1p(-x) if case.chart == "logit" else x


def from_chart(case: Case, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if case.chart == "log":
        return np.exp(t), np.exp(t)
    if case.chart == "logit":
        x = 1 / (1 + np.exp(-t))
        return x, x / (1 + np.exp(t))
    return t, np.ones_like(t)


def points_between(case: Case, row: int, low: float, high: float) -> tuple[Tensor, np.ndarray]:
    """States, or points of a fine rule, from low to high with the logs of their masses."""
    if case.chart is None:
        x, log_weights = np.arange(max(0, math.ceil(low)), math.floor(high) + 1.0), 0.0
    else:
        first, last = to_chart(case, np.array([low, high]))
        ends = np.linspace(first, last, 61)
        half = np.diff(ends)[:, None] / 2
        t = (ends[:-1, None] + half * (1 + _POINTS)).ravel()
        x, slope = from_chart(case, t)
        log_weights = np.log((half * _WEIGHTS).ravel()) + np.log(slope)
    values = torch.from_numpy(x)
    logs = case.family.log_prob(values.unsqueeze(-1), case.parameters[row : row + 1])[:, 0]
    return values, logs.numpy() + log_weights


def cuts(case: Case, row: int) -> list[float]:
    """Bounds all over the support of one member, in ascending order."""
    reference = case.references[row]
    shares = [1e-9, 0.01, 0.3, 0.32, 0.9]
    places = [float(reference.ppf(q)) for q in shares] + [float(reference.isf(1e-9))]
    if case.chart == "log":
        places = [max(place, 1e-290) for place in places]
    if case.chart == "logit":
        places = [min(max(place, 1e-290), 1 - 1e-13) for place in places]
    return sorted(set(places))


@every_case
def test_probabilities_and_moments_are_sums_over_the_interval(case: Case):
    for row in range(len(case.stored)):
        places = cuts(case, row)
        for low, high in [*itertools.pairwise(places), (places[0], places[-1])]:
            if high - low < 1e-12 * abs(high):
                continue
            x, logs = points_between(case, row, low, high)
            expected = np.logaddexp.reduce(logs)
            bounds = (wide(low), wide(high), case.parameters[row : row + 1])
            found = case.family.log_prob_between(*bounds)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
            mean, variance = case.family.moments_between(*bounds)
            if not len(logs) or case.family.mean(case.parameters[row]).isnan():
                assert mean.isnan().all()
                assert variance.isnan().all()
                continue
            share = np.exp(logs - expected)
            middle = (share * x.numpy()).sum()
            spread = (share * (x.numpy() - middle) ** 2).sum()
            np.testing.assert_allclose(mean, middle, rtol=1e-8, atol=1e-12 * (high - low))
            scale = 1e-15 * max(abs(low), abs(high)) ** 2
            np.testing.assert_allclose(variance, spread, rtol=1e-6, atol=scale)


@every_case
def test_neighbouring_intervals_add_up_to_one(case: Case):
    for row in range(len(case.stored)):
        places = np.array([-INF, *cuts(case, row), INF])
        lower, upper = torch.from_numpy(places[:-1]), torch.from_numpy(places[1:])
        if case.family.discrete:
            # Both ends belong to an interval: the next one begins behind.
            lower = torch.from_numpy(np.nextafter(places[:-1], INF))
        logs = case.family.log_prob_between(lower, upper, case.parameters[row])
        assert logs.exp().sum().item() == pytest.approx(1, abs=1e-11)
        all_of_it = case.family.log_prob_between(wide(-INF), wide(INF), case.parameters[row])
        assert all_of_it.item() == pytest.approx(0, abs=1e-11)


@every_case
def test_draws_are_spread_as_they_should(case: Case):
    size = 2000
    for row in range(len(case.stored)):
        reference = case.references[row]
        inner = [float(reference.ppf(q)) for q in (0.2, 0.35, 0.5, 0.65, 0.8)]
        low, high = inner[0], inner[-1]
        stored = case.parameters[row].expand(size, -1)
        drawn = case.family.sample_between(wide(low), wide(high), stored, seeded(row))
        assert drawn.shape == (size,)
        assert (drawn >= low).all()
        assert (drawn <= high).all()
        edges = np.unique([low, *inner[1:-1], high])
        lower, upper = torch.from_numpy(edges[:-1]), torch.from_numpy(edges[1:])
        if case.family.discrete:
            edges = (
                np.arange(low, high + 1) if high - low < 30 else np.floor(np.linspace(low, high, 9))
            )
            lower = torch.from_numpy(edges)
            upper = torch.from_numpy(np.append(edges[1:] - 1, high))
        logs = case.family.log_prob_between(lower, upper, case.parameters[row])
        total = case.family.log_prob_between(wide(low), wide(high), case.parameters[row])
        expected = size * (logs - total).exp().numpy()
        counts = ((drawn[:, None] >= lower) & (drawn[:, None] <= upper)).sum(0).numpy()
        kept = expected > 1e-9 * size
        assert (counts[~kept] == 0).all()
        if kept.sum() > 1:
            statistic = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
            assert stats.chi2(int(kept.sum()) - 1).sf(statistic) > 1e-6


@every_case
def test_modes_are_highest(case: Case):
    for row in range(len(case.stored)):
        places = cuts(case, row)
        for low, high in itertools.pairwise(places):
            mode = case.family.mode_between(wide(low), wide(high), case.parameters[row])
            x, _ = points_between(case, row, low, high)
            if not len(x):
                assert mode.isnan().all()
                continue
            assert low <= mode.item() <= high
            best = case.family.log_prob(mode, case.parameters[row : row + 1])
            others = case.family.log_prob(x.unsqueeze(-1), case.parameters[row : row + 1])
            inside = (x > 1e-5) & (x < 1 - 1e-5) if case.chart == "logit" else x == x
            inside = inside & (x > 1e-5 * case.references[row].mean()) if case.chart else inside
            assert (others[inside] <= best + 1e-7).all()


@every_case
def test_nothing_between(case: Case):
    stored = case.parameters[:1]
    outside = [(wide(2.0), wide(1.0)), (wide(INF), wide(INF))]
    if case.outside:
        outside.append((wide(min(case.outside) - 2), wide(min(case.outside) - 1)))
    for lower, upper in outside:
        assert case.family.log_prob_between(lower, upper, stored).item() == -INF
        assert case.family.sample_between(lower, upper, stored).isnan().all()
        assert all(each.isnan().all() for each in case.family.moments_between(lower, upper, stored))
    assert case.family.mode_between(wide(2.0), wide(1.0), stored).isnan().all()


@every_case
def test_types_and_shapes(case: Case):
    family = case.several
    stored = family.project(family.store(family.random_phi((4, 3), seeded()))).float()
    lower, upper = torch.tensor([[0], [1], [-3], [0]]), torch.tensor([1, 2, 3])
    wider = lower.double(), upper.double(), stored.double()
    for name in ("log_prob_between", "mode_between", "moments_between"):
        found = getattr(family, name)(lower, upper, stored)
        exact = getattr(family, name)(*wider)
        pairs = zip(found, exact, strict=True) if isinstance(found, tuple) else [(found, exact)]
        for each, double in pairs:
            assert (each.dtype, double.dtype) == (torch.float32, torch.float64)
            assert each.shape == double.shape == (4, 3)
            torch.testing.assert_close(each, double.float(), rtol=1e-6, atol=1e-7, equal_nan=True)
    drawn = family.sample_between(lower, upper, stored, seeded())
    assert drawn.dtype == torch.float32
    assert drawn.shape == (4, 3)
    for variable in range(3):
        single = family.at(torch.tensor(variable))
        some = single.log_prob_between(lower[:, 0], upper[variable], stored[:, variable])
        every = family.log_prob_between(lower, upper, stored)[:, variable]
        torch.testing.assert_close(some, every, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("family", "stored", "lower", "upper", "expected"),
    [
        (Gaussian(), [0.0, 1.0], 40.0, INF, stats.norm.logsf(40.0)),
        (Gaussian(), [0.0, 1.0], -INF, -40.0, stats.norm.logsf(40.0)),
        (Gaussian(), [0.0, 1.0], 40.0, 41.0, stats.norm.logsf(40.0)),
        (Gaussian(), [0.0, 1.0], 40.0, 40.0 + 2**-40, stats.norm.logpdf(40.0) - 40 * math.log(2)),
        (Gaussian(), [0.0, 1.0], -40.0 - 2**-40, -40.0, stats.norm.logpdf(40) - 40 * math.log(2)),
        (Gaussian(), [0.0, 1e24], 0.0, 1.0, -0.5 * math.log(2 * math.pi * 1e24)),
        (Exponential(), [1.0], 1e5, INF, -1e5),
        (Exponential(), [1.0], 700.0, 700.0 + 2**-40, -700 - 40 * math.log(2)),
        (Gamma(), [1.0, 1.0], 1e4, INF, -1e4),
        (Gamma(), [2.0, 2.0], 1e4, INF, math.log1p(1e4) - 1e4),
        (Gamma(), [0.5, 0.5], 0.0, 1e-100, 0.5 * math.log(4e-100 / math.pi)),
        (Gamma(max_shape=1e8), [1e8, 1.0], 1.0, INF, math.log(0.5) - 2.66e-5),
        (Beta(), [1e5, 1.0], 0.0, 0.5, 1e5 * math.log(0.5)),
        (Beta(), [1.0, 1e5], 0.5, 1.0, 1e5 * math.log(0.5)),
        (Beta(), [0.5, 0.5], 0.0, 1e-100, math.log(2e-50 / math.pi)),
        (Beta(max_concentration=1e8), [1e8, 1e8], 0.0, 0.5, math.log(0.5)),
        (Poisson(), [1.0], 200.0, INF, stats.poisson.logpmf(200, 1) + math.log1p(1 / 201 + 2.5e-5)),
        (Poisson(), [1e4], 0.0, 0.0, -1e4),
        (Binomial(1000), [0.5], 1000.0, INF, 1000 * math.log(0.5)),
        (Binomial(1000), [1e-6], 999.0, 1000.0, 999 * math.log(1e-6) + math.log(1000)),
        (Binomial(2**32), [0.5], 0.0, 2.0**31, math.log(0.5) + 1.2175e-5),
    ],
)
def test_tails(
    family: ExponentialFamily, stored: list[float], lower: float, upper: float, expected: float
):
    found = family.log_prob_between(wide(lower), wide(upper), wide(*stored)).item()
    assert found == pytest.approx(expected, rel=1e-6 if expected > -1 else 1e-9)
    mean, variance = family.moments_between(wide(lower), wide(upper), wide(*stored))
    assert lower <= mean.item() <= upper
    assert variance.item() >= 0
    many = wide(*stored).expand(50, -1)
    drawn = family.sample_between(wide(lower), wide(upper), many, seeded())
    assert (drawn >= lower).all()
    assert (drawn <= upper).all()
    away = (drawn.mean() - mean).abs().item()
    assert away <= 6 * math.sqrt(variance.item() / 50) + 1e-12 * abs(mean.item())


def test_draws_of_float32_stay_inside():
    stored = torch.tensor([0.0, 1.0]).expand(1000, -1)
    lower, upper = wide(0.1), wide(0.1 + 3e-9)
    drawn = Gaussian().sample_between(lower, upper, stored, seeded())
    assert drawn.dtype == torch.float64
    near = Gaussian().sample_between(torch.tensor(3.0), torch.tensor(3.1), stored, seeded())
    assert near.dtype == torch.float32
    assert (near >= torch.tensor(3.0)).all()
    assert (near <= torch.tensor(3.1)).all()


def test_wide_counts_agree_with_sums():
    cases: list[tuple[ExponentialFamily, float, Any]] = [
        (Poisson(), 1e4, stats.poisson(1e4)),
        (Binomial(100_000), 0.3, stats.binom(100_000, 0.3)),
    ]
    for family, p, reference in cases:
        deviation = reference.std()
        for a, b in ((-1, 1), (3, 30), (-40, -3), (0, 20), (7, 7.7)):
            low, high = (math.floor(reference.mean() + z * deviation) for z in (a, b))
            x = np.arange(low, high + 1)
            logs = reference.logpmf(x)
            bounds = wide(low), wide(high), wide(p)
            found = family.log_prob_between(*bounds)
            total = np.logaddexp.reduce(logs)
            np.testing.assert_allclose(found, total, rtol=1e-10, atol=1e-10)
            share = np.exp(logs - total)
            mean, variance = family.moments_between(*bounds)
            middle = (share * x).sum()
            np.testing.assert_allclose(mean, middle, rtol=1e-10)
            np.testing.assert_allclose(variance, (share * (x - middle) ** 2).sum(), rtol=1e-5)


@settings(max_examples=30)
@given(
    kind=st.sampled_from(["gamma", "beta", "gaussian"]),
    first=st.floats(1e-2, 1e4),
    second=st.floats(1e-2, 1e4),
    places=st.lists(st.floats(-12, 12), min_size=2, max_size=4),
)
def test_any_cuts_add_up(kind: str, first: float, second: float, places: list[float]):
    ends = np.sort(np.array(places))
    if kind == "gaussian":
        family, stored = Gaussian(), wide(first - 5000, second)
        ends = stored[0].item() + ends * math.sqrt(second)
    elif kind == "gamma":
        family, stored, ends = Gamma(), wide(first, 1.0), np.exp(ends / math.sqrt(first))
    else:
        family, stored = Beta(), wide(first, second)
        ends = 1 / (1 + second / first * np.exp(-ends))
    ends = np.array([-INF, *ends, INF])
    lower, upper = torch.from_numpy(ends[:-1]), torch.from_numpy(ends[1:])
    logs = family.log_prob_between(lower, upper, stored)
    assert logs.exp().sum().item() == pytest.approx(1, abs=1e-10)
    # Two neighbours together are what they are by themselves, also where both are tiny.
    both = family.log_prob_between(lower[:-1], upper[1:], stored)
    apart = torch.logaddexp(logs[:-1], logs[1:])
    torch.testing.assert_close(both, apart, rtol=1e-10, atol=1e-10)


def test_states_of_tables():
    family, stored = Categorical([2, 4], numeric=True), wide(0.1, 0.2, 0.3, 0.4).expand(2, -1)
    stored = family.project(stored)
    lower, upper = wide(1.0, 0.5), wide(9.0, 2.0)
    expected = wide(stored[0, 1].item(), 0.5).log()
    torch.testing.assert_close(family.log_prob_between(lower, upper, stored), expected)
    mean, variance = family.moments_between(lower, upper, stored)
    torch.testing.assert_close(mean, wide(1.0, 1.6))
    torch.testing.assert_close(variance, wide(0.0, 0.24))
    assert family.mode_between(lower, upper, stored).tolist() == [1.0, 2.0]
    assert Bernoulli().mode_between(wide(0.0), wide(0.5), wide(0.9)).item() == 0


def test_a_family_without_intervals_says_so():
    family, zero = NegativeBinomial(2.5), wide(0.0)
    bounds = zero, zero, wide(1.0)
    for name in ("log_prob_between", "moments_between", "sample_between", "mode_between"):
        message = f"NegativeBinomial leaves do not know about intervals: .* not define {name}"
        with pytest.raises(NotImplementedError, match=message):
            getattr(family, name)(*bounds)
