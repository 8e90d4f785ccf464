"""Exponential families: what the leaves of an Einsum Network are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from einet.families.base import ExponentialFamily
from einet.families.bernoulli import Bernoulli
from einet.families.beta import Beta
from einet.families.binomial import Binomial
from einet.families.categorical import Categorical
from einet.families.exponential import Exponential
from einet.families.gamma import Gamma
from einet.families.gaussian import Gaussian
from einet.families.poisson import Poisson

__all__ = [
    "FAMILIES",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Exponential",
    "ExponentialFamily",
    "Gamma",
    "Gaussian",
    "Poisson",
    "family_from_config",
]

#: Every family by its class name, under which saved files record it.
FAMILIES: dict[str, type[ExponentialFamily]] = {
    family.__name__: family
    for family in (
        Bernoulli,
        Beta,
        Binomial,
        Categorical,
        Exponential,
        Gamma,
        Gaussian,
        Poisson,
    )
}


def family_from_config(
    name: str, config: Mapping[str, Any], hyper: Mapping[str, Tensor]
) -> ExponentialFamily:
    """A family as it was saved: from its class name, its ``config()`` and its ``hyper`` tensors.

    Nothing is derived or checked anew as by the constructor: hyper-parameters that were read off
    data come back as they were.

    Example:
        >>> saved = Categorical([2, 3])
        >>> family_from_config("Categorical", saved.config(), saved.hyper)
        Categorical(num_categories=<2 values>, min_probability=1e-06)
    """
    if name not in FAMILIES:
        raise ValueError(f"there is no family {name!r}; the families are {', '.join(FAMILIES)}")
    kind = FAMILIES[name]
    if set(hyper) != set(kind.hyperparameters):
        raise ValueError(
            f"{name} has the hyper-parameters {', '.join(kind.hyperparameters)}, "
            f"got {', '.join(hyper) or 'none'}"
        )
    family = object.__new__(kind)
    vars(family).update(config)
    return family.with_hyperparameters(dict(hyper))
