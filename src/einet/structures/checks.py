"""What makes a set of regions and partitions a region graph.

Each check is one pass over the regions or over the edges. All of them see scopes as bitmasks and
partitions as ``(region, children)`` pairs; a scope of 0 stands for one not known yet (a file keeps
the scopes of leaves only) and is left out of messages.
"""

from collections.abc import Sequence
from reprlib import repr as shortened
from typing import TypeAlias

from einet.structures.scopes import describe_scope

__all__ = [
    "StructureError",
    "check_partition_ids",
    "check_partition_scope",
    "check_partition_scopes",
    "check_scopes",
    "describe_region",
    "topological_layers",
]

_Partitions: TypeAlias = Sequence[tuple[int, tuple[int, ...]]]


class StructureError(ValueError):
    """A region graph that is not valid; the message names the region and partition at fault.

    Example:
        >>> import einet
        >>> try:
        ...     einet.RegionGraph(2, [0b01, 0b11], [(1, (0, 0))])
        ... except einet.StructureError as error:
        ...     print(error)
        partition 0 of region 1 {0, 1} has children (0, 0); no child may be repeated
    """


def describe_region(region: int, scopes: Sequence[int]) -> str:
    """How messages name a region: by its id and, where known, its scope.

    >>> describe_region(1, [3, 7])
    'region 1 {0-2}'
    """
    scope = scopes[region]
    return f"region {region} {describe_scope(scope)}" if scope else f"region {region}"


def _describe_regions(regions: Sequence[int], scopes: Sequence[int], limit: int = 5) -> str:
    named = ", ".join(describe_region(region, scopes) for region in regions[:limit])
    return named + (f" and {len(regions) - limit} more" if len(regions) > limit else "")


def check_scopes(num_variables: int, scopes: Sequence[int]) -> None:
    """There is a region, and every scope is a non-empty set of variables in the graph."""
    if not scopes:
        raise StructureError("a region graph needs at least one region, got none")
    for region, scope in enumerate(scopes):
        if scope == 0:
            raise StructureError(
                f"region {region} has an empty scope; a region needs at least one variable"
            )
        if scope < 0:
            raise StructureError(
                f"region {region} has scope {scope}; a scope is a bitmask and cannot be negative"
            )
        if scope.bit_length() > num_variables:
            excess = (scope >> num_variables) << num_variables
            raise StructureError(
                f"{describe_region(region, scopes)} has variables {describe_scope(excess)}; "
                f"allowed are 0 to {num_variables - 1} (num_variables={num_variables})"
            )


def check_partition_ids(scopes: Sequence[int], partitions: _Partitions, first: int = 0) -> None:
    """Partitions name existing regions and have at least two children, none of them twice.

    Messages count the partitions from ``first`` on.
    """
    num_regions = len(scopes)
    for number, (region, children) in enumerate(partitions, start=first):
        if not 0 <= region < num_regions:
            raise StructureError(
                f"partition {number} belongs to region {region}, which does not exist; "
                f"allowed are 0 to {num_regions - 1}"
            )
        if len(children) < 2:
            fault = f"has children {shortened(children)}; a partition needs at least 2"
        elif min(children) < 0 or max(children) >= num_regions:
            fault = f"has children {shortened(children)}; allowed are 0 to {num_regions - 1}"
        elif len(set(children)) < len(children):
            fault = f"has children {shortened(children)}; no child may be repeated"
        else:
            continue
        raise StructureError(f"partition {number} of {describe_region(region, scopes)} {fault}")


