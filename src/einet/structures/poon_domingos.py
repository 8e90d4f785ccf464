"""The Poon-Domingos structure for images and other grids."""

import math
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from numbers import Real
from operator import index
from typing import Any, TypeAlias

from einet._checks import as_int, shown
from einet.structures.arguments import as_variables, check_size
from einet.structures.graph import RegionGraph

__all__ = ["poon_domingos"]

_LARGEST = sys.float_info.max
_Interval: TypeAlias = tuple[int, int]  # from the first up to, not including, the second
_Box: TypeAlias = tuple[_Interval, ...]  # one interval for each axis


def poon_domingos(
    shape: Sequence[int],
    delta: int | float | Sequence[int | float],
    axes: Iterable[int] | None = None,
    channels: int = 1,
) -> RegionGraph:
    """All boxes of a grid and all ways to cut them in two, in steps (Poon and Domingos, 2011).

    The whole grid is the root. A box is cut across each axis at every multiple of ``delta`` that
    lies inside it, counted from the origin of the grid and rounded up to a whole cell. Each cut is
    one partition into two boxes, which are cut in turn. A box met again on another way is the same
    region. Boxes without a cut inside are leaves.

    With several values of ``delta`` a box is cut by the first of them that has a cut inside it, on
    any axis; finer ones serve only boxes that no coarser one can cut.

    Args:
        shape: The size of the grid along each axis: ``(height, width)`` for an image.
        delta: The step between cuts, a positive number (below 1 acts as 1), or several of them
            in descending order.
        axes: The axes to cut across, by default all. With ``shape=(32, 32)``, ``[1]`` or ``[-1]``
            cuts the width only: vertical cuts, as in the paper's image models.
        channels: The number of variables in each cell, which always share a leaf. Variables
            are numbered as in an array of shape ``(*shape, channels)`` flattened in C order.

    Returns:
        The graph; its root is region 0.

    Example:
        >>> graph = poon_domingos((32, 32), delta=8, axes=[1], channels=3)
        >>> graph
        RegionGraph(num_variables=3072, regions=10, leaves=4, partitions=10, layers=4)
        >>> graph.variables(graph.leaves[0])[22:27]  # the end of 8 cells, and the row below
        (22, 23, 96, 97, 98)
        >>> len(poon_domingos((28, 28), delta=[14, 7]).leaves)
        16
    """
    sizes = _checked_shape(shape)
    steps = _checked_delta(delta)
    cut_axes = _checked_axes(axes, len(sizes))
    channels = as_int("channels", channels, minimum=1)
    _check_size(sizes, steps, cut_axes, channels)
    cuts = [{axis: _cut_positions(sizes[axis], step) for axis in cut_axes} for step in steps]

    @cache
    def halves(level: int, axis: int, interval: _Interval) -> list[tuple[_Interval, _Interval]]:
        low, high = interval
        inside = [cut for cut in cuts[level][axis] if low < cut < high]
        return [((low, cut), (cut, high)) for cut in inside]

    whole: _Box = tuple((0, size) for size in sizes)
    region_of: dict[_Box, int] = {whole: 0}
    boxes: list[_Box] = [whole]
    partitions: list[tuple[int, tuple[int, int]]] = []
    for region, box in enumerate(boxes):  # which grows: new boxes get their turn
        for level in range(len(steps)):
            num_before = len(partitions)
            for axis in cut_axes:
                before, after = box[:axis], box[axis + 1 :]
                for lower, upper in halves(level, axis, box[axis]):
                    pair = []
                    for interval in (lower, upper):
                        child = (*before, interval, *after)
                        number = region_of.setdefault(child, len(boxes))
                        if number == len(boxes):
                            boxes.append(child)
                        pair.append(number)
                    partitions.append((region, (pair[0], pair[1])))
            if len(partitions) > num_before:
                break
    scopes = _scopes(boxes, sizes, channels)
    return RegionGraph(math.prod(sizes) * channels, scopes, partitions)


