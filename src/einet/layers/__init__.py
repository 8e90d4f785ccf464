"""Layers of an Einsum Network: parameters and shapes over the kernels."""

from einet.layers.base import Descent, SumLayer, Values, Visits
from einet.layers.circuit import Circuit
from einet.layers.einsum import EinsumLayer
from einet.layers.leaf import FamilyGroup, LeafBlock, LeafLayer, LeafStatistics
from einet.layers.mixing import MixingLayer

__all__ = [
    "Circuit",
    "Descent",
    "EinsumLayer",
    "FamilyGroup",
    "LeafBlock",
    "LeafLayer",
    "LeafStatistics",
    "MixingLayer",
    "SumLayer",
    "Values",
    "Visits",
]
