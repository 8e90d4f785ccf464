"""Smooth increasing maps of a column to a scale on which it looks normal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

__all__ = ["MonotoneMap"]

# The most knots, and the power of the number of values by which they grow.
_MOST_KNOTS, _GROWTH = 65, 0.4
# Quantiles are knots for as long as so many values lie beyond them. From there to the outermost
# value knots lie in equal distances, with so many values beyond each.
_BEYOND = 5
_OUTSIDE = np.array([4.0, 3.0, 2.0])
# Knots that lie closer than this share of their range are one.
_CLOSEST = 1e-9
# Without a bound, numbers grow at most e-fold for each so many units of z: beyond outermost knots
# that lie far apart they would grow faster, and means would be those of numbers nobody ever saw.
_UNITS = 2.0
# Exponents of float64 end here.
_FARTHEST = 690.0


@dataclass(frozen=True, eq=False)
class MonotoneMap:
    r"""An increasing map z = f(x) from (lower, upper) onto the reals, with a continuous slope.

    Between the knots :math:`(x_k, z_k)` with slopes :math:`d_k` it is the rational quadratic

    .. math:: z = z_k + \frac{(z_{k+1} - z_k)(s t^2 + d_k t (1 - t))}
                             {s + (d_{k+1} + d_k - 2 s)\, t (1 - t)}, \quad
              t = \frac{x - x_k}{x_{k+1} - x_k}, \quad s = \frac{z_{k+1} - z_k}{x_{k+1} - x_k},

    which has an inverse in closed form. Beyond the knots it grows like a logarithm: towards a
    finite bound L as :math:`z_0 + d_0 (x_0 - L) \log\frac{x - L}{x_0 - L}`, and without one, with c
    the distance of the outermost knot from the median, or :math:`2 / d_n` where that is more, as
    :math:`z_n + d_n c \log(1 + (x - x_n) / c)`, so that numbers far outside stay within reach.

    Args:
        x, z: The knots, at least two, both strictly ascending.
        slopes: The slope at each of them, above 0.
        lower, upper: Bounds that x never reaches; infinite where there are none.

    Example:
        >>> ages = np.random.default_rng(0).gamma(3.0, 10.0, 1000)
        >>> scale = MonotoneMap.fit(ages, lower=0.0)
        >>> z = scale.forward(ages)
        >>> round(float(z.mean()), 2), round(float(z.std()), 2)
        (0.0, 1.0)
        >>> np.allclose(scale.inverse(z), ages), float(scale.inverse(np.array([-40.0]))[0]) >= 0
        (True, True)
    """

    x: Float[np.ndarray, " knots"]
    z: Float[np.ndarray, " knots"]
    slopes: Float[np.ndarray, " knots"]
    lower: float = -math.inf
    upper: float = math.inf
    _rises: Float[np.ndarray, " pieces"] = field(init=False, repr=False)
    _runs: Float[np.ndarray, " pieces"] = field(init=False, repr=False)
    _log_secants: Float[np.ndarray, " pieces"] = field(init=False, repr=False)
    # The slopes at both ends of each piece, as multiples of its mean slope.
    _first: Float[np.ndarray, " pieces"] = field(init=False, repr=False)
    _last: Float[np.ndarray, " pieces"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        arrays = (self.x, self.z, self.slopes)
        if len({len(array) for array in arrays}) != 1 or len(self.x) < 2:
            raise ValueError("x, z and slopes must have one number for each of at least two knots")
        finite = all(bool(np.isfinite(array).all()) for array in arrays)
        if not finite or bool((np.diff(self.x) <= 0).any() or (np.diff(self.z) <= 0).any()):
            raise ValueError("x and z must be finite and ascend strictly from knot to knot")
        if bool((self.slopes <= 0).any()):
            raise ValueError(f"slopes must be above 0, got {self.slopes.min():g}")
        if not self.lower < self.x[0] or not self.x[-1] < self.upper:
            raise ValueError(
                f"lower and upper must enclose the knots, from {self.x[0]:g} to {self.x[-1]:g}, "
                f"got {self.lower:g} and {self.upper:g}"
            )
        # What follows from the knots, once: questions about single rows map one cell at a time.
        rises, runs = np.diff(self.z), np.diff(self.x)
        log_secants = np.log(rises) - np.log(runs)
        secants = np.exp(log_secants)
        derived = {
            "_rises": rises,
            "_runs": runs,
            "_log_secants": log_secants,
            "_first": self.slopes[:-1] / secants,
            "_last": self.slopes[1:] / secants,
        }
        for name, values in derived.items():
            object.__setattr__(self, name, values)

    # Pickles hold no more than the map itself, so that those of earlier releases can be read.

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    @classmethod
    def fit(
        cls,
        values: Float[np.ndarray, " rows"],
        lower: float = -math.inf,
        upper: float = math.inf,
    ) -> MonotoneMap:
        """The map that takes quantiles of values to those of a standard normal distribution.

        Args:
            values: Numbers within the bounds, at least one.
            lower, upper: The bounds.
        """
        count = len(values)
        knots = int(np.clip(round(count**_GROWTH), 2, _MOST_KNOTS))
        outermost = -_normal_quantile(np.array([min(0.25, _BEYOND / count)]))[0]
        z = np.linspace(-outermost, outermost, knots)
        x = np.quantile(values, _normal_share(z), method="hazen")
        if count > 4 * _BEYOND:
            x, z = _to_ends(x, z, values.min(), values.max(), count)
        x, z = _apart(x, z, lower, upper)
        if len(x) < 2:
            x, z = _around(float(np.median(values)), float(values.std()), lower, upper)
        return cls(x, z, _slopes(x, z, lower, upper), float(lower), float(upper))

    def forward(self, x: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        """z of numbers within the bounds; ±∞ at a bound, NaN where x is NaN."""
        k, t, first, last = self._pieces(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            u = t * (1 - t)
            rise = (t**2 + first * u) / (1 + (first + last - 2) * u)
            z = self.z[k] + self._rises[k] * rise
            below, above = x < self.x[0], x > self.x[-1]
            if below.any():
                z = np.where(below, self.z[0] - self._tail(x, left=True)[0], z)
            if above.any():
                z = np.where(above, self.z[-1] + self._tail(x, left=False)[0], z)
        return z

    def log_slope(self, x: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        """log dz/dx: what is added to the log density of z to get that of x."""
        k, t, first, last = self._pieces(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            u = t * (1 - t)
            bend = np.log(last * t**2 + 2 * u + first * (1 - t) ** 2)
            slope = self._log_secants[k] + bend - 2 * np.log1p((first + last - 2) * u)
            below, above = x < self.x[0], x > self.x[-1]
            if below.any():
                slope = np.where(below, self._tail(x, left=True)[1], slope)
            if above.any():
                slope = np.where(above, self._tail(x, left=False)[1], slope)
        return slope

    def inverse(self, z: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        """x of any z; never beyond the bounds, and NaN where z is NaN."""
        k = _piece_of(self.z, z)
        y = _within_unit((z - self.z[k]) / self._rises[k])
        first, last = self._relative(k)
        bend = y * (first + last - 2)
        b = first - bend
        # This form of the root of a quadratic loses no digits where its first term is near 0.
        root = np.sqrt(np.maximum(b * b + 4 * y * (1 - first + bend), 0.0))
        x = self.x[k] + self._runs[k] * _within_unit(2 * y / (b + root))
        below, above = z < self.z[0], z > self.z[-1]
        with np.errstate(over="ignore", invalid="ignore"):
            if below.any():
                x = np.where(below, self._tail_inverse(self.z[0] - z, left=True), x)
            if above.any():
                x = np.where(above, self._tail_inverse(z - self.z[-1], left=False), x)
        return x

    def to_dict(self) -> dict[str, Any]:
        """The map in plain values: ``MonotoneMap.from_dict(that)`` makes it again."""
        bounds = {"lower": self.lower, "upper": self.upper}
        return {
            "x": self.x.tolist(),
            "z": self.z.tolist(),
            "slopes": self.slopes.tolist(),
            **{name: bound for name, bound in bounds.items() if math.isfinite(bound)},
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> MonotoneMap:
        """The map that :meth:`to_dict` told of, checked."""
        x, z, slopes = (np.asarray(plain[name], np.float64) for name in ("x", "z", "slopes"))
        lower, upper = plain.get("lower", -math.inf), plain.get("upper", math.inf)
        return cls(x, z, slopes, float(lower), float(upper))

    # -- pieces ----------------------------------------------------------------------------------

    def _relative(self, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slopes at both ends of pieces, as multiples of their mean slope."""
        return self._first[k], self._last[k]

    def _pieces(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of each x the number of its piece, t, and the relative slopes at both ends."""
        k = _piece_of(self.x, x)
        t = _within_unit((x - self.x[k]) / self._runs[k])
        return k, t, *self._relative(k)

    def _scale(self, left: bool) -> float:
        """The distance on which a tail is nearly straight: to the bound, or about to the median."""
        bound = self.x[0] - self.lower if left else self.upper - self.x[-1]
        if math.isfinite(bound):
            return float(bound)
        middle = float(np.interp(0.0, self.z, self.x))
        end = 0 if left else -1
        # All knots may lie on one side of z = 0.
        distance = max(abs(self.x[end] - middle), (self.x[-1] - self.x[0]) / 2)
        return float(max(distance, _UNITS / self.slopes[end]))

    def _tail(self, x: np.ndarray, left: bool) -> tuple[np.ndarray, np.ndarray]:
        """How far z lies beyond the outermost knot, and the log of the slope there."""
        scale, slope = self._scale(left), self.slopes[0 if left else -1]
        bound = self.lower if left else self.upper
        if math.isfinite(bound):
            to_bound = np.log(np.clip(abs(x - bound) / scale, 0.0, 1.0))
            return -slope * scale * to_bound, np.log(slope) - to_bound
        away = np.log1p(np.maximum(self.x[0] - x if left else x - self.x[-1], 0.0) / scale)
        return slope * scale * away, np.log(slope) - away

    def _tail_inverse(self, beyond: np.ndarray, left: bool) -> np.ndarray:
        scale, slope = self._scale(left), self.slopes[0 if left else -1]
        grown = np.maximum(beyond, 0.0) / (slope * scale)
        bound, sign = (self.lower, -1) if left else (self.upper, 1)
        if math.isfinite(bound):
            return bound - sign * scale * np.exp(-grown)
        return self.x[0 if left else -1] + sign * scale * np.expm1(np.minimum(grown, _FARTHEST))


def _piece_of(knots: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The number of the piece that each place lies in; the outermost beyond them."""
    # Among the inner knots there is nothing to clip.
    return np.searchsorted(knots[1:-1], at, side="right")


def _within_unit(share: np.ndarray) -> np.ndarray:
    return np.minimum(np.maximum(share, 0.0), 1.0)


def _normal_quantile(share: np.ndarray) -> np.ndarray:
    return torch.special.ndtri(torch.from_numpy(share)).numpy()


def _normal_share(z: np.ndarray) -> np.ndarray:
    return torch.special.ndtr(torch.from_numpy(z)).numpy()


def _to_ends(
    x: np.ndarray, z: np.ndarray, smallest: float, largest: float, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The knots of quantiles, and some more out to the smallest and the largest value.

    A few values do not tell how a tail falls, but how far it reaches: they are taken as spread
    evenly, and what lies farther out is about as likely as two of them.
    """
    part = (_BEYOND - _OUTSIDE) / (_BEYOND - _OUTSIDE[-1])
    beyond = -_normal_quantile(_OUTSIDE / count)
    left, right = x[0] + part * (smallest - x[0]), x[-1] + part * (largest - x[-1])
    return np.concatenate([left[::-1], x, right]), np.concatenate([-beyond[::-1], z, beyond])


def _apart(
    x: np.ndarray, z: np.ndarray, lower: float, upper: float
) -> tuple[np.ndarray, np.ndarray]:
    """Knots that keep their distance from one another and from the bounds.

    Those of values that repeat lie on top of one another: they become one, in the middle of them.
    """
    least = _CLOSEST * max(x[-1] - x[0], 1e-12 * max(abs(x[0]), abs(x[-1])), 5e-320)
    inside = (x - lower > least) & (upper - x > least)
    x, z = x[inside], z[inside]
    if not len(x):
        return x, z
    group = np.concatenate([[0], np.cumsum(np.diff(x) > least)])
    sizes = np.bincount(group)
    return np.bincount(group, x) / sizes, np.bincount(group, z) / sizes


def _around(
    middle: float, deviation: float, lower: float, upper: float
) -> tuple[np.ndarray, np.ndarray]:
    """Two knots about the middle of values that hardly differ."""
    scale = max(deviation, 1e-6 * abs(middle), 1e-3 if middle == 0 else 0.0)
    if math.isfinite(lower) and math.isfinite(upper):
        scale = min(scale, (upper - lower) / 4)
        middle = min(max(middle, lower + 2 * scale), upper - 2 * scale)
    elif math.isfinite(lower):
        middle = max(middle, lower + 2 * scale)
    elif math.isfinite(upper):
        middle = min(middle, upper - 2 * scale)
    return np.array([middle - scale, middle + scale]), np.array([-1.0, 1.0])


def _slopes(x: np.ndarray, z: np.ndarray, lower: float, upper: float) -> np.ndarray:
    """Slopes at the knots: harmonic means of those on both sides, weighted by distance."""
    # In units of the widest piece, so that no square of a tiny number is 0.
    unit = np.diff(x).max()
    x, lower, upper = (x - x[0]) / unit, (lower - x[0]) / unit, (upper - x[0]) / unit
    h = np.diff(x)
    s = np.diff(z) / h
    slopes = np.empty_like(x)
    near, far = h[:-1], h[1:]
    slopes[1:-1] = 3 * (near + far) / ((2 * far + near) / s[:-1] + (far + 2 * near) / s[1:])
    # Two values that happen to lie close together must not make a tail thin: the slope over the
    # outer third of the knots speaks too.
    third = max(1, len(x) // 3)
    slopes[0] = min(s[0], (z[third] - z[0]) / (x[third] - x[0]))
    slopes[-1] = min(s[-1], (z[-1] - z[-1 - third]) / (x[-1] - x[-1 - third]))
    # Towards a bound: as if the density were even from there to the outermost knot.
    for end, distance in ((0, x[0] - lower), (-1, upper - x[-1])):
        if math.isfinite(distance):
            outside = -abs(z[[end]])
            even = _normal_share(outside) * math.sqrt(2 * math.pi) * np.exp(outside**2 / 2)
            # Knots that lie close together say little of what lies beyond them, so that the slope
            # may well be far below theirs: numbers at a bound would be pushed far outside else.
            slopes[end] = np.clip(even[0] / distance, s[end] / 100, 10 * s[end])
    return slopes / unit
