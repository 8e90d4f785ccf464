import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from einet.structures import RegionGraph, StructureError, random_trees
from tests.structures.strategies import region_graphs


@given(region_graphs())
def test_arrays_round_trip(graph: RegionGraph):
    arrays = graph.to_arrays()
    assert all(array.dtype == np.int32 for array in arrays.values())
    again = RegionGraph.from_arrays(arrays)
    assert again == graph
    assert again.root == graph.root
    wide = {name: array.astype(np.int64) for name, array in arrays.items()}
    assert RegionGraph.from_arrays(wide) == graph


@given(region_graphs())
def test_json_round_trip(graph: RegionGraph):
    text = graph.to_json()
    assert RegionGraph.from_json(text) == graph
    assert RegionGraph.from_json(json.dumps(json.loads(text), indent=2)) == graph


def test_arrays_hold_leaves_and_partitions_only():
    graph = RegionGraph(3, [0b111, 0b001, 0b110], [(0, (1, 2))])
    assert {name: array.tolist() for name, array in graph.to_arrays().items()} == {
        "num_variables": 3,
        "num_regions": 3,
        "root": 0,
        "leaf_regions": [1, 2],
        "leaf_offsets": [0, 1, 3],
        "leaf_variables": [0, 1, 2],
        "partition_regions": [0],
        "partition_offsets": [0, 2],
        "partition_children": [1, 2],
    }


def test_arrays_survive_a_file(tmp_path):
    graph = random_trees(20, depth=3, replicas=2)
    for name, array in graph.to_arrays().items():
        np.save(tmp_path / f"{name}.npy", array)
    assert (
        RegionGraph.from_arrays({path.stem: np.load(path) for path in tmp_path.iterdir()}) == graph
    )


def changed(**changes: Any) -> dict[str, Any]:
    graph = RegionGraph(3, [0b111, 0b001, 0b110], [(0, (1, 2))])
    return {**json.loads(graph.to_json()), **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "format must be 'einet.region_graph', got 'other'"),
        ({"version": 2}, "version must be 1, the only one this release reads, got 2"),
        ({"root": 1}, "root must be the region that is a child of no partition, 0, got 1"),
        ({"root": [0]}, r"root must be an integer, got shape \(1,\)"),
        ({"num_variables": 2.5}, "num_variables must be an integer, got .* of type float64"),
        ({"num_variables": None}, "num_variables must be an integer"),
        ({"num_variables": 0}, r"allowed are 0 to -1 \(num_variables=0\)"),
        ({"num_variables": 4}, "num_variables must be at most 3, as many .* got 4"),
        (
            {"num_variables": 2**31 - 1},
            "num_variables must be at most 3, as many .* got 2147483647",
        ),
        ({"num_regions": 10**15}, "num_regions must be .*, 3, got 1000000000000000"),
        ({"num_regions": 10**30}, "num_regions must be an integer"),
        ({"leaf_regions": [1, 1]}, "leaf_regions and partition_regions must together name every"),
        ({"leaf_regions": [1, 3]}, "leaf_regions and partition_regions must together name every"),
        ({"leaf_regions": [0, 1]}, "leaf_regions and partition_regions must together name every"),
        ({"leaf_regions": [1]}, "leaf_offsets must be 2 ascending positions in leaf_variables"),
        ({"leaf_regions": "12"}, "leaf_regions must be a list of integers"),
        ({"leaf_regions": [[1], [2, 3]]}, "leaf_regions must be a list of integers"),
        ({"leaf_offsets": [0, 4, 3]}, "leaf_offsets must be 3 ascending positions"),
        ({"leaf_offsets": [1, 2, 3]}, "leaf_offsets must be .* from 0 to its length 3"),
        ({"leaf_offsets": [0, 1, 2]}, "leaf_offsets must be .* from 0 to its length 3"),
        ({"leaf_offsets": [0, 0, 3]}, "region 1 has an empty scope"),
        ({"leaf_variables": [0, 1, 3]}, "leaf region 2 has variables from 1 to 3; allowed are 0"),
        ({"leaf_variables": [0, -1, 2]}, "leaf region 2 has variables from -1 to 2; allowed"),
        ({"leaf_variables": [0, 1, 1]}, "leaf region 2 has a variable more than once"),
        ({"leaf_variables": [0, 0, 2]}, "not decomposable"),
        ({"partition_children": [1, 7]}, r"partition 0 of region 0 has children \(1, 7\)"),
        (
            {"partition_children": [1, 0]},
            "the graph has a cycle: region 0 is in partition 0 of region 0",
        ),
        ({"partition_offsets": [0, 1]}, "partition_offsets must be .* from 0 to its length 2"),
        ({"partition_offsets": []}, "partition_offsets must be 2 ascending positions"),
    ],
)
def test_bad_content_is_named(changes: dict[str, Any], message: str):
    with pytest.raises(StructureError, match=message):
        RegionGraph.from_json(json.dumps(changed(**changes)))


def test_a_cycle_is_found_without_scopes():
    arrays = changed(
        num_variables=2,
        num_regions=4,
        leaf_regions=[2, 3],
        leaf_offsets=[0, 1, 2],
        leaf_variables=[0, 1],
        partition_regions=[0, 1],
        partition_offsets=[0, 2, 4],
        partition_children=[1, 2, 0, 3],
    )
    with pytest.raises(
        StructureError, match="the graph has a cycle: region 0 is in partition 1 of region 1"
    ):
        RegionGraph.from_arrays(arrays)


def test_partitions_of_one_region_must_agree():
    arrays = changed(
        num_regions=4,
        leaf_regions=[1, 2, 3],
        leaf_offsets=[0, 1, 3, 4],
        leaf_variables=[0, 1, 2, 1],
        partition_regions=[0, 0],
        partition_offsets=[0, 2, 4],
        partition_children=[1, 2, 1, 3],
    )
    with pytest.raises(StructureError, match=r"partition \d of region 0 .* is not smooth"):
        RegionGraph.from_arrays(arrays)


@pytest.mark.parametrize("name", ["num_variables", "root", "leaf_offsets", "partition_children"])
def test_missing_arrays_are_named(name: str):
    arrays = changed()
    del arrays[name]
    with pytest.raises(StructureError, match=f"a region graph needs '{name}', got only"):
        RegionGraph.from_arrays(arrays)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a region graph must be valid JSON"),
        ("{", "a region graph must be valid JSON"),
        ("[1]", "a region graph must be a JSON object, got list"),
        ("{}", "format must be 'einet.region_graph', got None"),
    ],
)
def test_bad_json_is_named(text: str, message: str):
    with pytest.raises(StructureError, match=message):
        RegionGraph.from_json(text)


def test_floats_are_no_numbers_of_regions():
    arrays = random_trees(4, depth=1, replicas=1).to_arrays()
    arrays["leaf_regions"] = arrays["leaf_regions"].astype(np.float64)
    with pytest.raises(StructureError, match=r"leaf_regions must be a list of integers, .*float64"):
        RegionGraph.from_arrays(arrays)
