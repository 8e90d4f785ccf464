"""Hypothesis strategies for region graphs, for the tests of the whole library."""

import random
from itertools import pairwise

from hypothesis import strategies as st

from einet.structures import RegionGraph, RegionGraphBuilder

__all__ = ["region_graphs"]


@st.composite
def region_graphs(
    draw: st.DrawFn,
    max_variables: int = 6,
    min_variables: int = 1,
    max_children: int = 3,
    max_partitions: int = 3,
    max_regions: int = 40,
) -> RegionGraph:
    """Small valid region graphs of every shape.

    They have leaves of one and of several variables, up to ``max_partitions`` partitions for each
    region with 2 to ``max_children`` children, regions that are shared and regions with equal
    scopes that are not. Once there are ``max_regions`` regions, all further ones are leaves.
    """
    builder = RegionGraphBuilder(draw(st.integers(min_variables, max_variables), label="variables"))
    made: dict[frozenset[int], list[int]] = {}
    num_made = 0

    def grow(variables: tuple[int, ...]) -> int:
        nonlocal num_made
        known = made.setdefault(frozenset(variables), [])
        if known and draw(st.booleans(), label="share"):
            return draw(st.sampled_from(known), label="shared region")
        num_made += 1
        splits = 0
        if len(variables) > 1 and num_made < max_regions:
            # A root that is a leaf is a case of its own, but not one in four.
            fewest = 0 if num_made > 1 or draw(st.integers(0, 9)) == 0 else 1
            splits = draw(st.integers(fewest, max_partitions), label="partitions")
        if splits == 0:
            region = builder.leaf(variables)
        else:
            region = builder.region(variables)
            for _ in range(splits):
                builder.partition([grow(part) for part in parts(variables)], region=region)
        # Known from now on only: a region under construction must not be shared by itself.
        known.append(region)
        return region

    def parts(variables: tuple[int, ...]) -> list[tuple[int, ...]]:
        order = draw(st.permutations(variables), label="order")
        count = draw(st.integers(2, min(max_children, len(order))), label="children")
        inner = st.lists(
            st.integers(1, len(order) - 1), min_size=count - 1, max_size=count - 1, unique=True
        )
        cuts = [0, *sorted(draw(inner, label="cuts")), len(order)]
        return [tuple(order[a:b]) for a, b in pairwise(cuts)]

    # Beartype, which the tests switch on, picks items to check by the global random state;
    # Hypothesis takes a change of that for a strategy that cannot be repeated.
    state = random.getstate()
    grow(tuple(range(builder.num_variables)))
    graph = builder.build()
    random.setstate(state)
    return graph
