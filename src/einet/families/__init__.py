"""Exponential families: what the leaves of an Einsum Network are made of."""

from einet.families.base import ExponentialFamily
from einet.families.bernoulli import Bernoulli
from einet.families.beta import Beta
from einet.families.binomial import Binomial
from einet.families.categorical import Categorical
from einet.families.exponential import Exponential
from einet.families.gamma import Gamma
from einet.families.gaussian import Gaussian
from einet.families.poisson import Poisson
from einet.families.registry import FAMILIES, check_registered, family_from_config, register

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
    "check_registered",
    "family_from_config",
    "register",
]
