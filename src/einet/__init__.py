"""Einsum Networks: deep generative models that answer any marginal and conditional exactly."""

from einet import data
from einet.base import Model
from einet.clustered import ClusteredEinet
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
from einet.inference import Posterior
from einet.learning.clusters import ClusterHistory
from einet.learning.em import EM, StochasticEM
from einet.learning.fit import fit
from einet.learning.gradient import Gradient, unconstrained
from einet.learning.history import History
from einet.learning.learner import Learner
from einet.learning.prior import Prior, PseudoCounts
from einet.learning.schedules import cosine, exponential, linear
from einet.learning.statistics import Statistics
from einet.mixture import Mixture
from einet.model import Einet
from einet.storage import FormatError, load, load_metadata, save
from einet.structures import (
    Partition,
    RegionGraph,
    RegionGraphBuilder,
    StructureError,
    chow_liu,
    poon_domingos,
    random_trees,
)

__version__ = "0.1.0"

__all__ = [
    "EM",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "ClusterHistory",
    "ClusteredEinet",
    "Einet",
    "Exponential",
    "ExponentialFamily",
    "FormatError",
    "Gamma",
    "Gaussian",
    "Gradient",
    "History",
    "Learner",
    "Mixture",
    "Model",
    "Partition",
    "Poisson",
    "Posterior",
    "Prior",
    "PseudoCounts",
    "RegionGraph",
    "RegionGraphBuilder",
    "Statistics",
    "StochasticEM",
    "StructureError",
    "chow_liu",
    "cosine",
    "data",
    "exponential",
    "fit",
    "linear",
    "load",
    "load_metadata",
    "poon_domingos",
    "random_trees",
    "save",
    "unconstrained",
]
