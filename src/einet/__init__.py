"""Einsum Networks: deep generative models that answer any marginal and conditional exactly."""

from einet import data, distributed, families
from einet._version import __version__
from einet.clusters.clustered import ClusteredEinet
from einet.clusters.history import ClusterHistory
from einet.data.events import among, between, likelihood
from einet.engine.pseudo_counts import PseudoCounts
from einet.engine.statistics import Statistics
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
from einet.learning.em import EM, StochasticEM
from einet.learning.fit import fit
from einet.learning.gradient import Gradient, unconstrained
from einet.learning.growing import grow
from einet.learning.history import History
from einet.learning.learner import Learner
from einet.learning.prior import Prior
from einet.learning.pruning import Pruned, prune
from einet.learning.report import EpochReport
from einet.learning.schedules import cosine, exponential, linear
from einet.models.base import Model
from einet.models.einet import Einet
from einet.models.mixture import Mixture
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
from einet.tables import Table, TableModel

__all__ = [
    "EM",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "ClusterHistory",
    "ClusteredEinet",
    "Einet",
    "EpochReport",
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
    "Pruned",
    "PseudoCounts",
    "RegionGraph",
    "RegionGraphBuilder",
    "Statistics",
    "StochasticEM",
    "StructureError",
    "Table",
    "TableModel",
    "__version__",
    "among",
    "between",
    "chow_liu",
    "cosine",
    "data",
    "distributed",
    "exponential",
    "families",
    "fit",
    "grow",
    "likelihood",
    "linear",
    "load",
    "load_metadata",
    "poon_domingos",
    "prune",
    "random_trees",
    "save",
    "unconstrained",
]
