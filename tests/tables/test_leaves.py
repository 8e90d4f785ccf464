"""Means of leaves behind a map, against numerical integration."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, special

from einet.tables.leaves import means_behind
from einet.tables.monotone import MonotoneMap

_VALUES = np.random.default_rng(0).gamma(2.0, 10.0, 500)
_SCALES = {
    "bounded": MonotoneMap.fit(_VALUES, lower=0.0),
    "unbounded": MonotoneMap.fit(_VALUES - 20),
}


@pytest.mark.parametrize("ends", [(-math.inf, math.inf), (-1.0, 0.5), (3.0, math.inf), (9.0, 9.5)])
@pytest.mark.parametrize("name", _SCALES)
def test_means(name: str, ends: tuple[float, float]):
    scale = _SCALES[name]
    mean, deviation = np.array([0.0, -2.0, 1.5, 0.3]), np.array([1.0, 0.2, 0.01, 2.0])
    found = means_behind(scale, mean, deviation, ends)
    for m, d, value in zip(mean, deviation, found, strict=True):
        assert value == pytest.approx(_integrated(scale, m, d, ends), rel=1e-8), (m, d)


def _integrated(scale: MonotoneMap, m: float, d: float, ends: tuple[float, float]) -> float:
    """By adaptive quadrature, from knot to knot, relative to the density's highest point."""
    peak = min(max(m, ends[0]), ends[1])
    width = 40 * d if peak == m else min(40 * d, 60 * d * d / abs(peak - m))
    low, high = max(ends[0], peak - width), min(ends[1], peak + width)
    inner = [z for z in scale.z if low < z < high]
    near = [z for z in (peak - 3 * d, peak, peak + 3 * d) if low < z < high]
    cuts = sorted({low, high, *inner, *near})

    def density(z: float) -> float:
        return math.exp(-0.5 * ((z - m) ** 2 - (peak - m) ** 2) / d**2)

    def weighted(z: float) -> float:
        return density(z) * float(scale.inverse(np.array([z]))[0])

    options = {"epsabs": 0, "epsrel": 1e-11, "limit": 200}
    pairs = list(pairwise(cuts))
    top = math.fsum(integrate.quad(weighted, a, b, **options)[0] for a, b in pairs)
    return top / math.fsum(integrate.quad(density, a, b, **options)[0] for a, b in pairs)


def test_far_out_all_lies_at_the_end():
    scale = _SCALES["unbounded"]
    found = means_behind(scale, np.array([0.0]), np.array([0.01]), (5.0, 5.0))
    assert found[0] == pytest.approx(scale.inverse(np.array([5.0]))[0])
    assert special.ndtr(-500.0) == 0
