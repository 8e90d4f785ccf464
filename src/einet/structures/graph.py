"""The region graph: the structure of a circuit, apart from its parameters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import index
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from einet.structures import checks, drawing, serialization
from einet.structures.arguments import as_variables
from einet.structures.scopes import variables_of
from einet.structures.summary import summarize

__all__ = ["Partition", "RegionGraph"]


class Partition(NamedTuple):
    """One way to split a region: a product of its children.

    Example:
        >>> import einet
        >>> graph = einet.random_trees(num_variables=4, depth=1, replicas=1)
        >>> graph.partitions[0]
        Partition(region=0, children=(1, 2))
    """

    region: int
    children: tuple[int, ...]


@final
@dataclass(frozen=True, init=False, repr=False)
class RegionGraph:
    """Regions, each over a set of variables, and the partitions that split them.

    A *region* is a vector of sum nodes, or of leaf distributions where nothing splits it. A
    *partition* of a region is a product of two or more child regions whose scopes are disjoint and
    have the region's scope as their union. Regions are known by their number; two of them may have
    the same scope (the replicas of :func:`random_trees`) and one may be the child of many
    partitions (:func:`poon_domingos`).

    The constructor checks everything and raises :class:`StructureError` on the first fault: one
    root, over all variables, from which all regions are reached; no cycles; decomposable and
    smooth partitions. To write down a graph by hand, :class:`RegionGraphBuilder` is easier. Graphs
    are equal when their regions and partitions are, number by number.

    Args:
        num_variables: The number of variables, at least 1.
        scopes: The scope of each region as a bitmask: bit ``d`` stands for variable ``d``.
        partitions: Pairs of a region and its children, by number.

    Attributes:
        root: The region that is nobody's child.
        leaves: The regions that no partition splits, ascending.

    Example:
        >>> graph = RegionGraph(3, [0b001, 0b010, 0b100, 0b011, 0b111], [(3, (0, 1)), (4, (2, 3))])
        >>> graph
        RegionGraph(num_variables=3, regions=5, leaves=3, partitions=2, layers=3)
        >>> graph.root, graph.leaves, graph.variables(3), graph.partitions_of(3)
        (4, (0, 1, 2), (0, 1), (0,))
    """

    num_variables: int
    scopes: tuple[int, ...]
    partitions: tuple[Partition, ...]
    # The rest follows from these three.
    root: int = field(compare=False)
    leaves: tuple[int, ...] = field(compare=False)
    _layers: tuple[tuple[int, ...], ...] = field(compare=False)
    _partitions_of: tuple[tuple[int, ...], ...] = field(compare=False)

    def __init__(
        self,
        num_variables: int,
        scopes: Iterable[int],
        partitions: Iterable[tuple[int, Iterable[int]]],
    ) -> None:
        num_variables = as_variables(num_variables)
        bitmasks = _as_bitmasks(scopes)
        splits = _as_partitions(partitions)
        checks.check_scopes(num_variables, bitmasks)
        checks.check_partition_ids(bitmasks, splits)
        layers = checks.topological_layers(bitmasks, splits)
        root = layers[-1][0]
        checks.check_partition_scopes(num_variables, root, bitmasks, splits)
        partitions_of: list[list[int]] = [[] for _ in bitmasks]
        for number, partition in enumerate(splits):
            partitions_of[partition.region].append(number)

        def assign(name: str, value: object) -> None:
            object.__setattr__(self, name, value)  # past the frozen dataclass's own __setattr__

        assign("num_variables", num_variables)
        assign("scopes", bitmasks)
        assign("partitions", splits)
        assign("root", root)
        assign("leaves", layers[0])
        assign("_layers", layers)
        assign("_partitions_of", tuple(map(tuple, partitions_of)))

    def __repr__(self) -> str:
        return (
            f"RegionGraph(num_variables={self.num_variables}, regions={len(self.scopes)}, "
            f"leaves={len(self.leaves)}, partitions={len(self.partitions)}, "
            f"layers={len(self._layers)})"
        )

    def partitions_of(self, region: int) -> tuple[int, ...]:
        """The partitions of a region, as ascending indices into :attr:`partitions`.

        Args:
            region: The number of the region.
        """
        return self._partitions_of[self._known(region)]

    def variables(self, region: int) -> tuple[int, ...]:
        """The variables in a region's scope, ascending.

        Args:
            region: The number of the region.
        """
        return variables_of(self.scopes[self._known(region)])

    def _known(self, region: int) -> int:
        # A negative number would silently count from the end of the tuple.
        if not 0 <= region < len(self.scopes):
            raise IndexError(f"region must be 0 to {len(self.scopes) - 1}, got {region}")
        return region

    def layers(self) -> tuple[tuple[int, ...], ...]:
        """The regions in layers, bottom-up, as Algorithm 1 of the paper's appendix arranges them.

        The first layer holds all leaves and the last one only the root; the children of a region
        lie in lower layers, not always in the next one. A root that is itself a leaf makes up the
        only layer.

        Example:
            >>> from einet.structures import random_trees
            >>> random_trees(4, depth=2, replicas=1).layers()
            ((3, 4, 5, 6), (1, 2), (0,))
        """
        return self._layers

    def binarized(self) -> "RegionGraph":
        """The same distribution over partitions of two: larger ones become balanced binary trees.

        Such a partition keeps its number and its region, but its children are gathered in two
        halves. A half of several children becomes a new region, private to this partition and
        split in the same way. New regions and new partitions are numbered after the existing
        ones. A graph that has only partitions of two returns itself.

        Example:
            >>> graph = RegionGraph(3, [0b001, 0b010, 0b100, 0b111], [(3, (0, 1, 2))])
            >>> graph.binarized().partitions
            (Partition(region=3, children=(4, 2)), Partition(region=4, children=(0, 1)))
        """
        if all(len(partition.children) == 2 for partition in self.partitions):
            return self
        scopes = list(self.scopes)
        partitions = list(self.partitions)

        def gather(children: tuple[int, ...]) -> int:
            if len(children) == 1:
                return children[0]
            scope = 0
            for child in children:
                scope |= scopes[child]
            scopes.append(scope)
            partitions.append(Partition(len(scopes) - 1, children))
            return len(scopes) - 1

        number = 0
        while number < len(partitions):  # which grows: what gather appends gets its turn too
            region, children = partitions[number]
            if len(children) > 2:
                half = (len(children) + 1) // 2
                halves = (gather(children[:half]), gather(children[half:]))
                partitions[number] = Partition(region, halves)
            number += 1
        return RegionGraph(self.num_variables, scopes, partitions)

    def summary(self) -> str:
        """A report in plain text: counts, leaf sizes and a table of the layers.

        Example:
            >>> from einet.structures import random_trees
            >>> print(random_trees(num_variables=10, depth=2, replicas=3).summary())
            region graph over 10 variables
              regions     19: 12 leaves, 7 inner
              leaf scope  2-3 variables
              partitions  9: 1-3 per inner region, 2 children each
              layers      3
            <BLANKLINE>
              layer  regions  partitions
                  2        1           3  root
                  1        6           6
                  0       12           0  leaves
        """
        return summarize(self)

    def to_svg(self, path: str | PathLike[str] | None = None, *, max_regions: int = 400) -> str:
        """Draw the graph as SVG: regions as boxes with their scope, partitions as dots.

        Args:
            path: A file to write the drawing to as well.
            max_regions: Larger graphs raise a ``ValueError``, as nobody could read the drawing.

        Returns:
            The text of the SVG document.

        Example:
            >>> graph = RegionGraph(2, [0b01, 0b10, 0b11], [(2, (0, 1))])
            >>> graph.to_svg().count("<rect")
            4
        """
        text = drawing.draw(self, max_regions)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The graph as a few ``int32`` arrays, for files of models.

        ``num_variables``, ``num_regions`` and ``root`` are scalars. Leaf ``i`` is the region
        ``leaf_regions[i]`` over ``leaf_variables[leaf_offsets[i] : leaf_offsets[i + 1]]``, and
        ``partition_regions``, ``partition_children`` and ``partition_offsets`` hold the partitions
        likewise. Scopes of inner regions follow from these and are left out.

        Example:
            >>> graph = RegionGraph(2, [0b01, 0b10, 0b11], [(2, (0, 1))])
            >>> graph.to_arrays()["partition_children"]
            array([0, 1], dtype=int32)
            >>> RegionGraph.from_arrays(graph.to_arrays()) == graph
            True
        """
        return serialization.to_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> "RegionGraph":
        """The graph of :meth:`to_arrays`, checked like any other; takes integers of any width.

        Args:
            arrays: The arrays by name.

        Example:
            >>> graph = RegionGraph(2, [0b01, 0b10, 0b11], [(2, (0, 1))])
            >>> RegionGraph.from_arrays(graph.to_arrays()) == graph
            True
        """
        return cls(*serialization.from_arrays(arrays))

    def to_json(self) -> str:
        """The content of :meth:`to_arrays` as one line of JSON, with a format version.

        Example:
            >>> graph = RegionGraph(2, [0b01, 0b10, 0b11], [(2, (0, 1))])
            >>> RegionGraph.from_json(graph.to_json()) == graph
            True
        """
        return serialization.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "RegionGraph":
        """The graph of :meth:`to_json`, checked like any other.

        Args:
            text: The line of JSON.

        Example:
            >>> graph = RegionGraph(2, [0b01, 0b10, 0b11], [(2, (0, 1))])
            >>> RegionGraph.from_json(graph.to_json()) == graph
            True
        """
        return cls(*serialization.from_json(text))


def _as_bitmasks(scopes: Iterable[int]) -> tuple[int, ...]:
    bitmasks = []
    for region, scope in enumerate(scopes):
        try:
            bitmasks.append(index(scope))
        except TypeError:
            raise checks.StructureError(
                f"region {region} has scope {scope!r}; a scope is an integer bitmask"
            ) from None
    return tuple(bitmasks)


def _as_partitions(partitions: Iterable[tuple[int, Iterable[int]]]) -> tuple[Partition, ...]:
    splits = []
    for number, partition in enumerate(partitions):
        try:
            region, children = partition
            splits.append(Partition(index(region), tuple(map(index, children))))
        except (TypeError, ValueError):
            raise checks.StructureError(
                f"partition {number} is {partition!r}; a partition is a pair of a region and its "
                "children, all of them integers"
            ) from None
    return tuple(splits)
