"""Region graphs written down by hand, region by region."""

from collections.abc import Iterable
from operator import index
from typing import final

from einet._checks import as_int
from einet.structures import checks
from einet.structures.arguments import as_variables
from einet.structures.checks import StructureError, describe_region
from einet.structures.graph import Partition, RegionGraph
from einet.structures.scopes import scope_of

__all__ = ["RegionGraphBuilder"]


@final
class RegionGraphBuilder:
    """Collects regions and partitions, bottom-up or in any other order, for a region graph.

    Every method that makes a region returns its number. A bad region or partition raises at once
    and leaves the builder as it was; :meth:`build` checks the graph as a whole.

    Args:
        num_variables: The number of variables of the graph, at least 1.

    Example:
        Two ways to split four variables, mixed at the root:

        >>> builder = RegionGraphBuilder(num_variables=4)
        >>> a, b, c, d = (builder.leaf([variable]) for variable in range(4))
        >>> root = builder.partition([builder.partition([a, b]), builder.partition([c, d])])
        >>> builder.partition([builder.leaf([0, 2]), builder.leaf([1, 3])], region=root) == root
        True
        >>> graph = builder.build()
        >>> graph.root == root, [graph.partitions[i].children for i in graph.partitions_of(root)]
        (True, [(4, 5), (7, 8)])

        Top-down, with the region before its partitions:

        >>> builder = RegionGraphBuilder(num_variables=2)
        >>> root = builder.region([0, 1])
        >>> left, right = builder.leaf([0]), builder.leaf([1])
        >>> _ = builder.partition([left, right], region=root)
        >>> builder.build()
        RegionGraph(num_variables=2, regions=3, leaves=2, partitions=1, layers=2)
    """

    def __init__(self, num_variables: int) -> None:
        self.num_variables = as_variables(num_variables)
        self._scopes: list[int] = []
        self._declared_leaves: set[int] = set()
        self._partitions: list[Partition] = []

    def leaf(self, variables: Iterable[int]) -> int:
        """A new region that stays unsplit: a factorised distribution over these variables.

        Args:
            variables: Its variables.

        Returns:
            The number of the region.
        """
        region = self._add(self._scope(variables))
        self._declared_leaves.add(region)
        return region

    def region(self, variables: Iterable[int]) -> int:
        """A new region over these variables, to be split by :meth:`partition`.

        Args:
            variables: Its variables.

        Returns:
            The number of the region.
        """
        return self._add(self._scope(variables))

    def partition(self, children: Iterable[int], region: int | None = None) -> int:
        """Split a region into children; call it again for further partitions of the region.

        Args:
            children: Two or more regions with disjoint scopes.
            region: The region to split. By default a new one, over all variables of the children.

        Returns:
            The region that was split.
        """
        members = self._known_children(children)
        is_new = region is None
        if region is None:
            union = 0
            for child in members:
                union |= self._scopes[child]
            region = self._add(union)
        elif self._known("region", region) in self._declared_leaves:
            raise StructureError(
                f"{self._describe(region)} was made by leaf() and cannot be split; "
                "make it by region() instead"
            )
        number = len(self._partitions)
        try:
            # build() would see it as well, but far from the line that made the mistake.
            checks.check_partition_ids(self._scopes, [(region, members)], first=number)
            checks.check_partition_scope(number, region, members, self._scopes)
        except StructureError:
            if is_new:
                self._scopes.pop()
            raise
        self._partitions.append(Partition(region, members))
        return region

    def build(self) -> RegionGraph:
        """The finished graph; raises :class:`StructureError` where it is not valid."""
        split = {partition.region for partition in self._partitions}
        for region in range(len(self._scopes)):
            if region not in split and region not in self._declared_leaves:
                raise StructureError(
                    f"{self._describe(region)} was made by region() but has no partition; "
                    "split it by partition() or make it by leaf()"
                )
        return RegionGraph(self.num_variables, self._scopes, self._partitions)

    def _add(self, scope: int) -> int:
        self._scopes.append(scope)
        return len(self._scopes) - 1

    def _describe(self, region: int) -> str:
        return describe_region(region, self._scopes)

    def _scope(self, variables: Iterable[int]) -> int:
        try:
            listed = [index(variable) for variable in variables]
        except TypeError:
            raise TypeError(f"variables must be a list of integers, got {variables!r}") from None
        for variable in listed:
            if not 0 <= variable < self.num_variables:
                raise StructureError(
                    f"variables must lie in 0 to {self.num_variables - 1}, got {variable}"
                )
        scope = scope_of(listed)
        if not listed or scope.bit_count() < len(listed):
            raise StructureError(f"variables must be one or more different ones, got {listed}")
        return scope

    def _known(self, name: str, region: int) -> int:
        region = as_int(name, region, minimum=0)
        if region >= len(self._scopes):
            raise StructureError(
                f"{name} must be the number of a region made before, below "
                f"{len(self._scopes)}, got {region}"
            )
        return region

    def _known_children(self, children: Iterable[int]) -> tuple[int, ...]:
        if not isinstance(children, Iterable):
            raise TypeError(
                f"children must be a list of regions, got {children!r}; the region to split is "
                "given as partition(children, region=...)"
            )
        return tuple(self._known("a child", child) for child in children)
