"""Region graphs as SVG, drawn without any other program or library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from einet.structures.scopes import describe_scope

if TYPE_CHECKING:
    from einet.structures.graph import RegionGraph

__all__ = ["draw"]

# Lengths in pixels.
_MARGIN = 24.0
_BOX_HEIGHT = 24.0
_CHARACTER = 7.0
_GAP = 18.0
_DOT_DISTANCE = 12.0
_DOT_DROP = 22.0
_LAYER_DISTANCE = 110.0
_SWEEPS = 8

_STYLE = """
  text { font: 12px sans-serif; text-anchor: middle; dominant-baseline: central; fill: #1c2733; }
  .inner { fill: #dbe9f6; stroke: #2f6690; }
  .leaf { fill: #e6f2df; stroke: #4f772d; }
  .edge { fill: none; stroke: #7d8790; stroke-opacity: 0.7; }
  .partition { fill: #2f6690; }
"""


def draw(graph: RegionGraph, max_regions: int = 400) -> str:
    """The SVG document of :meth:`RegionGraph.to_svg`."""
    if len(graph.scopes) > max_regions:
        raise ValueError(
            f"this graph has {len(graph.scopes)} regions, and only up to max_regions={max_regions} "
            "are drawn, as larger drawings are hard to read; pass a larger max_regions to draw it "
            "all the same, or see summary()"
        )
    labels = [_label(scope) for scope in graph.scopes]
    layers = _ordered_layers(graph)
    widths = [len(label) * _CHARACTER + 14 for label in labels]
    slots = [
        max(width, len(graph.partitions_of(region)) * _DOT_DISTANCE) + _GAP
        for region, width in enumerate(widths)
    ]
    inner_width = max(sum(slots[region] for region in layer) for layer in layers)
    centres = _place(layers, slots, inner_width)
    width = inner_width + 2 * _MARGIN
    height = (len(layers) - 1) * _LAYER_DISTANCE + _BOX_HEIGHT + 2 * _MARGIN

    edges: list[str] = []
    shapes: list[str] = []
    for region, (x, y) in enumerate(centres):
        numbers = graph.partitions_of(region)
        for place, number in enumerate(numbers):
            dot_x = x + (place - (len(numbers) - 1) / 2) * _DOT_DISTANCE
            dot_y = y + _BOX_HEIGHT / 2 + _DOT_DROP
            edges.append(_edge(x, y + _BOX_HEIGHT / 2, dot_x, dot_y))
            for child in graph.partitions[number].children:
                child_x, child_y = centres[child]
                edges.append(_edge(dot_x, dot_y, child_x, child_y - _BOX_HEIGHT / 2))
            shapes.append(
                f'<circle class="partition" cx="{dot_x:.1f}" cy="{dot_y:.1f}" r="3.5">'
                f"<title>partition {number} of region {region}</title></circle>"
            )
        kind = "inner" if numbers else "leaf"
        title = f"region {region} {describe_scope(graph.scopes[region], limit=60)}"
        shapes.append(
            f'<g><title>{title}</title><rect class="{kind}" x="{x - widths[region] / 2:.1f}" '
            f'y="{y - _BOX_HEIGHT / 2:.1f}" width="{widths[region]:.1f}" '
            f'height="{_BOX_HEIGHT:.1f}" rx="7"/>'
            f'<text x="{x:.1f}" y="{y:.1f}">{labels[region]}</text></g>'
        )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.1f} {height:.1f}">',
            f"<style>{_STYLE}</style>",
            '<rect width="100%" height="100%" fill="white"/>',
            *edges,
            *shapes,
            "</svg>",
            "",
        ]
    )


def _label(scope: int) -> str:
    """The variables where they are few, else the first of them and how many there are."""
    text = describe_scope(scope)[1:-1]
    if len(text) <= 16:
        return text
    return f"{text.split(',')[0]}, ... ({scope.bit_count()})"


def _edge(x: float, y: float, to_x: float, to_y: float) -> str:
    # Leaving and arriving upright keeps edges apart near the boxes.
    middle = (y + to_y) / 2
    return (
        f'<path class="edge" d="M{x:.1f} {y:.1f}'
        f'C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"/>'
    )


def _ordered_layers(graph: RegionGraph) -> list[list[int]]:
    """Layers, root first, each in an order that brings connected regions near each other.

    Sweeps over the layers sort each one by the mean place of its neighbours, by turns those above
    and those below: the usual heuristic against crossing edges.
    """
    layers = [list(layer) for layer in reversed(graph.layers())]
    above: list[list[int]] = [[] for _ in graph.scopes]
    below: list[list[int]] = [[] for _ in graph.scopes]
    for region, children in graph.partitions:
        below[region] += children
        for child in children:
            above[child].append(region)
    places = [0.0] * len(graph.scopes)

    def settle(layer: Sequence[int]) -> None:
        for position, region in enumerate(layer):
            places[region] = (position + 0.5) / len(layer)

    for layer in layers:
        settle(layer)
    for sweep in range(_SWEEPS):
        neighbours = below if sweep % 2 else above
        for layer in reversed(layers) if sweep % 2 else layers:
            means = {
                region: sum(places[other] for other in neighbours[region]) / len(neighbours[region])
                if neighbours[region]
                else places[region]
                for region in layer
            }
            layer.sort(key=means.__getitem__)
            settle(layer)
    return layers


def _place(
    layers: Sequence[Sequence[int]], slots: Sequence[float], inner_width: float
) -> list[tuple[float, float]]:
    """The centre of each region's box: every layer is spread evenly over the whole width."""
    centres = [(0.0, 0.0)] * len(slots)
    for number, layer in enumerate(layers):
        spare = (inner_width - sum(slots[region] for region in layer)) / len(layer)
        x = _MARGIN
        y = _MARGIN + _BOX_HEIGHT / 2 + number * _LAYER_DISTANCE
        for region in layer:
            centres[region] = (x + (slots[region] + spare) / 2, y)
            x += slots[region] + spare
    return centres
