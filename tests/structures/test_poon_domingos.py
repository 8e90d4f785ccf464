import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from einet.structures import RegionGraph, poon_domingos

Region = frozenset[int]


def enumerate_splits(
    shape: tuple[int, ...], deltas: list[float], axes: list[int], channels: int
) -> dict[Region, set[frozenset[Region]]]:
    """The splits of every rectangle, by plain recursion over sub-arrays of variable numbers."""
    numbers = np.arange(math.prod(shape) * channels).reshape(*shape, channels)
    splits: dict[Region, set[frozenset[Region]]] = {}

    def members(box: np.ndarray) -> Region:
        return frozenset(box.ravel().tolist())

    def visit(box: np.ndarray, origin: tuple[int, ...]) -> None:
        if members(box) in splits:
            return
        found = splits[members(box)] = set()
        for delta in deltas:
            for axis in axes:
                multiples = {math.ceil(k * delta) for k in range(1, 1 + sum(shape))}
                for cut in range(1, box.shape[axis]):
                    if origin[axis] + cut in multiples:
                        first, second = np.split(box, [cut], axis=axis)
                        found.add(frozenset({members(first), members(second)}))
                        visit(first, origin)
                        moved = list(origin)
                        moved[axis] += cut
                        visit(second, tuple(moved))
            if found:
                return

    visit(numbers, (0,) * len(shape))
    return splits


def splits_of(graph: RegionGraph) -> dict[Region, set[frozenset[Region]]]:
    regions = [frozenset(graph.variables(region)) for region in range(len(graph.scopes))]
    splits = {
        regions[region]: {
            frozenset(regions[child] for child in graph.partitions[number].children)
            for number in graph.partitions_of(region)
        }
        for region in range(len(regions))
    }
    # Neither a region nor a partition comes twice.
    assert len(splits) == len(regions)
    assert sum(map(len, splits.values())) == len(graph.partitions)
    return splits


@given(st.data())
def test_matches_plain_enumeration(data: st.DataObject):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3), label="shape"))
    steps = st.lists(st.sampled_from([1, 1.5, 2, 2.5, 3, 4]), min_size=1, max_size=3, unique=True)
    delta = sorted(data.draw(steps, label="delta"), reverse=True)
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1), label="axes")
    channels = data.draw(st.integers(1, 2), label="channels")
    graph = poon_domingos(shape, delta, sorted(axes), channels)
    assert graph.root == 0
    assert splits_of(graph) == enumerate_splits(shape, delta, sorted(axes), channels)


@pytest.mark.parametrize(
    ("size", "delta", "cells"), [(28, 2, 14), (128, 8, 16)], ids=["28x28", "128x128"]
)
def test_large_images(size: int, delta: int, cells: int):
    graph = poon_domingos((size, size), delta)
    intervals = math.comb(cells + 1, 2)
    assert len(graph.scopes) == intervals**2
    assert len(graph.partitions) == 2 * intervals * math.comb(cells + 1, 3)
    assert len(graph.leaves) == cells**2
    assert len(graph.layers()) == 2 * cells - 1


def test_a_large_graph_goes_through_arrays():
    graph = poon_domingos((128, 128), 16)
    assert RegionGraph.from_arrays(graph.to_arrays()) == graph


def test_the_count_of_partitions_in_the_design():
    intervals = math.comb(17, 2)
    assert intervals**2 == 18_496
    assert 2 * intervals * math.comb(17, 3) == 184_960


def test_vertical_cuts_of_a_colour_image():
    graph = poon_domingos((32, 32), delta=8, axes=[1], channels=3)
    numbers = np.arange(32 * 32 * 3).reshape(32, 32, 3)
    strips = {tuple(numbers[:, left : left + 8].ravel()) for left in range(0, 32, 8)}
    assert {graph.variables(leaf) for leaf in graph.leaves} == strips
    assert len(graph.partitions) == 10


def test_axes_are_a_set():
    assert poon_domingos((4, 6), 2, axes=[-1]) == poon_domingos((4, 6), 2, axes=[1])
    both = poon_domingos((4, 6), 2)
    assert poon_domingos((4, 6), 2, axes=[1, 0]) == both
    assert poon_domingos((4, 6), 2, axes=(-2, -1)) == both


