"""Layers of an Einsum Network: parameters and shapes over the kernels."""

from einet.layers.base import Descent, SumLayer, Values, Visits
from einet.layers.circuit import Circuit
from einet.layers.compiler import Compiler, register_sums
from einet.layers.einsum import EinsumLayer
from einet.layers.leaf import FamilyGroup, LeafBlock, LeafLayer, LeafPrior, LeafStatistics
from einet.layers.linear import LinearLayer
from einet.layers.mixing import MixingLayer

__all__ = [
    "Circuit",
    "Compiler",
    "Descent",
    "EinsumLayer",
    "FamilyGroup",
    "LeafBlock",
    "LeafLayer",
    "LeafPrior",
    "LeafStatistics",
    "LinearLayer",
    "MixingLayer",
    "SumLayer",
    "Values",
    "Visits",
    "register_sums",
]
