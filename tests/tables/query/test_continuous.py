"""Questions about continuous columns, against what is known in closed form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from scipy import optimize, special, stats

from einet.tables.constraints import Box, Interval, Values
from einet.tables.query import AskedColumn, Mass, QueryError, Source, ask
from einet.tables.query.source import total

# Of each class its probability, and mean and deviation of a normal variable. Then a spike at 0.
CLASSES = {"a": (0.5, -1.0, 0.5), "b": (0.3, 2.0, 1.5), "c": (0.2, 100.0, 0.01)}
SPIKE = 0.25


class Normals(Source):
    """A class, a number that depends on it, and the same number with a spike."""

    @property
    def columns(self) -> Mapping[str, AskedColumn]:
        return {
            "class": AskedColumn("class", "category", ("a", "b", "c")),
            "x": AskedColumn("x", "number"),
            "gain": AskedColumn("gain", "number", spikes=(0.0,)),
        }

    def measure(self, events: Sequence[Sequence[Box]]) -> list[Mass]:
        return [total([self._mass(box) for box in event]) for event in events]

    def _mass(self, box: Box) -> Mass:
        parts = []
        for name, (chance, mean, deviation) in CLASSES.items():
            if all(name in piece for piece in box.get("class", (Values(CLASSES),))):
                for x in _normal(box.get("x", (Interval(),)), mean, deviation):
                    for gain in _spiked(box.get("gain", (Interval(),)), mean, deviation):
                        points, log = x.points + gain.points, x.log + gain.log
                        parts.append(Mass(points, math.log(chance) + log))
        return total(parts)


def _normal(pieces, mean: float, deviation: float) -> list[Mass]:
    masses = []
    for piece in pieces:
        lower, upper = (piece.lower - mean) / deviation, (piece.upper - mean) / deviation
        if piece.is_point:
            masses.append(Mass(1, float(stats.norm.logpdf(lower) - math.log(deviation))))
        elif lower > 0:
            masses.append(Mass(0, _log(special.ndtr(-lower) - special.ndtr(-upper))))
        else:
            masses.append(Mass(0, _log(special.ndtr(upper) - special.ndtr(lower))))
    return masses


def _spiked(pieces, mean: float, deviation: float) -> list[Mass]:
    rest = _normal(pieces, mean, deviation)
    masses = [Mass(mass.points, mass.log + math.log(1 - SPIKE)) for mass in rest]
    hit = any(0.0 in piece for piece in pieces)
    return [*masses, Mass(0, math.log(SPIKE))] if hit else masses


def _log(number: float) -> float:
    return math.log(number) if number > 0 else -math.inf


SOURCE = Normals()


def value(text: str):
    return ask(SOURCE, text).value


def cdf(x: float) -> float:
    return sum(p * special.ndtr((x - mean) / deviation) for p, mean, deviation in CLASSES.values())


@pytest.mark.parametrize("share", [1e-6, 0.1, 0.5, 0.75, 0.85, 0.999999])
def test_quantiles(share):
    expected = optimize.brentq(lambda x: cdf(x) - share, -50, 150, xtol=1e-14)
    assert value(f"quantile({share!r}, x)") == pytest.approx(expected, abs=1e-8)


def test_means():
    expected = sum(p * mean for p, mean, _ in CLASSES.values())
    assert value("E(x)") == pytest.approx(expected, rel=1e-7)
    assert value("E(gain)") == pytest.approx((1 - SPIKE) * expected, rel=1e-7)
    assert value("E(x | class=b)") == pytest.approx(2.0, rel=1e-7)
    assert value("E(x | class=c)") == pytest.approx(100.0, rel=1e-10)


@pytest.mark.parametrize(("lower", "upper"), [(0, 1), (5, math.inf), (-1.5, 101), (99.99, 100)])
def test_means_within_bounds(lower, upper):
    mass = first = 0.0
    for p, mean, deviation in CLASSES.values():
        ends = [(end - mean) / deviation for end in (lower, upper)]
        share = stats.norm.cdf(ends[1]) - stats.norm.cdf(ends[0])
        mass += p * share
        # The mean of a truncated normal variable, times its probability.
        first += p * (
            mean * share - deviation * (stats.norm.pdf(ends[1]) - stats.norm.pdf(ends[0]))
        )
    condition = f"{lower}<=x" + ("" if math.isinf(upper) else f"<={upper}")
    assert value(f"E(x | {condition})") == pytest.approx(first / mass, rel=1e-7)


def test_the_spike_is_a_quantile_for_as_long_as_it_reaches():
    below = float((1 - SPIKE) * cdf(0.0))
    for share in (below + 1e-6, below + SPIKE - 1e-6):
        assert value(f"quantile({share!r}, gain)") == 0.0
    assert value(f"quantile({below - 1e-3!r}, gain)") < 0
    assert value(f"quantile({below + SPIKE + 1e-3!r}, gain)") > 0
    assert value("P(gain=0)") == pytest.approx(SPIKE)
    assert value("P(gain>0)") + value("P(gain<0)") == pytest.approx(1 - SPIKE)


def test_a_value_of_a_continuous_column_is_evidence_by_its_density():
    weights = {
        name: p * math.exp(stats.norm.logpdf(1.0, mean, s))
        for name, (p, mean, s) in CLASSES.items()
    }
    answer = ask(SOURCE, "P(class=a | x=1)")
    assert answer.value == pytest.approx(weights["a"] / sum(weights.values()))
    assert answer.condition is None
    assert value("E(x | x=1)") == 1
    assert value("median(x | x=1)") == 1


def test_several_values_weigh_as_their_densities_do():
    heights = [
        sum(p * stats.norm.pdf(x, mean, s) for p, mean, s in CLASSES.values()) for x in (0, 2)
    ]
    share = heights[1] / sum(heights)
    assert value("P(x=2 | x in {0, 2})") == pytest.approx(share)
    assert value("E(x | x in {0, 2})") == pytest.approx(2 * share)
    assert value("quantile(0.9999, x | x in {0, 2})") == 2


def test_next_to_an_interval_a_value_is_nothing():
    assert value("P(class=a | x=1 or x>3)") == pytest.approx(value("P(class=a | x>3)"))
    assert value("P(x!=1)") == pytest.approx(1)
    assert value("P(class=a or x=1)") == pytest.approx(0.5)


@pytest.mark.parametrize("text", ["P(x=1)", "P(x=1, class=a)", "P(x=1 | class=a)", "P(gain=1)"])
def test_one_value_has_no_probability(text):
    with pytest.raises(QueryError, match="one value of a continuous column, which has probab"):
        ask(SOURCE, text)
    # What cannot be is another matter.
    assert value("P(x=1 | x>2)") == 0


def test_far_tails_keep_their_digits():
    expected = stats.norm.sf(14, 2, 1.5) / stats.norm.sf(12, 2, 1.5)
    assert value("P(x>14 | x>12, class=b)") == pytest.approx(expected, rel=1e-9)
    assert np.isfinite(value("E(x | x<-20)"))