def test_a_finer_delta_serves_only_what_the_coarser_leaves():
    coarse = poon_domingos((8,), 4)
    both = poon_domingos((8,), [4, 2])
    assert len(both.partitions_of(both.root)) == len(coarse.partitions_of(coarse.root)) == 1
    assert {both.variables(leaf) for leaf in both.leaves} == {(0, 1), (2, 3), (4, 5), (6, 7)}
    # One axis that can be cut in coarse steps holds the finer ones off on all axes.
    flat = poon_domingos((2, 8), [4, 1])
    assert [flat.partitions[i].children for i in flat.partitions_of(flat.root)] == [(1, 2)]


def test_positions_count_from_the_origin_of_the_grid():
    graph = poon_domingos((7,), 3)
    assert {graph.variables(leaf) for leaf in graph.leaves} == {(0, 1, 2), (3, 4, 5), (6,)}


@pytest.mark.parametrize(
    ("size", "delta", "lengths"),
    [
        (10, 2.5, [3, 2, 3, 2]),
        (28, 28 / 3, [10, 9, 9]),
        (57, 2.2, [*5 * [3, 2, 2, 2, 2], 2]),
        (4, 0.3, [1, 1, 1, 1]),
    ],
)
def test_fractional_steps_round_up(size: int, delta: float, lengths: list[int]):
    graph = poon_domingos((size,), delta)
    leaves = sorted(graph.variables(leaf) for leaf in graph.leaves)
    assert [len(leaf) for leaf in leaves] == lengths


def test_a_grid_that_cannot_be_cut():
    for graph in (poon_domingos((2, 3), 3), poon_domingos((1, 5), 1, axes=[0])):
        assert graph.leaves == (graph.root,) == (0,)


def test_numpy_numbers_and_lists_are_taken():
    expected = poon_domingos((4, 4), 2)
    assert poon_domingos([4, 4], np.float64(2)) == expected
    assert poon_domingos((4, 4), (2,)) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": ()}, "shape must have at least one axis"),
        ({"shape": (4, 0)}, "each size in shape must be an integer >= 1, got 0"),
        ({"delta": 0}, "delta must be positive and finite, got 0"),
        ({"delta": -1.5}, "delta must be positive and finite, got -1.5"),
        ({"delta": math.nan}, "delta must be positive and finite, got nan"),
        ({"delta": [math.inf, 2]}, r"delta must be positive and finite, got \[inf, 2\]"),
        ({"delta": []}, "delta must be one or more numbers in descending order"),
        ({"delta": [2, 4]}, r"descending order, got \[2, 4\]"),
        ({"delta": [2, 2]}, r"descending order, got \[2, 2\]"),
        ({"axes": []}, r"axes must be a list of different axes in -2 to 1, got \[\]"),
        ({"axes": [2]}, r"axes must be .* in -2 to 1, got \[2\]"),
        ({"axes": [-3]}, r"axes must be .* in -2 to 1, got \[-3\]"),
        ({"axes": [1, -1]}, r"axes must be .* different axes in -2 to 1, got \[1, -1\]"),
        ({"channels": 0}, "channels must be an integer >= 1, got 0"),
    ],
)
def test_arguments_out_of_range(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        poon_domingos(**{"shape": (4, 4), "delta": 2, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": 4},
        {"shape": (4.0, 4)},
        {"delta": "2"},
        {"delta": None},
        {"delta": ["2"]},
        {"axes": 1},
        {"axes": [0.5]},
        {"channels": 1.0},
    ],
)
def test_arguments_of_wrong_type(changes: dict):
    # The checks of types that the tests switch on may speak first; both name the argument.
    with pytest.raises(TypeError, match=next(iter(changes))):
        poon_domingos(**{"shape": (4, 4), "delta": 2, **changes})


def test_rectangles_are_shared():
    graph = poon_domingos((4, 4), 1)
    boxes = itertools.product(itertools.combinations(range(5), 2), repeat=2)
    assert len(graph.scopes) == len(list(boxes)) == len(set(graph.scopes))
