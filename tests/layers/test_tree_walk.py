"""The order in which programs walk through trees."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from einet.layers.tree_walk import walk_plan


@given(st.lists(st.integers(1, 6), min_size=1, max_size=25), st.integers(0, 3))
def test_walks_of_any_forest(steps: list[int], tops: int):
    """Parents come later; the last sums, and those that would reach beyond, are topmost."""
    sums, first = len(steps), 10
    parents = [row + step if row + step < sums - tops else -1 for row, step in enumerate(steps)]
    lists = [[first + c for c, p in enumerate(parents) if p == row] for row in range(sums)]
    lists = [[*nodes, row % first] for row, nodes in enumerate(lists)]
    plan = walk_plan(lists, parents, first)
    records = plan["records"]

    for row, (begin, inner, end, above, onward, siblings, *_) in enumerate(records):
        nodes = plan["children"][begin:end]
        assert sorted(nodes) == sorted(lists[row])
        assert all(node < first for node in nodes[: inner - begin])
        assert all(node >= first for node in nodes[inner - begin :])
        assert (onward >= 0) == (inner < end)
        assert onward < 0 or parents[onward] == row
        assert above == parents[row] if parents[row] >= 0 else above < 0
        if above >= 0:
            assert siblings == records[above][2] - records[above][1]
    assert sorted(-1 - r[3] for r in records if r[3] < 0) == list(range(parents.count(-1)))

    # Upwards: whoever is last goes on, and in the end every sum has been reached once.
    arrived, reached = [0] * sums, []
    for row in plan["starts"]:
        while row >= 0:
            reached.append(row)
            above = records[row][3]
            if above >= 0:
                arrived[above] += 1
            row = above if above >= 0 and arrived[above] == records[row][5] else -1
    assert sorted(reached) == list(range(sums))

    # Downwards: a path begins after the sum above it.
    done: list[int] = []
    for row in plan["heads"]:
        assert parents[row] < 0 or parents[row] in done
        while row >= 0:
            done.append(row)
            row = records[row][4]
    assert sorted(done) == list(range(sums))
