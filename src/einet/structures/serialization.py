"""Region graphs as integer arrays and as JSON.

Both hold the same: the scopes of the leaves and the children of the partitions, each as one flat
list with offsets. Scopes of inner regions are unions of leaf scopes and are worked out on reading,
so a file grows with the edges of the graph and not with its regions times its variables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from einet.structures import checks
from einet.structures.checks import StructureError
from einet.structures.scopes import scope_of

if TYPE_CHECKING:
    from einet.structures.graph import RegionGraph

__all__ = ["from_arrays", "from_json", "to_arrays", "to_json"]

_FORMAT = "einet.region_graph"
_VERSION = 1
_SCALARS = ("num_variables", "num_regions", "root")
_VECTORS = (
    "leaf_regions",
    "leaf_offsets",
    "leaf_variables",
    "partition_regions",
    "partition_offsets",
    "partition_children",
)

# What the constructor of RegionGraph takes: number of variables, scopes, partitions.
_Parts: TypeAlias = tuple[int, list[int], list[tuple[int, tuple[int, ...]]]]


def _content(graph: RegionGraph) -> dict[str, Any]:
    leaf_variables = [graph.variables(leaf) for leaf in graph.leaves]
    children = [partition.children for partition in graph.partitions]
    return {
        "num_variables": graph.num_variables,
        "num_regions": len(graph.scopes),
        "root": graph.root,
        "leaf_regions": list(graph.leaves),
        "leaf_offsets": _offsets(leaf_variables),
        "leaf_variables": list(chain.from_iterable(leaf_variables)),
        "partition_regions": [partition.region for partition in graph.partitions],
        "partition_offsets": _offsets(children),
        "partition_children": list(chain.from_iterable(children)),
    }


def _offsets(groups: Iterable[Sequence[int]]) -> list[int]:
    return list(accumulate(map(len, groups), initial=0))


def to_arrays(graph: RegionGraph) -> dict[str, np.ndarray]:
    """The arrays of :meth:`RegionGraph.to_arrays`."""
    return {name: np.array(value, dtype=np.int32) for name, value in _content(graph).items()}


def to_json(graph: RegionGraph) -> str:
    """The text of :meth:`RegionGraph.to_json`."""
    header = {"format": _FORMAT, "version": _VERSION}
    return json.dumps({**header, **_content(graph)}, separators=(",", ":"))


def from_json(text: str | bytes) -> _Parts:
    """The parts of a graph written by :func:`to_json`."""
    try:
        content = json.loads(text)
    except ValueError as error:  # JSON or, in bytes, UTF-8
        raise StructureError(f"a region graph must be valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise StructureError(f"a region graph must be a JSON object, got {type(content).__name__}")
    if content.get("format") != _FORMAT:
        raise StructureError(f"format must be {_FORMAT!r}, got {content.get('format')!r}")
    if content.get("version") != _VERSION:
        raise StructureError(
            f"version must be {_VERSION}, the only one this release reads, "
            f"got {content.get('version')!r}"
        )
    return from_arrays(content)


def from_arrays(arrays: Mapping[str, Any]) -> _Parts:
    """The parts of a graph given as arrays, or as lists of integers, under the same names."""
    num_variables, num_regions, root = (int(_integers(arrays, name, 0)) for name in _SCALARS)
    vectors = {name: _integers(arrays, name, 1) for name in _VECTORS}
    leaf_regions = vectors["leaf_regions"].tolist()
    leaf_scopes = _groups(vectors, "leaf_offsets", "leaf_variables", len(leaf_regions))
    regions = vectors["partition_regions"].tolist()
    children = _groups(vectors, "partition_offsets", "partition_children", len(regions))

    # Before anything is made of this size: a broken file could ask for any amount of memory.
    if sorted({*leaf_regions, *regions}) != list(range(len(leaf_regions) + len(set(regions)))):
        raise StructureError(
            "leaf_regions and partition_regions must together name every region from 0 on: each "
            "leaf once and no leaf among the regions of partitions"
        )
    if num_regions != len(leaf_regions) + len(set(regions)):
        raise StructureError(
            f"num_regions must be the number of regions in leaf_regions and partition_regions, "
            f"{len(leaf_regions) + len(set(regions))}, got {num_regions}"
        )
    most = len(vectors["leaf_variables"])
    if num_variables > most:
        raise StructureError(
            f"num_variables must be at most {most}, as many variables as the leaves have among "
            f"them, got {num_variables}; the root must be over all variables"
        )
    scopes = [0] * num_regions
    for region, variables in zip(leaf_regions, leaf_scopes, strict=True):
        if variables and not 0 <= min(variables) <= max(variables) < num_variables:
            raise StructureError(
                f"leaf region {region} has variables from {min(variables)} to {max(variables)}; "
                f"allowed are 0 to {num_variables - 1} (num_variables={num_variables})"
            )
        if len(set(variables)) < len(variables):
            raise StructureError(f"leaf region {region} has a variable more than once")
        scopes[region] = scope_of(variables)
    partitions = list(zip(regions, children, strict=True))
    _fill_inner_scopes(scopes, partitions, root)
    return num_variables, scopes, partitions


def _integers(arrays: Mapping[str, Any], name: str, ndim: int) -> np.ndarray:
    if name not in arrays:
        raise StructureError(f"a region graph needs {name!r}, got only {shortened(sorted(arrays))}")
    kind = "a list of integers" if ndim else "an integer"
    try:
        array = np.asarray(arrays[name])
    except (TypeError, ValueError, OverflowError):
        raise StructureError(f"{name} must be {kind}, got {arrays[name]!r:.60}") from None
    if array.ndim != ndim or (array.size and array.dtype.kind not in "iu"):
        raise StructureError(
            f"{name} must be {kind}, got shape {array.shape} of type {array.dtype}"
        )
    return array.astype(np.int64)


def _groups(
    vectors: Mapping[str, np.ndarray], offsets_name: str, values_name: str, count: int
) -> list[tuple[int, ...]]:
    offsets, values = vectors[offsets_name].tolist(), vectors[values_name].tolist()
    if (
        len(offsets) != count + 1
        or offsets[0] != 0
        or offsets[-1] != len(values)
        or any(start > end for start, end in pairwise(offsets))
    ):
        raise StructureError(
            f"{offsets_name} must be {count + 1} ascending positions in {values_name}, "
            f"from 0 to its length {len(values)}"
        )
    return [tuple(values[start:end]) for start, end in pairwise(offsets)]


def _fill_inner_scopes(
    scopes: list[int], partitions: Sequence[tuple[int, tuple[int, ...]]], root: int
) -> None:
    checks.check_partition_ids(scopes, partitions)
    layers = checks.topological_layers(scopes, partitions)
    if layers[-1] != (root,):
        raise StructureError(
            f"root must be the region that is a child of no partition, {layers[-1][0]}, got {root}"
        )
    # One partition tells the scope; whether the others agree is for the graph's own checks.
    children_of = dict(partitions)
    for layer in layers[1:]:
        for region in layer:
            scope = 0
            for child in children_of[region]:
                scope |= scopes[child]
            scopes[region] = scope
