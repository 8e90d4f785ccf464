"""In which order programs walk through a tree of sums: upwards by arrival, downwards by paths."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["walk_plan"]


def walk_plan(child_lists: Sequence[Sequence[int]], parents: Sequence[int], first_sum: int) -> dict:
    """Lists of numbers of a :class:`Walk`; a sum that is a child of no other has parent −1."""
    sums = len(parents)
    depth, height, onward = [0] * sums, [0] * sums, [-1] * sums
    # Parents come after their children.
    for row in reversed(range(sums)):
        if parents[row] >= 0:
            depth[row] = depth[parents[row]] + 1
    for row, parent in enumerate(parents):
        if parent >= 0 and (onward[parent] < 0 or height[row] + 1 > height[parent]):
            height[parent], onward[parent] = height[row] + 1, row
    counts = [sum(node >= first_sum for node in nodes) for nodes in child_lists]
    tops = [row for row, parent in enumerate(parents) if parent < 0]
    place = {row: -1 - number for number, row in enumerate(tops)}
    children: list[int] = []
    records = []
    for row, nodes in enumerate(child_lists):
        parent = place.get(row, parents[row])
        first, last = len(children), len(children) + len(nodes)
        siblings = counts[parent] if parent >= 0 else 0
        outer = [node for node in nodes if node < first_sum]
        one, two = (*outer[:2], -1, -1)[:2]
        records.append([first, first + len(outer), last, parent, onward[row], siblings, one, two])
        children += [*outer, *(node for node in nodes if node >= first_sum)]
    starts = [row for row, count in enumerate(counts) if not count]
    heads = [row for row, parent in enumerate(parents) if parent < 0 or onward[parent] != row]
    return {
        "children": children,
        "records": records,
        # Many children take as long as several levels.
        "starts": sorted(starts, key=lambda row: -depth[row] - len(child_lists[row]) // 8),
        # What is left below a sum is less than what is left below the one above.
        "heads": sorted(heads, key=lambda row: -height[row]),
    }
