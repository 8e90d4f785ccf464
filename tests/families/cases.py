"""The families under test. A new family inherits ``test_families.py`` by one entry in ``CASES``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
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
from tests.families.negative_binomial import NegativeBinomial

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """One family and what a test must know of it.

    Attributes:
        name: Label of the case.
        family: A family over one variable, with hyper-parameters of shape ``[]``.
        stored: Rows of stored parameters inside the bounds, easy ones and extreme ones.
        reference: The scipy distribution of one such row.
        chart: For densities, the coordinate in which they are smooth over the whole real line.
            None for distributions over integers.
        several: The family over three variables that differ in their hyper-parameters.
        outside: Values outside the support.
        mistakes: Wrong arguments of the constructor, by the argument that is wrong.
    """

    name: str
    family: ExponentialFamily
    stored: list[list[float]]
    reference: Callable[[Any], Any]
    chart: Literal["identity", "log", "logit"] | None
    several: ExponentialFamily
    outside: list[float]
    mistakes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def parameters(self) -> Tensor:
        return torch.tensor(self.stored, dtype=torch.float64)

    @property
    def references(self) -> list[Any]:
        return [self.reference(np.array(row)) for row in self.stored]

    def log_prob(self, reference: Any, x: Tensor) -> np.ndarray:
        """What scipy says."""
        return (reference.logpmf if self.chart is None else reference.logpdf)(x.numpy())

    def draw(self, reference: Any, size: int, seed: int = 0) -> Tensor:
        """Values drawn by scipy, inside the support in spite of rounding."""
        x = torch.as_tensor(reference.rvs(size=size, random_state=seed), dtype=torch.float64)
        tiny, last = torch.finfo(x.dtype).tiny, 1 - torch.finfo(x.dtype).eps
        if self.chart == "logit":
            return x.clamp(tiny, last)
        return x.clamp(min=tiny) if self.chart == "log" else x

    def nodes(self, reference: Any) -> tuple[Tensor, Tensor]:
        """Points and weights with Σ w f(x) = ∫ f(x) dx over all but 1e-12 of the mass.

        The trapezoidal rule converges exponentially in a chart where the density is smooth.
        """
        low, high = reference.ppf(1e-12), reference.isf(1e-12)
        if self.chart is None:
            x = torch.arange(max(low, 0), high + 10, dtype=torch.float64)
            return x, torch.ones_like(x)
        # A logarithm reaches closer to the end of the support than float64 numbers do.
        floor = 1e-300
        if self.chart == "identity":
            t = torch.linspace(low, high, 4001, dtype=torch.float64)
            x, slope = t, torch.ones_like(t)
        elif self.chart == "log":
            t = torch.linspace(math.log(max(low, floor)), math.log(high), 4001, dtype=torch.float64)
            x = slope = t.exp()
        else:
            first = math.log(max(low, floor)) - math.log1p(-low)
            # Between 1 − 1e-15 and 1 there are too few numbers to integrate over.
            last = min(high, 1 - 1e-15)
            t = torch.linspace(first, math.log(last) - math.log1p(-last), 8001, dtype=torch.float64)
            x = t.sigmoid()
            slope = x * (-t).sigmoid()
        weights = slope * (t[1] - t[0])
        weights[[0, -1]] /= 2
        return x, weights


def _scaled(family: ExponentialFamily, **hyper: float | list[float]) -> ExponentialFamily:
    """The family as it would be after it has seen data."""
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in hyper.items()}
    return family.with_hyperparameters(tensors)


CASES = [
    Case(
        "Bernoulli",
        Bernoulli(),
        stored=[[0.3], [0.5], [0.9], [1e-6], [1 - 1e-6]],
        reference=lambda p: stats.bernoulli(p[0]),
        chart=None,
        several=Bernoulli([1e-6, 0.1, 0.4]),
        outside=[-1.0, 0.5, 2.0, 1 + 1e-12],
        mistakes=[
            ("min_probability", {"min_probability": 0.0}),
            ("min_probability", {"min_probability": 0.5}),
            ("min_probability", {"min_probability": [0.1, math.nan]}),
        ],
    ),
    Case(
        "Binomial",
        Binomial(7),
        stored=[[0.3], [0.5], [0.9], [1e-6], [1 - 1e-6]],
        reference=lambda p: stats.binom(7, p[0]),
        chart=None,
        several=Binomial([1, 7, 255], [0.1, 0.2, 1e-3]),
        outside=[-1.0, 0.5, 8.0, 6.999],
        mistakes=[
            ("n", {"n": 0}),
            ("n", {"n": 2.5}),
            ("n", {"n": math.inf}),
            ("min_probability", {"n": 3, "min_probability": -0.1}),
            ("min_probability", {"n": [3, 4], "min_probability": [0.1, 0.1, 0.1]}),
        ],
    ),
    Case(
        "Binomial of grey values",
        Binomial(255),
        stored=[[0.3], [1e-3], [0.999]],
        reference=lambda p: stats.binom(255, p[0]),
        chart=None,
        several=Binomial([255, 15, 3]),
        outside=[-1.0, 256.0, 17.5],
    ),
    Case(
        "Categorical",
        Categorical(4),
        stored=[[0.1, 0.2, 0.3, 0.4], [0.25] * 4, [0.9, 0.1 - 2e-6, 1e-6, 1e-6]],
        reference=lambda p: stats.rv_discrete(values=(range(4), p)),
        chart=None,
        several=Categorical([2, 5, 3], [1e-6, 0.1, 0.01]),
        outside=[-1.0, 0.5, 4.0, 3.999],
        mistakes=[
            ("num_categories", {"num_categories": 0}),
            ("num_categories", {"num_categories": 2.5}),
            ("num_categories", {"num_categories": torch.ones(1, 2)}),
            ("min_probability", {"num_categories": 3, "min_probability": 0.0}),
            ("min_probability", {"num_categories": [2, 5], "min_probability": 0.3}),
        ],
    ),
    Case(
        "Poisson",
        Poisson(),
        stored=[[0.7], [2.0], [40.0], [1e-6], [1e4]],
        reference=lambda p: stats.poisson(p[0]),
        chart=None,
        several=Poisson([1e-6, 0.1, 2.0]),
        outside=[-1.0, 0.5, 1e6 + 0.5],
        mistakes=[("min_rate", {"min_rate": 0.0}), ("min_rate", {"min_rate": math.inf})],
    ),
    # Not of the library: what a family of one's own needs is a file and these lines.
    Case(
        "NegativeBinomial",
        NegativeBinomial(2.5),
        stored=[[0.7], [2.0], [40.0], [1e-6], [1e3]],
        reference=lambda p: stats.nbinom(2.5, 2.5 / (2.5 + p[0])),
        chart=None,
        several=NegativeBinomial([0.5, 2.5, 10.0], [1e-6, 0.1, 2.0]),
        outside=[-1.0, 0.5, 1e6 + 0.5],
        mistakes=[
            ("r", {"r": 0.0}),
            ("r", {"r": [1.0, -1.0]}),
            ("min_mean", {"r": 1.0, "min_mean": 0.0}),
        ],
    ),
    Case(
        "Exponential",
        Exponential(),
        stored=[[1.0], [0.01], [300.0], [1e-4]],
        reference=lambda p: stats.expon(scale=p[0]),
        chart="log",
        several=_scaled(Exponential([0.1, 0.2, 0.3], 1e3), scale=[0.1, 1.0, 1e3]),
        outside=[-1.0, -1e-12],
        mistakes=[
            ("min_mean", {"min_mean": 0.0}),
            ("max_mean", {"min_mean": 2.0, "max_mean": 1.0}),
            ("relative_floor", {"relative_floor": -1.0}),
        ],
    ),
    Case(
        "Exponential after data",
        _scaled(Exponential(), scale=1e5),
        stored=[[1.0], [0.01]],
        reference=lambda p: stats.expon(scale=1e5 * p[0]),
        chart="log",
        several=_scaled(Exponential(max_mean=[1.0, 2.0, 1e9]), scale=[0.1, 1.0, 1e3]),
        outside=[-1.0],
    ),
    Case(
        "Gaussian",
        Gaussian(min_variance=1e-6, max_variance=100.0),
        stored=[[0.0, 1.0], [-3.0, 0.01], [2.0, 100.0], [0.5, 1e-6]],
        reference=lambda p: stats.norm(p[0], math.sqrt(p[1])),
        chart="identity",
        several=Gaussian([1e-6, 0.1, 1.0], [1.0, 2.0, 3.0]),
        outside=[],
        mistakes=[
            ("min_variance", {"min_variance": 0.0}),
            ("max_variance", {"min_variance": 2.0, "max_variance": [3.0, 1.0]}),
            ("relative_floor", {"relative_floor": 0.0}),
            ("min_variance", {"min_variance": [1.0, 1.0], "max_variance": [2.0, 2.0, 2.0]}),
        ],
    ),
    Case(
        "Gaussian after data",
        _scaled(Gaussian(), location=1e4, scale=0.01),
        stored=[[0.0, 1.0], [-3.0, 0.01], [2.0, 50.0]],
        reference=lambda p: stats.norm(1e4 + 0.01 * p[0], 0.01 * math.sqrt(p[1])),
        chart="identity",
        several=_scaled(Gaussian(), location=[0.0, 1.0, -5.0], scale=[0.1, 1.0, 1e3]),
        outside=[],
    ),
    Case(
        "Beta",
        Beta(),
        stored=[[1.0, 1.0], [2.0, 5.0], [0.3, 0.8], [0.2, 3.0], [1e5, 3e4], [40.0, 1.0]],
        reference=lambda p: stats.beta(*p),
        chart="logit",
        several=Beta([0.01, 0.1, 1.0], [2.0, 1e3, 1e5]),
        outside=[0.0, 1.0, -1.0, 2.0],
        mistakes=[
            ("min_concentration", {"min_concentration": 0.0}),
            ("max_concentration", {"max_concentration": 1e-3}),
            ("max_concentration", {"max_concentration": math.inf}),
        ],
    ),
    Case(
        "Gamma",
        Gamma(),
        stored=[[1.0, 1.0], [3.0, 0.1], [0.3, 20.0], [1e5, 2.0], [0.1, 1.0]],
        reference=lambda p: stats.gamma(p[0], scale=p[1] / p[0]),
        chart="log",
        several=_scaled(Gamma([0.01, 0.1, 1.0], [2.0, 1e3, 1e5]), scale=[0.1, 1.0, 1e3]),
        outside=[0.0, -1.0],
        mistakes=[
            ("min_shape", {"min_shape": 0.0}),
            ("max_shape", {"max_shape": 1e-3}),
            ("max_shape", {"max_shape": math.inf}),
        ],
    ),
    Case(
        "Gamma after data",
        _scaled(Gamma(), scale=1e-6),
        stored=[[1.0, 1.0], [3.0, 0.1], [200.0, 20.0]],
        reference=lambda p: stats.gamma(p[0], scale=1e-6 * p[1] / p[0]),
        chart="log",
        several=_scaled(Gamma(), scale=[1e-6, 1.0, 1e6]),
        outside=[0.0, -1.0],
    ),
]
