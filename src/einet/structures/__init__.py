"""Region graphs: which variables are split where, without any parameters.

A structure is a function that returns a :class:`RegionGraph`; a new one is a new file here plus
its line below.
"""

from einet.structures.builder import RegionGraphBuilder
from einet.structures.checks import StructureError
from einet.structures.chow_liu import chow_liu
from einet.structures.gaussian_information import gaussian_information
from einet.structures.graph import Partition, RegionGraph
from einet.structures.levels import equal_frequency
from einet.structures.mutual_information import mutual_information
from einet.structures.poon_domingos import poon_domingos
from einet.structures.random_trees import random_trees

__all__ = [
    "Partition",
    "RegionGraph",
    "RegionGraphBuilder",
    "StructureError",
    "chow_liu",
    "equal_frequency",
    "gaussian_information",
    "mutual_information",
    "poon_domingos",
    "random_trees",
]
