import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given

from einet.structures import Partition, RegionGraph, StructureError, random_trees
from tests.structures.strategies import region_graphs


@pytest.fixture
def graph() -> RegionGraph:
    """Region 5 at the root has two partitions; region 3 is a leaf far below one of them."""
    return RegionGraph(
        4,
        [0b0001, 0b0010, 0b0100, 0b1000, 0b0011, 0b1111, 0b0111],
        [(5, (6, 3)), (4, (0, 1)), (6, (4, 2)), (5, (4, 2, 3))],
    )


def test_attributes(graph: RegionGraph):
    assert graph.num_variables == 4
    assert graph.root == 5
    assert graph.leaves == (0, 1, 2, 3)
    assert graph.partitions[0] == Partition(5, (6, 3))
    assert graph.partitions_of(5) == (0, 3)
    assert graph.partitions_of(0) == ()
    assert graph.variables(6) == (0, 1, 2)
    assert repr(graph) == (
        "RegionGraph(num_variables=4, regions=7, leaves=4, partitions=4, layers=4)"
    )


def test_takes_any_iterables():
    graph = RegionGraph(2, iter([1, 2, 3]), iter([(2, [0, 1])]))
    assert graph == RegionGraph(2, (1, 2, 3), (Partition(2, (0, 1)),))
    assert type(graph.partitions[0]) is Partition


@pytest.mark.parametrize("region", [-1, 7])
def test_unknown_regions_are_refused(graph: RegionGraph, region: int):
    with pytest.raises(IndexError, match=f"region must be 0 to 6, got {region}"):
        graph.variables(region)
    with pytest.raises(IndexError, match=f"region must be 0 to 6, got {region}"):
        graph.partitions_of(region)


def test_graphs_are_immutable(graph: RegionGraph):
    with pytest.raises(FrozenInstanceError):
        graph.root = 0  # pyright: ignore[reportAttributeAccessIssue]


def test_equality(graph: RegionGraph):
    same = RegionGraph(graph.num_variables, graph.scopes, graph.partitions)
    assert same == graph
    assert hash(same) == hash(graph)
    assert graph != RegionGraph(graph.num_variables, graph.scopes, graph.partitions[::-1])
    assert graph != random_trees(4, depth=2, replicas=1)
    assert graph != "graph"


def test_copies_are_equal(graph: RegionGraph):
    assert copy.deepcopy(graph) == graph
    again = pickle.loads(pickle.dumps(graph))
    assert again == graph
    assert again.layers() == graph.layers()


def test_layers_follow_the_longest_path(graph: RegionGraph):
    assert graph.layers() == ((0, 1, 2, 3), (4,), (6,), (5,))


def test_layers_are_filled_from_above():
    # Region 6 could be computed in the lowest inner layer, but Algorithm 1 goes from the root.
    graph = RegionGraph(
        5,
        [1, 2, 4, 8, 16, 0b00111, 0b11000, 0b00011, 0b11111],
        [(8, (5, 6)), (5, (7, 2)), (7, (0, 1)), (6, (3, 4))],
    )
    assert graph.layers() == ((0, 1, 2, 3, 4), (7,), (5, 6), (8,))


def test_a_root_alone_is_one_layer():
    graph = RegionGraph(3, [0b111], [])
    assert graph.layers() == ((0,),)
    assert graph.leaves == (0,)
    assert graph.root == 0


@given(region_graphs())
def test_layers_are_topological(graph: RegionGraph):
    layers = graph.layers()
    layer_of = {region: number for number, layer in enumerate(layers) for region in layer}
    assert sum(map(len, layers)) == len(graph.scopes) == len(layer_of)
    assert all(layer == tuple(sorted(layer)) and layer for layer in layers)
    assert layers[0] == graph.leaves
    assert layers[-1] == (graph.root,)
    parents: dict[int, set[int]] = {region: set() for region in layer_of}
    for region, children in graph.partitions:
        for child in children:
            assert layer_of[child] < layer_of[region]
            parents[child].add(layer_of[region])
    for region in set(layer_of) - set(graph.leaves) - {graph.root}:
        assert layer_of[region] == min(parents[region]) - 1


@given(region_graphs(max_variables=7, max_children=7))
def test_binarized_keeps_what_was_there(graph: RegionGraph):
    binary = graph.binarized()
    assert all(len(partition.children) == 2 for partition in binary.partitions)
    assert binary.num_variables == graph.num_variables
    assert binary.root == graph.root
    assert binary.leaves == graph.leaves
    assert binary.scopes[: len(graph.scopes)] == graph.scopes
    assert binary.binarized() is binary
    for region in range(len(graph.scopes)):
        assert binary.partitions_of(region) == graph.partitions_of(region)

    def unfold(region: int) -> list[int]:
        if region < len(graph.scopes):
            return [region]
        (number,) = binary.partitions_of(region)
        return [member for child in binary.partitions[number].children for member in unfold(child)]

    for before, after in zip(graph.partitions, binary.partitions, strict=False):
        assert after.region == before.region
        members = [member for child in after.children for member in unfold(child)]
        assert tuple(members) == before.children


def test_binarized_is_balanced_and_private():
    leaves = tuple(range(8))
    graph = RegionGraph(8, [*(1 << leaf for leaf in leaves), 255], [(8, leaves), (8, leaves)])
    binary = graph.binarized()
    assert len(binary.layers()) == 4
    assert len(binary.scopes) == 9 + 2 * 6
    used = [child for partition in binary.partitions for child in partition.children]
    assert all(used.count(region) == 1 for region in range(9, len(binary.scopes)))


def test_binarized_returns_itself_when_nothing_is_to_do():
    graph = random_trees(8, depth=3, replicas=2)
    assert graph.binarized() is graph


def test_items_of_wrong_type_are_named():
    # Iterators, as the shape checks of the tests would look into a list.
    with pytest.raises(StructureError, match="region 1 has scope 2.5; a scope is an integer"):
        RegionGraph(2, iter([3, 2.5]), [])  # pyright: ignore[reportArgumentType]
    with pytest.raises(StructureError, match=r"partition 0 is \(0, 1\); a partition is a pair of"):
        RegionGraph(2, [3, 1], iter([(0, 1)]))  # pyright: ignore[reportArgumentType]
    with pytest.raises(StructureError, match=r"partition 0 is 5; a partition is a pair of"):
        RegionGraph(2, [3, 1], iter([5]))  # pyright: ignore[reportArgumentType]
