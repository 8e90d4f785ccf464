"""The model itself: numbers, regions and parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import einet
from einet.studio.files import open_model
from einet.studio.parameters import describe_parameters
from einet.studio.structure import describe_model, describe_regions


def _opened(model: Any, tmp_path: Path) -> Any:
    model.save(tmp_path / "m.einet")
    return open_model(tmp_path / "m.einet", "m.einet")


def test_a_model_in_numbers(client: Any, model: einet.TableModel):
    told = client.ok("GET", "/api/model")
    graph: Any = model.model.graph
    assert told["parameters"] == model.model.num_parameters
    assert told["structure"]["regions"] == len(graph.scopes)
    assert told["structure"]["partitions"] == len(graph.partitions)
    assert sum(told["structure"]["layers"]) == len(graph.scopes)
    assert told["families"] == {"Categorical": 4, "Gaussian": 4}
    assert told["sums"] == {"number": 4, "leaves": 4, "kind": "linear"}
    assert told["history"] is None
    assert "table" in told["file"]["metadata"]


def test_all_regions_are_reached_level_by_level(session: Any, model: einet.TableModel):
    opened = session.opened
    seen, waiting = set(), [None]
    while waiting:
        told = describe_regions(opened, waiting.pop())
        seen.add(told["region"]["id"])
        assert told["num_partitions"] == len(told["partitions"])
        for partition in told["partitions"]:
            assert len(partition["children"]) == partition["num_children"]
            waiting += [child["id"] for child in partition["children"]]
    assert len(seen) == len(model.model.graph.scopes)  # type: ignore[attr-defined]


def test_leaves_in_the_terms_of_columns(session: Any, client: Any, model: einet.TableModel):
    graph: Any = model.model.graph
    prior = model.given()
    for leaf in graph.leaves:
        told = client.ok("GET", f"/api/model/parameters?region=0:{leaf}")
        (variable,) = told["variables"]
        assert told["kind"] == "leaf"
        assert told["entries"] == 4
        if variable["family"] == "Categorical":
            assert np.allclose(np.sum(variable["probabilities"], 1), 1)
            if variable["name"] == "sex":
                shares = np.array(variable["probabilities"])[:, variable["states"].index("f")]
                here = prior.state_probabilities("sex")[0, 0]
                assert shares.min() <= here <= shares.max()
        elif variable["name"] == "height":
            assert all(120 < x < 220 for x in variable["median"])
            order = zip(variable["low"], variable["median"], variable["high"], strict=True)
            assert all(low < median < high for low, median, high in order)


@pytest.mark.parametrize("sums", ["einsum", "linear"])
@pytest.mark.parametrize("kind", ["trees", "grid"])
def test_weights_are_those_of_the_region(tmp_path: Path, sums: str, kind: str):
    graph = einet.random_trees(6, 2, 3, seed=0)
    if kind == "grid":
        graph = einet.poon_domingos((2, 4), delta=1)
    model = einet.Einet(graph, einet.Gaussian(), num_sums=3, sums=sums)
    opened = _opened(model, tmp_path)
    many = [r for r in range(len(graph.scopes)) if len(graph.partitions_of(r)) > 1]
    one = [r for r in range(len(graph.scopes)) if len(graph.partitions_of(r)) == 1]
    for region in [*many, *one]:
        told = describe_parameters(opened, f"0:{region}")
        assert told["sums"] == (1 if region == graph.root else 3)
        partitions = len(graph.partitions_of(region))
        expected = [partitions] if partitions > 1 else [3, 3] if sums == "einsum" else [3]
        assert told["inputs"] == expected
        weights = [entry["weight"] for entry in told["heaviest"]]
        assert weights == sorted(weights, reverse=True)
        assert sum(weights) == pytest.approx(told["sums"], rel=1e-5)


def test_mixtures_begin_with_their_parts(tmp_path: Path):
    graph = einet.random_trees(4, 1, 2, seed=0)
    parts = [einet.Einet(graph, einet.Bernoulli(), num_sums=2, seed=n) for n in range(3)]
    opened = _opened(einet.Mixture(parts, [0.2, 0.5, 0.3]), tmp_path)
    told = describe_regions(opened, None)
    assert told["region"]["kind"] == "mixture"
    assert told["num_partitions"] == 3
    heads = [partition["children"][0] for partition in told["partitions"]]
    assert [head["weight"] for head in heads] == pytest.approx([0.5, 0.3, 0.2], rel=1e-6)
    assert describe_regions(opened, heads[0]["id"])["region"]["count"] == 4
    assert describe_model(opened)["structure"]["models"] == 3


def test_large_graphs_are_told_in_part(tmp_path: Path):
    graph = einet.random_trees(64, 1, 300, seed=0)
    opened = _opened(einet.Einet(graph, einet.Bernoulli(), num_sums=1), tmp_path)
    told = describe_regions(opened, None)
    assert told["num_partitions"] == 300
    assert len(told["partitions"]) == 24
    assert len(told["region"]["scope"]) == 12
    assert told["region"]["count"] == 64
    builder = einet.RegionGraphBuilder(64)
    builder.partition([builder.leaf([v]) for v in range(64)])
    wide = _opened(einet.Einet(builder.build(), einet.Gaussian(), 2, sums="linear"), tmp_path)
    (partition,) = describe_regions(wide, None)["partitions"]
    assert len(partition["children"]) == 24
    assert partition["num_children"] == 64


@pytest.mark.parametrize("region", ["0:99999", "7:0", "0:-1"])
def test_what_is_no_region(client: Any, region: str):
    assert client.refused(404, "GET", f"/api/model/regions?root={region}")
    assert client.refused(422, "GET", "/api/model/regions?root=x")
    assert client.refused(404, "GET", f"/api/model/parameters?region={region}")
