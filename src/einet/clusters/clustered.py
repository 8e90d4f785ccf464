"""Clusters of data, with an Einet for each: a mixture for data too varied for a single one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from einet._checks import as_int
from einet._memory import check_memory
from einet.clusters.fitting import ClusterFitting
from einet.clusters.refining import ClusterRefining
from einet.clusters.stand_in import twin
from einet.families import ExponentialFamily
from einet.kernels.dispatch import Precision
from einet.models.einet import Einet
from einet.models.mixture import Mixture, as_models
from einet.structures import RegionGraph

__all__ = ["ClusteredEinet"]


class ClusteredEinet(ClusterFitting, ClusterRefining):
    r"""A mixture of Einets on one structure, each trained on one cluster of the rows.

    The paper's model of images (sec. 4.2): k-means finds C clusters, an Einet is learnt from each,
    and they are mixed with the clusters' shares of the rows,
    :math:`p(x) = \sum_c \frac{n_c}{n}\, p_c(x)`. It is a mixture like any other:
    its conditionals draw the component from its exact posterior. Afterwards, :meth:`refine` learns
    all of it together. On a GPU one recorded model answers for all components.

    Args:
        graph: The structure of every component.
        family: The leaves' exponential family: one for all variables or one for each.
        num_sums: K, the number of sums in each inner region.
        num_clusters: C, the number of components.
        num_leaves, sums, precision, seed, dtype, device: As in :class:`~einet.Einet`.

    Example:
        >>> import einet, torch
        >>> kind = torch.arange(200).unsqueeze(1) % 2
        >>> x = 5.0 * kind + torch.randn(200, 4, generator=torch.manual_seed(0))
        >>> graph = einet.random_trees(num_variables=4, depth=1, replicas=2)
        >>> model = einet.ClusteredEinet(graph, einet.Gaussian(), num_sums=3, num_clusters=2)
        >>> history = model.fit(x, epochs=5, progress=False)
        >>> history.sizes
        [100, 100]
        >>> model.weights
        tensor([0.5000, 0.5000])
        >>> posterior = model.given(torch.tensor([[5.0, *[float("nan")] * 3]]))
        >>> posterior.mean().round()
        tensor([[5., 5., 5., 5.]])
        >>> history = model.refine(x, epochs=2, progress=False)
        >>> history.train[1] > history.train[0]
        True
    """

    def __init__(
        self,
        graph: RegionGraph,
        family: ExponentialFamily | Sequence[ExponentialFamily],
        num_sums: int,
        num_clusters: int,
        *,
        num_leaves: int | None = None,
        sums: str = "einsum",
        precision: Precision = "highest",
        seed: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        num_clusters = as_int("num_clusters", num_clusters, minimum=1)
        first = Einet(
            graph,
            family,
            num_sums,
            num_leaves=num_leaves,
            sums=sums,
            precision=precision,
            seed=seed,
            dtype=dtype,
            device=device,
        )
        size = sum(tensor.nbytes for tensor in first.state_dict().values())
        check_memory("num_clusters", num_clusters * size)
        super().__init__([first, *(twin(first) for _ in range(num_clusters - 1))])

    @classmethod
    def of(cls, components: Sequence[Einet], weights: Any = None) -> ClusteredEinet:
        """Einets on one structure that were trained elsewhere, such as in a file.

        Args:
            components: The Einets.
            weights: A weight for each, not negative; they are normalised. Equal by default.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> parts = [einet.Einet(graph, einet.Gaussian(), 3, seed=seed) for seed in (0, 1)]
            >>> model = einet.ClusteredEinet.of(parts, weights=[1, 3])
            >>> model.num_clusters, model.weights
            (2, tensor([0.2500, 0.7500]))
        """
        components = as_models(components, Einet)
        first, *others = components
        if any(_form(other) != _form(first) or other.graph != first.graph for other in others):
            raise ValueError("components must have the same structure, families and types")
        model = cls.__new__(cls)
        Mixture.__init__(model, components, weights)
        return model

    def describe(self, graphs: dict[RegionGraph, str]) -> dict[str, Any]:
        # To a reader that does not know of clusters, it is a mixture.
        return {**super().describe(graphs), "clustered": True}

    def extra_repr(self) -> str:
        """What torch prints of the mixture beside its components.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> einet.ClusteredEinet(graph, einet.Gaussian(), 3, num_clusters=2).extra_repr()
            'variables=2, clusters=2'
        """
        return f"variables={self.num_variables}, clusters={self.num_clusters}"


def _form(model: Einet) -> list[Any]:
    """What models must have in common to stand in for each other."""
    families = [(type(g.family), repr(g.family.config())) for g in model.leaf.family_groups]
    tensors = [(name, t.shape, t.dtype) for name, t in model.state_dict().items()]
    return [model.sums, families, tensors]