def topological_layers(
    scopes: Sequence[int], partitions: _Partitions
) -> tuple[tuple[int, ...], ...]:
    """Layers of regions, bottom-up, by Algorithm 1 of the paper's appendix A.

    Going down from the root, an inner region joins a layer as soon as all its parents lie in
    layers above; all leaves form the bottom layer. On the way this finds the root and shows that
    every region is reached from it and that there is no cycle.

    >>> topological_layers([1, 2, 4, 3, 7], [(3, (0, 1)), (4, (2, 3))])
    ((0, 1, 2), (3,), (4,))
    """
    num_regions = len(scopes)
    open_parents = [0] * num_regions
    children_of: list[list[tuple[int, ...]]] = [[] for _ in scopes]
    for region, children in partitions:
        children_of[region].append(children)
        for child in children:
            open_parents[child] += 1
    roots = [region for region, count in enumerate(open_parents) if count == 0]
    if len(roots) > 1:
        raise StructureError(
            "exactly one region, the root, may be a child of no partition; these are: "
            f"{_describe_regions(roots, scopes)}, so all but one cannot be reached from the root"
        )
    leaves = tuple(region for region, below in enumerate(children_of) if not below)
    layers: list[tuple[int, ...]] = []
    num_reached = 0
    reached = roots
    while reached:
        num_reached += len(reached)
        inner = [region for region in reached if children_of[region]]
        if inner:
            layers.append(tuple(sorted(inner)))
        reached = []
        for region in inner:
            for children in children_of[region]:
                for child in children:
                    open_parents[child] -= 1
                    if open_parents[child] == 0:
                        reached.append(child)
    if num_reached < num_regions:
        _raise_cycle_error(open_parents, scopes, partitions)
    return (leaves, *reversed(layers))


def _raise_cycle_error(
    open_parents: Sequence[int], scopes: Sequence[int], partitions: _Partitions, limit: int = 5
) -> None:
    above: dict[int, tuple[int, int]] = {}
    for number, (region, children) in enumerate(partitions):
        if open_parents[region]:
            above.update(dict.fromkeys(children, (number, region)))
    # A region not reached has a parent not reached, so walking upwards must come round.
    path: dict[int, None] = {}  # an ordered set
    region = next(region for region, count in enumerate(open_parents) if count)
    while region not in path:
        path[region] = None
        region = above[region][1]
    links = []
    for child in list(path)[list(path).index(region) :]:
        number, parent = above[child]
        links.append(f"in partition {number} of {describe_region(parent, scopes)}")
    if len(links) > limit:
        links[limit - 1 : -1] = ["..."]
    raise StructureError(
        f"the graph has a cycle: {describe_region(region, scopes)} is {', '.join(links)}; "
        "no region may contain itself"
    )


def check_partition_scopes(
    num_variables: int, root: int, scopes: Sequence[int], partitions: _Partitions
) -> None:
    """Partitions are decomposable and smooth, and the root is over all variables."""
    sizes = [scope.bit_count() for scope in scopes]
    for number, (region, children) in enumerate(partitions):
        union = size = 0
        for child in children:
            union |= scopes[child]
            size += sizes[child]
        # Sizes add up to the size of the union just when no two children overlap: a short test
        # that settles nearly all partitions with one operation on long integers for each child.
        if size != sizes[region] or union != scopes[region]:
            check_partition_scope(number, region, children, scopes)
    missing = ((1 << num_variables) - 1) & ~scopes[root]
    if missing:
        raise StructureError(
            f"the root, {describe_region(root, scopes)}, lacks variables "
            f"{describe_scope(missing)}; it must be over all {num_variables} variables"
        )


def check_partition_scope(
    number: int, region: int, children: tuple[int, ...], scopes: Sequence[int]
) -> None:
    """One partition is decomposable (disjoint children) and smooth (over its region's scope)."""
    partition = f"partition {number} of {describe_region(region, scopes)}"
    union = 0
    for position, child in enumerate(children):
        if union & scopes[child]:
            other = next(c for c in children[:position] if scopes[c] & scopes[child])
            raise StructureError(
                f"{partition} is not decomposable: its children {describe_region(other, scopes)} "
                f"and {describe_region(child, scopes)} share variables "
                f"{describe_scope(scopes[other] & scopes[child])}; children must be disjoint"
            )
        union |= scopes[child]
    missing, excess = scopes[region] & ~union, union & ~scopes[region]
    faults = [f"lack variables {describe_scope(missing)}"] if missing else []
    if excess:
        faults.append(f"have variables {describe_scope(excess)} that the region does not have")
    if faults:
        raise StructureError(
            f"{partition} is not smooth: its children {_describe_regions(children, scopes)} "
            f"{' and '.join(faults)}; their union must be the scope of the region"
        )
