"""How large the model of a recipe will be, before it is built."""

from __future__ import annotations

import math
from collections.abc import Sequence

from einet._memory import check_room

__all__ = ["check_model", "count_partitions"]

# What a partition takes while a graph is built and compiled, besides weights, and a region,
# besides the bits of its scope.
_PARTITION_BYTES, _REGION_BYTES = 200, 300
_FLOAT = 4
# Parameters, and the statistics that they are learnt from.
_COPIES = 2


def count_partitions(
    grid: tuple[int, int], delta: float | int | Sequence[float | int], axes: str
) -> tuple[int, int]:
    """About how many partitions and regions a Poon–Domingos structure has.

    Args:
        grid: Height and width.
        delta, axes: As in :class:`~einet.imaging.Recipe`.

    Example:
        >>> count_partitions((32, 32), 8, "vertical")
        (10, 10)
        >>> count_partitions((128, 128), 8, "both")
        (184960, 18496)
    """
    steps = list(delta) if isinstance(delta, Sequence) else [delta]
    partitions, regions, boxes = 0, 0, 1
    height, width = map(float, grid)
    for step in steps:
        # Steps below 1 act as 1; the check of steps that are no steps at all is the graph's.
        step = max(1.0, step) if step > 0 else 1.0
        rows = max(1, math.ceil(height / step)) if axes == "both" else 1
        columns = max(1, math.ceil(width / step))
        # A box is two of the cuts on each axis, a partition three of them on one.
        both = math.comb(rows + 1, 2), math.comb(columns + 1, 2)
        cuts = math.comb(rows + 1, 3) * both[1] + both[0] * math.comb(columns + 1, 3)
        partitions, regions = partitions + boxes * cuts, regions + boxes * both[0] * both[1]
        boxes *= rows * columns
        height, width = (min(step, height) if axes == "both" else height), min(step, width)
    return partitions, regions


def check_model(
    shape: tuple[int, int, int],
    num_sums: int,
    num_clusters: int,
    *,
    delta: float | int | Sequence[float | int] | None,
    axes: str = "both",
    family: str = "gaussian",
) -> None:
    """Raise ``MemoryError`` if a model clearly does not fit, before anything is made.

    Args:
        shape: Height, width and channels.
        num_sums: K.
        num_clusters: How many Einets there are on one structure.
        delta: As in :class:`~einet.imaging.Recipe`; None for a tree.
        axes, family: As there.
    """
    variables = math.prod(shape)
    if delta is None:
        weights, partitions, regions = variables * num_sums**2, variables, 2 * variables
    else:
        partitions, regions = count_partitions(shape[:2], delta, axes)
        weights = partitions * num_sums**3
    structure = partitions * _PARTITION_BYTES + regions * (_REGION_BYTES + variables // 8)
    what = "" if delta is None else f", delta {delta} and {axes} axes"
    check_room(f"structures of {'×'.join(map(str, shape))} variables{what}", structure)
    leaves = variables * num_sums * (256 if family == "categorical" else 2)
    check_room(
        f"models with num_sums {num_sums}, {num_clusters} clusters{what}",
        _COPIES * _FLOAT * num_clusters * (weights + leaves),
    )