def _check_size(
    sizes: Sequence[int], steps: Sequence[float], axes: Sequence[int], channels: int
) -> None:
    """Raise where there would be too many boxes: their number grows fast as steps get small."""
    num_variables = as_variables(math.prod(sizes) * channels, "shape and channels")
    regions = partitions = 0
    # A finer step cuts the cells that the coarser one before it has left.
    cells = list(sizes)
    for step in steps:
        whole = max(1, math.ceil(step - 1e-9))
        cuts = [-(-cells[axis] // whole) - 1 for axis in axes]
        copies = math.prod(-(-sizes[axis] // cells[axis]) for axis in axes)
        intervals = [math.comb(count + 2, 2) for count in cuts]
        boxes = math.prod(intervals)
        regions += copies * boxes
        for count, number in zip(cuts, intervals, strict=True):
            partitions += copies * math.comb(count + 2, 3) * boxes // number
        for axis in axes:
            cells[axis] = min(cells[axis], whole)
    check_size("shape and delta", num_variables, regions, partitions)


def _scopes(boxes: Sequence[_Box], sizes: Sequence[int], channels: int) -> list[int]:
    """The bitmasks of boxes: the pattern of the last axes, repeated along the axis before."""

    @cache
    def scope(box: _Box) -> int:
        if not box:
            return (1 << channels) - 1
        low, high = box[0]
        stride = channels * math.prod(sizes[len(sizes) - len(box) + 1 :])
        return _repeat(scope(box[1:]), high - low, stride) << (low * stride)

    return [scope(box) for box in boxes]


def _repeat(pattern: int, times: int, stride: int) -> int:
    """A bit pattern side by side with itself, by doubling: logarithmically many long shifts."""
    result = copies = 0
    for digit in f"{times:b}":
        result |= result << (copies * stride)
        copies *= 2
        if digit == "1":
            result = (result << stride) | pattern
            copies += 1
    return result


def _cut_positions(size: int, step: float) -> list[int]:
    if step <= 1:
        return list(range(1, size))
    positions: list[int] = []
    # In floating point 25 * 2.2 is 55.00000000000001: without the small number this whole multiple
    # would be rounded up to 56.
    while (position := math.ceil((len(positions) + 1) * step - 1e-9)) < size:
        positions.append(position)
    return positions


def _checked_shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, Iterable) or isinstance(shape, str) or not getattr(shape, "ndim", 1):
        raise TypeError(f"shape must be a list of integers, got {shown(shape)}")
    sizes = tuple(as_int("each size in shape", size, minimum=1) for size in shape)
    if not sizes:
        raise ValueError("shape must have at least one axis, got none")
    return sizes


def _checked_delta(delta: Any) -> list[float]:
    several = isinstance(delta, Iterable) and not isinstance(delta, str)
    steps = list(delta) if several and getattr(delta, "ndim", 1) else [delta]
    for step in steps:
        if isinstance(step, bool) or not isinstance(step, Real):
            raise TypeError(
                f"delta must be a positive number or a list of them, got {shown(delta)}"
            )
    if not all(0 < step <= _LARGEST for step in steps):
        raise ValueError(f"delta must be positive and finite, got {shown(delta)}")
    steps = [float(step) for step in steps]
    if not steps or any(first <= second for first, second in pairwise(steps)):
        raise ValueError(
            f"delta must be one or more numbers in descending order, got {shown(delta)}"
        )
    return steps


def _checked_axes(axes: Iterable[int] | None, ndim: int) -> list[int]:
    if axes is None:
        return list(range(ndim))
    allowed = f"axes must be a list of different axes in {-ndim} to {ndim - 1}, got {shown(axes)}"
    try:
        chosen = [index(axis) for axis in axes]
    except TypeError:
        raise TypeError(allowed) from None
    if not chosen or any(not -ndim <= axis < ndim for axis in chosen):
        raise ValueError(allowed)
    unique = sorted({axis % ndim for axis in chosen})
    if len(unique) < len(chosen):
        raise ValueError(allowed)
    return unique
