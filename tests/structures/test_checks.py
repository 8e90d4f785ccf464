import re

import pytest

from einet.structures import RegionGraph, StructureError

A, B, C, D = 0b0001, 0b0010, 0b0100, 0b1000
ALL = A | B | C | D

Case = tuple[list[int], list[tuple[int, tuple[int, ...]]], str]

CASES: dict[str, Case] = {
    "no region": ([], [], "needs at least one region, got none"),
    "empty scope": (
        [ALL, 0],
        [],
        "region 1 has an empty scope; a region needs at least one variable",
    ),
    "negative scope": ([ALL, -2], [], "region 1 has scope -2; a scope is a bitmask"),
    "unknown variable": (
        [ALL, A | 1 << 4],
        [],
        "region 1 {0, 4} has variables {4}; allowed are 0 to 3 (num_variables=4)",
    ),
    "unknown region": (
        [ALL],
        [(7, (0, 1))],
        "partition 0 belongs to region 7, which does not exist; allowed are 0 to 0",
    ),
    "no children": (
        [ALL],
        [(0, ())],
        "partition 0 of region 0 {0-3} has children (); a partition needs at least 2",
    ),
    "only child": (
        [ALL, ALL],
        [(0, (1,))],
        "partition 0 of region 0 {0-3} has children (1,); a partition needs at least 2",
    ),
    "unknown child": (
        [ALL, A],
        [(0, (1, 2))],
        "partition 0 of region 0 {0-3} has children (1, 2); allowed are 0 to 1",
    ),
    "negative child": (
        [ALL, A],
        [(0, (1, -1))],
        "partition 0 of region 0 {0-3} has children (1, -1); allowed are 0 to 1",
    ),
    "repeated child": (
        [ALL, A | B, C | D],
        [(0, (1, 2)), (0, (1, 1))],
        "partition 1 of region 0 {0-3} has children (1, 1); no child may be repeated",
    ),
    "two roots": (
        [ALL, A | B, C | D, A],
        [(0, (1, 2))],
        "may be a child of no partition; these are: region 0 {0-3}, region 3 {0}, "
        "so all but one cannot be reached",
    ),
    "many roots": ([ALL] * 7, [], "region 4 {0-3} and 2 more, so"),
    "all in a cycle": (
        [ALL, ALL, A],
        [(0, (1, 2)), (1, (0, 2))],
        "the graph has a cycle: region 0 {0-3} is in partition 1 of region 1 {0-3}, "
        "in partition 0 of region 0 {0-3}; no region may contain itself",
    ),
    "cycle below the root": (
        [ALL, A | B, C | D, B, A],
        [(0, (1, 2)), (1, (3, 4)), (3, (4, 1))],
        "the graph has a cycle: region 1 {0, 1} is in partition 2 of region 3 {1}, "
        "in partition 1 of region 1 {0, 1};",
    ),
    "cycle apart": (
        [ALL, A, B],
        [(1, (2, 1)), (2, (1, 2))],
        "the graph has a cycle: region ",
    ),
    "long cycle": (
        [ALL, *[A] * 8],
        [(0, (1, 2)), *((region, (0, region % 8 + 1)) for region in range(1, 9))],
        "the graph has a cycle: region 8 {0} is in partition 7 of region 7 {0}, "
        "in partition 6 of region 6 {0}, in partition 5 of region 5 {0}, "
        "in partition 4 of region 4 {0}, ..., in partition 8 of region 8 {0};",
    ),
    "own child": (
        [ALL, A, B],
        [(0, (1, 2)), (2, (2, 1))],
        "the graph has a cycle: region 2 {1} is in partition 1 of region 2 {1};",
    ),
    "overlap": (
        [ALL, A | B | C, C | D],
        [(0, (1, 2))],
        "partition 0 of region 0 {0-3} is not decomposable: its children region 1 {0-2} and "
        "region 2 {2, 3} share variables {2}; children must be disjoint",
    ),
    "overlap of sizes that add up": (
        [ALL, A | B, B, C],
        [(0, (1, 2, 3))],
        "its children region 1 {0, 1} and region 2 {1} share variables {1}",
    ),
    "missing variable": (
        [ALL, A | B, C],
        [(0, (1, 2))],
        "partition 0 of region 0 {0-3} is not smooth: its children region 1 {0, 1}, region 2 {2} "
        "lack variables {3}; their union must be the scope of the region",
    ),
    "foreign variable": (
        [ALL, A | B, C | D, A, C],
        [(0, (1, 2)), (1, (3, 4))],
        "partition 1 of region 1 {0, 1} is not smooth: its children region 3 {0}, region 4 {2} "
        "lack variables {1} and have variables {2} that the region does not have",
    ),
    "excess variable": (
        [A | B, A, B, C],
        [(0, (1, 2, 3))],
        "is not smooth: its children region 1 {0}, region 2 {1}, region 3 {2} have variables {2}",
    ),
    "partial root": (
        [A | B | C, A, B | C],
        [(0, (1, 2))],
        "the root, region 0 {0-2}, lacks variables {3}; it must be over all 4 variables",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_invalid_graphs_are_named(name: str):
    scopes, partitions, message = CASES[name]
    with pytest.raises(StructureError, match=re.escape(message)):
        RegionGraph(4, scopes, partitions)


def test_structure_error_is_a_value_error():
    assert issubclass(StructureError, ValueError)


@pytest.mark.parametrize("num_variables", [0, -1])
def test_a_graph_has_variables(num_variables: int):
    with pytest.raises(ValueError, match=f"num_variables must be .* >= 1, got {num_variables}"):
        RegionGraph(num_variables, [1], [])


def test_long_scopes_are_abbreviated():
    odd = sum(1 << variable for variable in range(1, 100, 2))
    with pytest.raises(StructureError) as error:
        RegionGraph(100, [(1 << 100) - 1, odd, odd], [(0, (1, 2))])
    assert "region 1 {1, 3, 5, ...; 50 variables}" in str(error.value)
    assert len(str(error.value)) < 250
