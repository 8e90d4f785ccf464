from hypothesis import Phase, find, given, settings

from einet.structures import RegionGraph
from tests.structures.strategies import region_graphs


@given(region_graphs(max_variables=5, min_variables=3, max_children=2, max_partitions=2))
def test_limits_hold(graph: RegionGraph):
    assert 3 <= graph.num_variables <= 5
    assert all(len(partition.children) == 2 for partition in graph.partitions)
    assert all(len(graph.partitions_of(region)) <= 2 for region in range(len(graph.scopes)))


def test_every_kind_of_graph_occurs():
    def has_shared_region(graph: RegionGraph) -> bool:
        children = [child for partition in graph.partitions for child in partition.children]
        return len(set(children)) < len(children)

    def has_equal_scopes(graph: RegionGraph) -> bool:
        return len(set(graph.scopes)) < len(graph.scopes)

    def has_large_and_small_leaves(graph: RegionGraph) -> bool:
        return len({len(graph.variables(leaf)) for leaf in graph.leaves}) > 1

    def has_wide_partition(graph: RegionGraph) -> bool:
        return any(len(partition.children) == 3 for partition in graph.partitions)

    def has_mixing(graph: RegionGraph) -> bool:
        return any(len(graph.partitions_of(region)) == 3 for region in range(len(graph.scopes)))

    def is_one_large_leaf(graph: RegionGraph) -> bool:
        return len(graph.layers()) == 1 and graph.num_variables > 1

    for kind in (
        has_shared_region,
        has_equal_scopes,
        has_large_and_small_leaves,
        has_wide_partition,
        has_mixing,
        is_one_large_leaf,
    ):
        find(region_graphs(), kind, settings=settings(max_examples=500, phases=[Phase.generate]))
