"""Data at the ends of what families take, and EM on them, which must not fall."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import einet
from einet.families import ExponentialFamily
from tests.families.negative_binomial import NegativeBinomial

__all__ = ["KINDS", "Kind", "climb", "columns", "rounding"]

_SMALLEST = 5e-324
_LAST = 1 - 2.0**-53
# A sum of a few dozen terms is right to so many units in the last place of the largest of them.
_ULPS = 64


@dataclass(frozen=True)
class Kind:
    """A family and values of its support: usual ones, and those where arithmetic goes wrong."""

    family: ExponentialFamily
    usual: Sequence[float]
    extreme: Sequence[float]

    def size(self, x: Tensor) -> Tensor:
        """The terms that a log density of these values is the difference of.

        They are x θ, A(θ) and log h(x): for counts of size n these are of size n log n, for others
        of the size of the statistics times the largest θ that bounds of the families allow.
        Gaussians are computed by differences wherever terms would be larger than those here.
        """
        x = x.abs()
        match self.family:
            case einet.Gaussian():
                return torch.full_like(x, 1e-7 * 2.0**52 / _ULPS)
            case einet.Exponential():
                return torch.ones_like(x)
            case einet.Gamma() | einet.Beta():
                bound = self.family.hyper[self.family.hyperparameters[1]].item()
                return bound * (20 + x.clamp(min=_SMALLEST).log().abs())
            case einet.Binomial():
                n = self.family.n.item()
                return torch.full_like(x, n * (20 + math.log(n)))
            case _:
                return (x + 1) * (20 + (x + 1).log())


_COUNTS = [0, 1, 2, 3, 5, 8, 40]
_MANY = [1e4, 1e8, 1e9, 2.0**32 - 1, 2.0**32]
_POSITIVE = [0.1, 0.5, 1.0, 1.5, 2.0, 7.0]
_WIDE = [_SMALLEST, 1e-310, 1e-300, 1e-30, 1e-12, 1e12, 1e15, 1e25, 1e30]
_REAL = [-2.0, -0.5, 0.0, 0.3, 1.0, 1.1]
_FAR = [1.7e9, 1.7e9 + 1e-3, 1.7e9 + 2e-3, 1e12, -1e12, 1e18, 1e30, -1e30, 1e-300, _SMALLEST, 1e-12]
_SHARES = [0.1, 0.2, 0.5, 0.7, 0.9]
_ENDS = [_SMALLEST, 1e-310, 1e-300, 1e-30, 1e-6, 1 - 1e-6, 1 - 1e-15, _LAST]

#: By name; values are float64.
KINDS = {
    "Bernoulli": Kind(einet.Bernoulli(), [0, 1], [0, 1]),
    "Bernoulli, tiny": Kind(einet.Bernoulli(1e-30), [0, 1], [0, 1]),
    "Categorical": Kind(einet.Categorical(4, min_probability=1e-30), range(4), [0, 3]),
    "Categorical of one": Kind(einet.Categorical(1), [0], [0]),
    "Binomial": Kind(einet.Binomial(7), range(8), [0, 7]),
    "Binomial, many": Kind(
        einet.Binomial(2**32), [*_COUNTS, 2.0**31, 2.0**31 + 7], [*_MANY, 2.0**32 - 40]
    ),
    "Binomial, tiny": Kind(einet.Binomial(10**8, 1e-12), _COUNTS, [5e7, 99_999_999, 1e8]),
    "Poisson": Kind(einet.Poisson(), _COUNTS, _MANY),
    "NegativeBinomial": Kind(NegativeBinomial(2.5), _COUNTS, [1e4, 1e8]),
    "Exponential": Kind(einet.Exponential(), [0.0, *_POSITIVE], _WIDE),
    "Gamma": Kind(einet.Gamma(), _POSITIVE, _WIDE),
    "Gamma, sharp": Kind(einet.Gamma(1e-4, 1e8), _POSITIVE, _WIDE),
    "Beta": Kind(einet.Beta(), _SHARES, _ENDS),
    "Beta, sharp": Kind(einet.Beta(1e-4, 1e8), _SHARES, _ENDS),
    "Gaussian": Kind(einet.Gaussian(), _REAL, _FAR),
    "Gaussian, sharp": Kind(einet.Gaussian(min_variance=1e-12), _REAL, _FAR),
}


def columns(random: np.random.Generator, kind: Kind, rows: int) -> np.ndarray:
    """A column of one of the shapes that are hard: constant, one outlier, two heaps, or anything.

    Values are moved by a few last digits now and then, where they stay in the support.
    """
    values = np.array([*kind.usual, *kind.extreme], dtype=np.float64)
    usual = np.array(kind.usual, dtype=np.float64)
    extreme = np.array(kind.extreme, dtype=np.float64)
    shape = random.integers(5)
    if shape == 0:
        column = np.full(rows, random.choice(values))
    elif shape == 1:
        column = random.choice(usual, rows)
        column[random.integers(rows)] = random.choice(extreme)
    elif shape == 2:
        column = np.full(rows, random.choice(values))
        column[random.integers(rows)] = random.choice(values)
    elif shape == 3:
        column = random.choice(random.choice(values, 2), rows)
    else:
        column = random.choice(values, rows)
    if not kind.family.discrete and random.random() < 0.5:
        shaken = column * (1 + random.integers(-3, 4, rows) * 2.0**-52)
        inside = kind.family.log_h(torch.from_numpy(shaken)) > -math.inf
        column = np.where(inside.numpy(), shaken, column)
    return column


def rounding(model: einet.Einet, x: Tensor, weights: Tensor, kinds: Sequence[Kind]) -> float:
    """What rounding may take from the weighted log-likelihood of these rows.

    Every row's log density is a sum over its cells, each of them a difference of terms of a known
    size (in float64), and a path through the sums, whose values and weights are rounded to the
    model's type once in each layer.
    """
    terms = torch.stack([kind.size(x[:, d].nan_to_num(0.5)) for d, kind in enumerate(kinds)])
    in_float64 = _ULPS * 2.0**-52 * (weights @ terms.sum(0)).item()
    nodes = (model.num_sums + model.num_leaves) * (2 + len(model.circuit.sum_layers))
    return in_float64 + 4 * torch.finfo(model.dtype).eps * nodes * weights.sum().item()


def climb(
    model: einet.Einet,
    x: Tensor,
    weights: Tensor,
    kinds: Sequence[Kind],
    steps: int,
    whole: bool = True,
) -> list[float]:
    """The log-likelihood at each step of full-batch EM, checked to be finite and not to fall.

    Args:
        model: What learns, in place.
        x, weights: Rows and how often each counts.
        kinds: What the columns are.
        steps: How many steps.
        whole: Whether a step is one call or an E-step and an M-step.
    """
    seen: list[float] = []
    allowed = rounding(model, x, weights, kinds)
    for step in range(steps + 1):
        statistics = model.e_step(x, weights=weights)
        seen.append(statistics.log_likelihood.item())
        assert statistics.impossible == 0, "a row of the support is impossible"
        assert math.isfinite(seen[-1]), f"the log-likelihood is {seen[-1]} after {step} steps"
        if step:
            # A sum is right to some units in its own last place, too.
            slack = allowed + _ULPS * 2.0**-52 * max(abs(seen[-1]), abs(seen[-2]))
            assert seen[-1] >= seen[-2] - slack, (
                f"step {step} fell from {seen[-2]!r} to {seen[-1]!r}, by more than {slack:g}"
            )
        if whole:
            model.em_step(x, weights=weights)
        else:
            model.m_step(statistics)
        assert all(p.isfinite().all() for p in model.parameters())
    return seen
