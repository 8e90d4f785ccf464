import random
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einet.structures import RegionGraph, random_trees


def test_the_benchmark_structure():
    graph = random_trees(num_variables=512, depth=4, replicas=10)
    assert len(graph.leaves) == 2**4 * 10
    assert len(graph.partitions) == (2**4 - 1) * 10
    assert [len(layer) for layer in graph.layers()] == [160, 80, 40, 20, 1]
    assert {len(graph.variables(leaf)) for leaf in graph.leaves} == {32}


@given(st.integers(2, 40), st.integers(1, 7), st.integers(1, 4), st.integers(0, 2**63 - 1))
def test_trees_are_binary_balanced_and_private(
    num_variables: int, depth: int, replicas: int, seed: int
):
    with warnings.catch_warnings():
        # Of depths that cannot be reached, which the next test is about.
        warnings.simplefilter("ignore", UserWarning)
        graph = random_trees(num_variables, depth, replicas, seed)
    assert graph.root == 0
    assert len(graph.partitions_of(0)) == replicas
    children = [child for partition in graph.partitions for child in partition.children]
    assert sorted(children) == list(range(1, len(graph.scopes)))  # each has one parent
    for region, pair in graph.partitions:
        assert region == 0 or len(graph.partitions_of(region)) == 1
        left, right = (len(graph.variables(child)) for child in pair)
        assert abs(left - right) <= 1
    leaf_sizes = {len(graph.variables(leaf)) for leaf in graph.leaves}
    size = num_variables / 2**depth
    assert leaf_sizes <= {1} if size <= 1 else all(abs(leaf - size) < 1 for leaf in leaf_sizes)


@pytest.mark.parametrize(("num_variables", "deepest"), [(2, 1), (4, 2), (5, 3), (8, 3), (9, 4)])
def test_a_depth_that_cannot_be_reached_is_warned_of(num_variables: int, deepest: int):
    graph = random_trees(num_variables, deepest, replicas=2)
    assert len(graph.layers()) == deepest + 1
    match = f"depth=6 .*num_variables={num_variables}: .* at depth {deepest}, which is used"
    with pytest.warns(UserWarning, match=match):
        assert random_trees(num_variables, depth=6, replicas=2) == graph


def test_a_large_depth_ends_in_single_variables():
    with pytest.warns(UserWarning, match="depth=100"):
        graph = random_trees(5, depth=100, replicas=2)
    assert sorted(graph.variables(leaf) for leaf in graph.leaves) == sorted(
        2 * [(variable,) for variable in range(5)]
    )


def test_replicas_do_not_share_equal_scopes():
    graph = random_trees(2, depth=1, replicas=5)
    assert len(graph.leaves) == 10


def test_the_seed_decides_everything():
    graph = random_trees(30, depth=3, replicas=4, seed=5)
    state = random.getstate()
    random.seed(1)
    assert random_trees(30, depth=3, replicas=4, seed=5) == graph
    random.setstate(state)
    assert random_trees(30, depth=3, replicas=4, seed=6) != graph


def test_graphs_stay_the_same_over_releases():
    graph = random_trees(6, depth=2, replicas=1, seed=0)
    assert [graph.variables(leaf) for leaf in graph.leaves] == [(3, 5), (2,), (1, 4), (0,)]


def test_further_replicas_keep_the_first_ones():
    few, many = (random_trees(16, depth=3, replicas=replicas) for replicas in (2, 3))
    assert many.scopes[: len(few.scopes)] == few.scopes
    assert many.partitions[: len(few.partitions)] == few.partitions


def test_splits_are_uniform():
    # Of four variables, variable 0 has each of the other three by its side equally often.
    partners = {1: 0, 2: 0, 3: 0}
    graph = random_trees(4, depth=1, replicas=3000)
    for leaf in graph.leaves:
        first, second = graph.variables(leaf)
        if first == 0:
            partners[second] += 1
    assert sum(partners.values()) == 3000
    assert all(abs(count - 1000) < 130 for count in partners.values())


@pytest.mark.parametrize(("num_variables", "depth"), [(7, 0), (1, 0), (1, 3)])
def test_a_root_that_is_not_split(num_variables: int, depth: int):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if depth else "error", UserWarning)
        graph = random_trees(num_variables, depth, replicas=1)
    assert graph == RegionGraph(num_variables, [(1 << num_variables) - 1], [])
    with pytest.raises(ValueError, match=f"replicas must be 1 .*depth={depth}.*, got 2"):
        random_trees(num_variables, depth, replicas=2)


@pytest.mark.parametrize(
    ("name", "value", "minimum"),
    [("num_variables", 0, 1), ("depth", -1, 0), ("replicas", 0, 1), ("seed", -1, 0)],
)
def test_arguments_out_of_range(name: str, value: int, minimum: int):
    arguments = {"num_variables": 8, "depth": 2, "replicas": 2, "seed": 0, name: value}
    with pytest.raises(ValueError, match=f"{name} must be an integer >= {minimum}, got {value}"):
        random_trees(**arguments)


@pytest.mark.parametrize("name", ["num_variables", "depth", "replicas", "seed"])
def test_arguments_of_wrong_type(name: str):
    arguments = {"num_variables": 8, "depth": 2, "replicas": 2, "seed": 0, name: 1.0}
    with pytest.raises(TypeError, match=name):
        random_trees(**arguments)  # pyright: ignore[reportArgumentType]
