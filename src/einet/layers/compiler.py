"""From a region graph to layers of sums (Algorithm 1, appendix A)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import ClassVar, TypeVar

from einet.layers.base import SumLayer
from einet.layers.einsum import EinsumLayer
from einet.layers.linear import LinearLayer
from einet.layers.mixing import MixingLayer
from einet.structures import RegionGraph

__all__ = ["COMPILERS", "Compiler", "EinsumCompiler", "LinearCompiler", "register_sums"]

#: The kinds of sums over partitions: see :func:`register_sums`.
COMPILERS: dict[str, type[Compiler]] = {}

Kind = TypeVar("Kind", bound="type[Compiler]")


def register_sums(name: str) -> Callable[[Kind], Kind]:
    """Make a kind of sums known: a decorator for the compiler that ``Einet(..., sums=name)`` uses.

    A program that loads a model with such sums registers them before.

    Args:
        name: The name of the sums, under which saved files record them.

    Example:
        >>> import einet
        >>> @register_sums("paired")
        ... class PairedSums(EinsumCompiler):
        ...     '''As the paper's, until it defines something else.'''
        >>> graph = einet.random_trees(num_variables=4, depth=1, replicas=1)
        >>> einet.Einet(graph, einet.Gaussian(), num_sums=3, sums="paired").sums
        'paired'
        >>> del COMPILERS["paired"]
    """
    if name in COMPILERS:
        raise ValueError(f"name must be new, but there are {name!r} sums already")

    def register(compiler: Kind) -> Kind:
        COMPILERS[name] = compiler
        return compiler

    return register


class Compiler(ABC):
    """Places every partition of a graph in a layer; regions with several get a mixing layer.

    What is compiled is ``layers``, bottom up, and the ``size`` of their two spaces. A new kind of
    sums is a subclass under :func:`register_sums`, which defines the abstract methods.

    Args:
        graph: The structure.
        num_leaves, num_sums, num_classes: Entries of a leaf, of an inner sum and of the root.
        steep: Leaf regions whose entries may differ by more than a float can hold.

    Example:
        >>> import einet
        >>> graph = einet.random_trees(num_variables=4, depth=1, replicas=2)
        >>> compiled = EinsumCompiler(graph, num_leaves=3, num_sums=3, num_classes=1)
        >>> [type(layer).__name__ for layer in compiled.layers], compiled.size
        (['EinsumLayer', 'MixingLayer'], {'body': 4, 'top': 3})
    """

    #: Whether entries of leaves and sums are multiplied one by one, so that there are as many.
    equal_entries: ClassVar[bool] = False

    def __init__(
        self,
        graph: RegionGraph,
        num_leaves: int,
        num_sums: int,
        num_classes: int,
        steep: Collection[int] = (),
    ) -> None:
        self.graph, self.steep = graph, frozenset(steep)
        self.layers: list[SumLayer] = []
        self.size = {"body": len(graph.leaves), "top": 0}
        self.num_leaves, self.num_sums, self.num_classes = num_leaves, num_sums, num_classes
        self.node = {region: node for node, region in enumerate(graph.leaves)}
        self.entries = dict.fromkeys(graph.leaves, num_leaves)
        self.prepare()
        for regions in self.graph.layers()[1:]:
            self._add(regions)
        if graph.root in self.node and not self.layers:
            # The root is a leaf: a plain mixture of its densities.
            self.append(self.over_leaf(), "top")

    @abstractmethod
    def prepare(self) -> None:
        """What is to be done before the first layer.

        Example:
            >>> import einet
            >>> class Loud(EinsumCompiler):
            ...     def prepare(self):
            ...         super().prepare()
            ...         print(f"{len(self.graph.partitions)} partitions to place")
            >>> graph = einet.random_trees(num_variables=4, depth=1, replicas=2)
            >>> compiled = Loud(graph, num_leaves=3, num_sums=3, num_classes=1)
            2 partitions to place
        """

    @abstractmethod
    def over_leaf(self) -> SumLayer:
        """The root as a sum over the entries of leaf 0.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(
            ...     num_variables=4, depth=0, replicas=1
            ... )  # the root is a leaf
            >>> compiled = EinsumCompiler(graph, num_leaves=3, num_sums=3, num_classes=1)
            >>> compiled.over_leaf()
            EinsumLayer(L=1, K=1, I=3, J=1)
        """

    @abstractmethod
    def add_partitions(self, partitions: list[int], outputs: int, space: str) -> dict[int, int]:
        """Append layers for these partitions; the node of each in ``space``.

        Args:
            partitions: Their numbers.
            outputs: The entries of each sum.
            space: ``"body"``, or ``"top"`` for the root.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=4, depth=1, replicas=1)
            >>> compiled = EinsumCompiler(graph, num_leaves=3, num_sums=3, num_classes=1)
            >>> compiled.add_partitions([0], outputs=1, space="top")  # once more, in the next place
            {0: 1}
        """

    def append(self, layer: SumLayer, space: str) -> None:
        """Add a layer to those compiled so far.

        Args:
            layer: The layer; it begins where its space ends.
            space: ``"body"``, or ``"top"`` for the root.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=4, depth=1, replicas=1)
            >>> compiled = EinsumCompiler(graph, num_leaves=3, num_sums=3, num_classes=1)
            >>> compiled.append(compiled.over_leaf(), "top")
            >>> compiled.size["top"]
            2
        """
        self.layers.append(layer)
        self.size[space] += layer.num_nodes

    def _add(self, regions: tuple[int, ...]) -> None:
        top = regions == (self.graph.root,)
        space, outputs = ("top", self.num_classes) if top else ("body", self.num_sums)
        ordered = sorted(regions, key=lambda region: len(self.graph.partitions_of(region)))
        partitions = [p for region in ordered for p in self.graph.partitions_of(region)]
        simple = self.add_partitions(partitions, outputs, space)
        mixed = []
        for region in ordered:
            nodes = [simple[partition] for partition in self.graph.partitions_of(region)]
            self.entries[region] = outputs
            if len(nodes) == 1:
                self.node[region] = nodes[0]
            else:
                self.node[region] = self.size[space] + len(mixed)
                mixed.append(nodes)
        if mixed:
            self.append(MixingLayer(mixed, outputs, self.size[space], space), space)


@register_sums("einsum")
class EinsumCompiler(Compiler):
    """Sums over outer products of two children; partitions of more are made binary before."""

    def prepare(self) -> None:
        self.graph = self.graph.binarized()

    def over_leaf(self) -> SumLayer:
        return EinsumLayer([0], [-1], self.num_leaves, 1, self.num_classes, 0, "top")

    def add_partitions(self, partitions: list[int], outputs: int, space: str) -> dict[int, int]:
        # One layer, unless leaves and sums differ in their number of entries.
        kinds: dict[tuple[int, int], list[int]] = defaultdict(list)
        for partition in partitions:
            a, b = self._children(partition)
            kinds[self.entries[a], self.entries[b]].append(partition)
        nodes: dict[int, int] = {}
        for (num_left, num_right), alike in kinds.items():
            pairs = [self._children(partition) for partition in alike]
            left, right = (
                [self.node[region] for region in side] for side in zip(*pairs, strict=True)
            )
            start = self.size[space]
            self.append(EinsumLayer(left, right, num_left, num_right, outputs, start, space), space)
            nodes |= {partition: start + i for i, partition in enumerate(alike)}
        return nodes

    def _children(self, partition: int) -> tuple[int, int]:
        a, b = self.graph.partitions[partition].children
        return (a, b) if self.entries[a] >= self.entries[b] else (b, a)


@register_sums("linear")
class LinearCompiler(Compiler):
    """Sums over element-wise products of any number of children, one layer for each level.

    A leaf's entries share one scale, and what is 1e-38 of the largest is 0 in float32. Where two
    *steep* leaves, such as Gaussians far from the data, disagree on which entry is the largest,
    their product would be 0 throughout. Weights are bounded below, so that sums are never steep,
    nor is their product with one steep leaf. Therefore steep leaves of a partition that has
    several get a sum of their own, K mixtures of its K densities, which takes the leaf's place.
    """

    equal_entries = True

    def prepare(self) -> None:
        several = [p for p in range(len(self.graph.partitions)) if len(self._steep_in(p)) > 1]
        leaves = sorted({region for partition in several for region in self._steep_in(partition)})
        start = self.size["body"]
        #: The sum over each of these leaves.
        self.over = {region: start + i for i, region in enumerate(leaves)}
        if leaves:
            children = [[self.node[region]] for region in leaves]
            self.append(LinearLayer(children, self.num_leaves, self.num_sums, start), "body")

    def over_leaf(self) -> SumLayer:
        return LinearLayer([[0]], self.num_leaves, self.num_classes, 0, "top")

    def add_partitions(self, partitions: list[int], outputs: int, space: str) -> dict[int, int]:
        children = {partition: self._nodes(partition) for partition in partitions}
        ordered = sorted(partitions, key=lambda partition: -len(children[partition]))
        start = self.size[space]
        lists = [children[partition] for partition in ordered]
        self.append(LinearLayer(lists, self.num_sums, outputs, start, space), space)
        return {partition: start + i for i, partition in enumerate(ordered)}

    def _steep_in(self, partition: int) -> list[int]:
        children = self.graph.partitions[partition].children
        return [region for region in children if region in self.steep]

    def _nodes(self, partition: int) -> list[int]:
        children = self.graph.partitions[partition].children
        if len(self._steep_in(partition)) < 2:
            return [self.node[region] for region in children]
        return [self.over.get(region, self.node[region]) for region in children]
