import pytest

from einet.structures import RegionGraph, RegionGraphBuilder, StructureError


def test_regions_are_numbered_as_they_are_made():
    builder = RegionGraphBuilder(num_variables=4)
    left, right = builder.leaf([0, 1]), builder.leaf((2, 3))
    root = builder.region(range(4))
    assert builder.partition([left, right], region=root) == root
    assert (left, right, root) == (0, 1, 2)
    assert builder.build() == RegionGraph(4, [0b0011, 0b1100, 0b1111], [(2, (0, 1))])


def test_a_partition_makes_its_region():
    builder = RegionGraphBuilder(3)
    a, b, c = (builder.leaf([variable]) for variable in range(3))
    root = builder.partition([builder.partition([a, b]), c])
    builder.partition([a, b, c], region=root)
    graph = builder.build()
    assert graph.root == root
    assert [graph.partitions[i].children for i in graph.partitions_of(root)] == [(3, c), (a, b, c)]


def test_build_leaves_the_builder_usable():
    builder = RegionGraphBuilder(2)
    a, b = builder.leaf([0]), builder.leaf([1])
    root = builder.partition([a, b])
    first = builder.build()
    builder.partition([builder.leaf([0]), builder.leaf([1])], region=root)
    assert len(first.partitions) == 1
    assert len(builder.build().partitions) == 2


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ([], "variables must be one or more different ones, got \\[\\]"),
        ([0, 0], "variables must be one or more different ones, got \\[0, 0\\]"),
        ([0, 2], "variables must lie in 0 to 1, got 2"),
        ([-1], "variables must lie in 0 to 1, got -1"),
    ],
)
def test_bad_variables(variables: list[int], message: str):
    builder = RegionGraphBuilder(2)
    with pytest.raises(StructureError, match=message):
        builder.leaf(variables)
    with pytest.raises(StructureError, match=message):
        builder.region(variables)


def test_variables_of_wrong_type():
    builder = RegionGraphBuilder(2)
    with pytest.raises(TypeError, match="variables"):
        builder.leaf(0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="variables must be a list of integers"):
        builder.leaf(iter([0.5]))  # pyright: ignore[reportArgumentType]


def test_children_of_wrong_type():
    builder = RegionGraphBuilder(2)
    root = builder.region([0, 1])
    with pytest.raises(TypeError, match="children"):
        builder.partition(root, [root])  # pyright: ignore[reportArgumentType]


def test_partitions_need_known_regions():
    builder = RegionGraphBuilder(2)
    leaf = builder.leaf([0])
    with pytest.raises(StructureError, match="a child must be .* made before, below 1, got 1"):
        builder.partition([leaf, 1])
    with pytest.raises(StructureError, match="region must be .* made before, below 1, got 5"):
        builder.partition([leaf], region=5)


def test_bad_partitions_raise_at_once_and_leave_no_trace():
    builder = RegionGraphBuilder(3)
    a, b, c = builder.leaf([0, 1]), builder.leaf([1, 2]), builder.leaf([2])
    root = builder.region([0, 1, 2])
    overlap = r"not decomposable: its children region 0 \{0, 1\} and region 1 \{1, 2\} share"
    with pytest.raises(StructureError, match=r"partition 0 of region 4 .* needs at least 2"):
        builder.partition([a])
    with pytest.raises(StructureError, match=r"partition 0 of region 4 \{0-2\} is " + overlap):
        builder.partition([a, b])
    with pytest.raises(StructureError, match=r"partition 0 of region 3 \{0-2\} is " + overlap):
        builder.partition([a, b], region=root)
    with pytest.raises(StructureError, match=r"children \(0, 0\); no child may be repeated"):
        builder.partition([a, a], region=root)
    builder.partition([a, c], region=root)
    narrow = builder.region([0, 1])
    message = r"partition 1 of region 4 \{0, 1\} is not smooth: .* have variables \{2\}"
    with pytest.raises(StructureError, match=message):
        builder.partition([a, c], region=narrow)
    assert builder.partition([b, builder.leaf([0])]) == 6


def test_a_leaf_stays_a_leaf():
    builder = RegionGraphBuilder(2)
    a, b, both = builder.leaf([0]), builder.leaf([1]), builder.leaf([0, 1])
    with pytest.raises(StructureError, match=r"region 2 \{0, 1\} was made by leaf\(\)"):
        builder.partition([a, b], region=both)


def test_a_region_needs_a_partition():
    builder = RegionGraphBuilder(2)
    builder.region([0, 1])
    with pytest.raises(
        StructureError, match=r"region 0 \{0, 1\} was made by region\(\) but has no"
    ):
        builder.build()


def test_an_empty_builder_builds_nothing():
    with pytest.raises(StructureError, match="at least one region"):
        RegionGraphBuilder(2).build()


def test_needs_variables():
    with pytest.raises(ValueError, match="num_variables must be an integer >= 1, got 0"):
        RegionGraphBuilder(0)
