from hypothesis import given

from einet.structures import RegionGraph
from tests.structures.strategies import region_graphs


def test_a_mixed_graph():
    graph = RegionGraph(
        4,
        [0b0001, 0b0010, 0b1100, 0b0011, 0b1111, 0b0001, 0b1110],
        [(4, (3, 2)), (3, (0, 1)), (4, (0, 1, 2)), (4, (5, 6))],
    )
    assert graph.summary().splitlines() == [
        "region graph over 4 variables",
        "  regions     7: 5 leaves, 2 inner",
        "  leaf scope  1-3 variables",
        "  partitions  4: 1-3 per inner region, 2-3 children each",
        "  layers      3",
        "",
        "  layer  regions  partitions",
        "      2        1           3  root",
        "      1        1           1",
        "      0        5           0  leaves",
    ]


def test_a_root_alone():
    text = RegionGraph(1, [1], []).summary()
    assert "region graph over 1 variable\n" in text
    assert "leaf scope  1 variable\n" in text
    assert "partitions  0\n" in text
    assert text.endswith("      0        1           0  leaves")


@given(region_graphs())
def test_the_table_adds_up(graph: RegionGraph):
    table = [line.split() for line in graph.summary().splitlines()[7:]]
    assert [int(row[0]) for row in table] == list(reversed(range(len(graph.layers()))))
    assert sum(int(row[1]) for row in table) == len(graph.scopes)
    assert sum(int(row[2]) for row in table) == len(graph.partitions)
