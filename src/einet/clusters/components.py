"""A mixture of Einets on one structure: on a GPU, one recorded model answers for all of them."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import parametrize

from einet.clusters.stand_in import StandIn
from einet.data.batch import Batch
from einet.engine.root import join
from einet.kernels.dispatch import Precision
from einet.models.einet import Einet
from einet.models.mixture import Mixture
from einet.structures import RegionGraph

__all__ = ["EinetsOfOneStructure"]

# No attribute: it must not be copied, saved or moved with the model.
_stand_ins: WeakKeyDictionary[EinetsOfOneStructure, StandIn] = WeakKeyDictionary()


class EinetsOfOneStructure(Mixture):
    """Components that differ in their parameters alone, which can stand in for each other."""

    @property
    def einets(self) -> list[Einet]:
        """The components.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.ClusteredEinet(graph, einet.Gaussian(), num_sums=3, num_clusters=4)
            >>> len(model.einets), model.einets[0].num_sums
            (4, 3)
        """
        return list(self.components)  # type: ignore[arg-type]

    @property
    def num_clusters(self) -> int:
        """C, the number of components.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> einet.ClusteredEinet(
            ...     graph, einet.Gaussian(), num_sums=3, num_clusters=4
            ... ).num_clusters
            4
        """
        return len(self.components)

    @property
    def weights(self) -> Float[Tensor, " components"]:
        """The components' weights."""
        return self.log_weights.detach().exp()

    @property
    def graph(self) -> RegionGraph:
        """The structure of every component."""
        return self.einets[0].graph

    @property
    def precision(self) -> Precision:
        """How exactly the fused kernels multiply; see :class:`~einet.Einet`.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.ClusteredEinet(graph, einet.Gaussian(), num_sums=3, num_clusters=2)
            >>> model.precision = "high"
            >>> [part.precision for part in model.einets]
            ['high', 'high']
        """
        return self.einets[0].precision

    @precision.setter
    def precision(self, value: Precision) -> None:
        for component in self.einets:
            component.precision = value

    def check_support(self, batch: Batch, name: str) -> None:
        # All components have the same families.
        self.einets[0].check_support(batch, name)

    def component_log_prob(self, batch: Batch) -> Float[Tensor, "components batch"]:
        if self._plain(batch):
            return super().component_log_prob(batch)
        stand_in = self._stand_in()
        with stand_in.lock:
            logs = [stand_in.become(each).log_prob(batch) for each in self.einets]
        return join(torch.stack(logs), self.log_weights)

    def _plain(self, batch: Batch) -> bool:
        """Whether components answer themselves: where nothing is recorded, and for gradients."""
        first = self.einets[0]
        computed = parametrize.is_parametrized(first.circuit.sum_layers[0])
        return first.device.type != "cuda" or computed or first.is_tracked(batch)

    def _stand_in(self) -> StandIn:
        known = _stand_ins.get(self)
        if known is None or not known.serves(self.einets[0]):
            known = _stand_ins[self] = StandIn(self.einets[0])
        return known
