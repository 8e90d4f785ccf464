"""What the passes through an Einet find."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from einet.layers import Values
from einet.layers.leaf_flow import LeafFlow

__all__ = ["EinetValues", "Expectation"]


@dataclass
class EinetValues(Values):
    """Values of a circuit together with the evidence at its leaves."""

    evidence: list = field(default_factory=list)

    @classmethod
    def of(cls, values: Values) -> EinetValues:
        """A circuit's values with room for evidence."""
        return cls(values.body, values.top, values.fused, values.precision, values.kept)


@dataclass
class Expectation:
    """What an E-step finds: flows into the leaves (p_L of eq. 6), and sums over the rows.

    The sums are the weighted log-likelihood, the weights, the number of impossible rows, and the
    expected count of each class; for models side by side the first two, with a column for each.
    """

    evidence: list
    flow: LeafFlow | Float[Tensor, "leaf_nodes leaves batch"]
    sums: Float[Tensor, "*sums"]
