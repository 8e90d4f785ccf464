"""Densities at the ends of their supports against many digits, and what lies beyond."""

import math

import mpmath
import pytest
import torch

import einet
from einet.families import (
    Beta,
    Binomial,
    Exponential,
    ExponentialFamily,
    Gamma,
    Gaussian,
    Poisson,
)
from tests.extremes import KINDS

mpmath.mp.dps = 60
mp = mpmath.mpf


def poisson(x, stored, _):
    return mp(x) * mpmath.log(stored[0]) - stored[0] - mpmath.loggamma(mp(x) + 1)


def binomial(x, stored, family):
    n, p = mp(family.n.item()), stored[0]
    ways = mpmath.loggamma(n + 1) - mpmath.loggamma(mp(x) + 1) - mpmath.loggamma(n - x + 1)
    return ways + x * mpmath.log(p) + (n - x) * mpmath.log(1 - p)


def gamma(x, stored, family):
    shape, mean = stored[0], stored[1] * mp(family.scale.item())
    rate = shape / mean
    constant = shape * mpmath.log(rate) - mpmath.loggamma(shape)
    return constant + (shape - 1) * mpmath.log(mp(x)) - rate * mp(x)


def beta(x, stored, _):
    a, b = stored
    constant = mpmath.loggamma(a + b) - mpmath.loggamma(a) - mpmath.loggamma(b)
    return constant + (a - 1) * mpmath.log(mp(x)) + (b - 1) * mpmath.log(1 - mp(x))


def exponential(x, stored, family):
    mean = stored[0] * mp(family.scale.item())
    return -mpmath.log(mean) - mp(x) / mean


def gaussian(x, stored, family):
    scale = mp(family.scale.item())
    z = (mp(x) - mp(family.location.item())) / scale
    return (
        -((z - stored[0]) ** 2) / (2 * stored[1])
        - mpmath.log(2 * mpmath.pi * stored[1] * scale**2) / 2
    )


def scaled(family: ExponentialFamily, **hyper: float) -> ExponentialFamily:
    return family.with_hyperparameters(
        {name: torch.tensor(value, dtype=torch.float64) for name, value in hyper.items()}
    )


def around(middle: float, deviation: float) -> list[float]:
    return [middle + k * deviation for k in (-8, -1, 0, 0.5, 3)]


def whole(values: list[float]) -> list[float]:
    return [float(max(0, round(value))) for value in values]


# A family, its density in many digits, stored parameters, values, and the error that is allowed
# relative to 1 plus the exact log density.
GRID = [
    *(
        (Poisson(), poisson, [rate], whole(around(rate, math.sqrt(rate))), 1e-12)
        for rate in (1e-6, 0.5, 17.0, 1e4, 1e8, 4.29e9)
    ),
    (Poisson(), poisson, [3.0], [0, 1, 1e6, 2.0**32], 1e-12),
    (Poisson(), poisson, [4e9], [0, 1, 1e6, 2.0**32], 1e-12),
    *(
        (Binomial(n), binomial, [p], whole(around(n * p, math.sqrt(n * p * (1 - p)))), 1e-11)
        for n in (10**4, 10**8, 2**32)
        for p in (0.5, 0.01)
    ),
    (Binomial(2**32), binomial, [1e-6], [0, 1, 4295, 2.0**31, 2.0**32 - 1, 2.0**32], 1e-12),
    (Binomial(7), binomial, [0.3], [0, 1, 6, 7], 1e-13),
    *(
        (Gamma(1e-4, 1e8), gamma, [shape, 2.5], around(2.5, 0.1 * 2.5 / math.sqrt(shape)), 1e-11)
        for shape in (3.0, 1e5, 1e8)
    ),
    (Gamma(), gamma, [0.01, 1.0], [5e-324, 1e-310, 1e-300, 1.0, 1e12, 1e30], 1e-13),
    (scaled(Gamma(), scale=1e30), gamma, [0.01, 1.0], [5e-324, 1e-300, 1.0, 1e30], 1e-13),
    (scaled(Gamma(), scale=1e-250), gamma, [2.0, 1.0], [1e-300, 1e-250, 3e-250, 1e30], 1e-13),
    # The two largest terms of a beta density cancel: that is what bounds its concentrations.
    (Beta(), beta, [1e5, 3e4], [0.7, 0.769, 0.77, 0.8], 1e-9),
    (Beta(1e-4, 1e8), beta, [1e8, 1e8], [0.4999, 0.5, 0.50001], 1e-6),
    (Beta(), beta, [0.01, 3.0], [5e-324, 1e-310, 1e-300, 0.5, 1 - 2.0**-53], 1e-13),
    (Exponential(), exponential, [1.0], [0.0, 5e-324, 1.0, 1e30], 1e-14),
    (scaled(Exponential(), scale=1e30), exponential, [1e-4], [0.0, 1.0, 1e30], 1e-14),
    (scaled(Exponential(), scale=1e-250), exponential, [1e-4], [0.0, 1e-300, 1.0], 1e-14),
    (Gaussian(), gaussian, [1.7e9, 1e-6], around(1.7e9, 1e-3), 1e-13),
    (Gaussian(), gaussian, [1.0, 1e-30], [1.0, 1 + 2.0**-50, 0.0, -1e30, 1e30], 1e-13),
    (scaled(Gaussian(), location=1.7e9 + 0.37, scale=1e-3), gaussian, [0.2, 1.0],
     around(1.7e9, 1e-3), 1e-12),
    (scaled(Gaussian(), location=0.0, scale=1e-140), gaussian, [0.2, 1.0], [0.0, 1e-140], 1e-13),
]  # fmt: skip


