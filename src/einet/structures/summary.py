"""A region graph in a few lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from einet.structures.graph import RegionGraph

__all__ = ["summarize"]


def summarize(graph: RegionGraph) -> str:
    """The text of :meth:`RegionGraph.summary`."""
    layers = graph.layers()
    per_region = [len(graph.partitions_of(region)) for layer in layers[1:] for region in layer]
    arities = [len(partition.children) for partition in graph.partitions]
    leaf_sizes = [graph.scopes[leaf].bit_count() for leaf in graph.leaves]
    partitions = str(len(arities))
    if arities:
        partitions += f": {_span(per_region)} per inner region, {_span(arities)} children each"
    lines = [
        f"region graph over {_counted(str(graph.num_variables), 'variable')}",
        f"  regions     {len(graph.scopes)}: {len(graph.leaves)} leaves, {len(per_region)} inner",
        f"  leaf scope  {_counted(_span(leaf_sizes), 'variable')}",
        f"  partitions  {partitions}",
        f"  layers      {len(layers)}",
        "",
        "  layer  regions  partitions",
    ]
    for number in reversed(range(len(layers))):
        splits = sum(len(graph.partitions_of(region)) for region in layers[number])
        mark = "  leaves" if number == 0 else "  root" if number == len(layers) - 1 else ""
        lines.append(f"  {number:>5}  {len(layers[number]):>7}  {splits:>10}{mark}")
    return "\n".join(lines)


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}-{high}"


def _counted(number: str, noun: str) -> str:
    return f"{number} {noun}" if number == "1" else f"{number} {noun}s"