@pytest.mark.parametrize(("family", "exact", "stored", "values", "error"), GRID)
def test_log_densities(family, exact, stored, values, error):
    x = torch.tensor(values, dtype=torch.float64)
    found = family.log_prob(x, torch.tensor(stored, dtype=torch.float64))
    for value, log_prob in zip(values, found.tolist(), strict=True):
        expected = exact(mp(value), [mp(number) for number in stored], family)
        assert abs(log_prob - expected) <= error * (1 + abs(expected)), value
        if family.discrete:
            assert log_prob <= 0


@pytest.mark.parametrize(("family", "exact", "stored", "values", "error"), GRID)
def test_leaves_of_a_model(family, exact, stored, values, error):
    """The same by the leaves' kernels, which lose the digits of their terms."""
    del error
    builder = einet.RegionGraphBuilder(1)
    builder.leaf([0])
    model = einet.Einet(builder.build(), family, 1, dtype=torch.float64)
    block = model.leaf.leaf_blocks[0]
    with torch.no_grad():
        block.stored.copy_(torch.tensor(stored, dtype=torch.float64).expand_as(block.stored))
    x = torch.tensor(values, dtype=torch.float64).unsqueeze(-1)
    (kind,) = [kind for kind in KINDS.values() if type(kind.family) is type(family)][:1]
    sized = type(kind)(family, kind.usual, kind.extreme)
    found, terms = model.log_prob(x), sized.size(x[:, 0])
    for value, log_prob, size in zip(values, found.tolist(), terms.tolist(), strict=True):
        expected = exact(mp(value), [mp(number) for number in stored], family)
        slack = 16 * 2.0**-52 * (size + abs(expected)) + 1e-13
        assert abs(log_prob - expected) <= slack, value
        if family.discrete:
            assert log_prob <= slack


BEYOND = [
    (Gaussian(), [1.0000001e30, -1.1e30, 1e38, 1e300, math.inf], [1e30, -1e30]),
    (Exponential(), [1.0000001e30, 1e300, math.inf, -5e-324], [0.0, 1e30]),
    (Gamma(), [1.0000001e30, 1e300, math.inf, 0.0], [5e-324, 1e30]),
    (Poisson(), [2.0**32 + 1, 1e15, 1e20, math.inf, -1.0], [0.0, 2.0**32]),
    (Binomial(2**32), [2.0**32 + 1, 1e20, math.inf], [0.0, 2.0**32]),
    (Binomial(2**32 - 1), [2.0**32], [2.0**32 - 1]),
    (Beta(), [0.0, 1.0], [5e-324, 1 - 2.0**-53]),
]


@pytest.mark.parametrize(("family", "outside", "inside"), BEYOND)
def test_what_lies_beyond_is_impossible_and_refused_by_name(family, outside, inside):
    graph = einet.random_trees(2, 1, 1)
    model = einet.Einet(graph, family, 2, dtype=torch.float64)
    before = [p.clone() for p in model.parameters()]
    good = torch.tensor([[value, inside[0]] for value in inside], dtype=torch.float64)
    assert (model.log_prob(good) > -math.inf).all()
    for value in outside:
        x = torch.cat([good, torch.tensor([[inside[0], value]], dtype=torch.float64)])
        assert model.log_prob(x)[-1] == -math.inf
        shown = rf"\[{len(good)}, 1\] is {value:g}".replace("+", r"\+")
        expected = rf"{shown}, outside the support of {type(family).__name__}: "
        with pytest.raises(ValueError, match=rf"train{expected}"):
            einet.fit(model, x, progress=False, epochs=1)
        with pytest.raises(ValueError, match=rf"data{expected}"):
            model.initialize(x)
        assert (
            abs(value) > family.largest
            or family.largest <= 1
            or value <= 0
            or (isinstance(family, Binomial))
        )
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert model.initialize(good).initialized


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (Binomial, {"n": 2**32 + 1}, r"n must be at most 4.29497e\+09"),
        (Gamma, {"max_shape": 1e9}, r"max_shape must be at most 1e\+08"),
        (Beta, {"max_concentration": 1e9}, r"max_concentration must be at most 1e\+08"),
        (Poisson, {"min_rate": 2.0**33}, r"min_rate must be less than 4.29497e\+09"),
    ],
)
def test_hyperparameters_that_would_not_be_right(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        kind(**arguments)
