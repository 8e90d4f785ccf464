from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given

from einet.structures import RegionGraph, poon_domingos, random_trees
from tests.structures.strategies import region_graphs

SVG = "{http://www.w3.org/2000/svg}"


@given(region_graphs())
def test_everything_is_drawn(graph: RegionGraph):
    drawing = ElementTree.fromstring(graph.to_svg())
    assert drawing.tag == f"{SVG}svg"
    boxes = drawing.findall(f"{SVG}g/{SVG}rect")
    assert len(boxes) == len(drawing.findall(f"{SVG}g/{SVG}text")) == len(graph.scopes)
    assert len(drawing.findall(f"{SVG}circle")) == len(graph.partitions)
    edges = sum(1 + len(partition.children) for partition in graph.partitions)
    assert len(drawing.findall(f"{SVG}path")) == edges


@given(region_graphs())
def test_boxes_lie_apart_and_inside(graph: RegionGraph):
    drawing = ElementTree.fromstring(graph.to_svg())
    rows: dict[float, list[tuple[float, float]]] = {}
    for box in drawing.findall(f"{SVG}g/{SVG}rect"):
        left, top, width, height = (float(box.attrib[key]) for key in ("x", "y", "width", "height"))
        assert left >= 0
        assert left + width <= float(drawing.attrib["width"]) + 1
        assert top + height <= float(drawing.attrib["height"])
        rows.setdefault(top, []).append((left, left + width))
    assert sorted(map(len, rows.values())) == sorted(map(len, graph.layers()))
    for row in rows.values():
        row.sort()
        assert all(end < start for (_, end), (start, _) in pairwise(row))


def test_labels_are_scopes():
    text = poon_domingos((4, 4), 2).to_svg()
    assert ">0-15</text>" in text
    assert ">0, 1, 4, 5</text>" in text
    text = poon_domingos((32, 32), 8, axes=[1]).to_svg()
    assert ">0-7, ... (256)</text>" in text
    assert "<title>region 1 {0-7, 32-39, " in text


def test_the_file_holds_the_same_text(tmp_path: Path):
    graph = random_trees(8, depth=2, replicas=2)
    path = tmp_path / "graph.svg"
    text = graph.to_svg(path)
    assert path.read_text(encoding="utf-8") == text
    assert graph.to_svg(str(path)) == text


def test_large_graphs_are_refused_unless_asked_for(tmp_path: Path):
    graph = random_trees(64, depth=6, replicas=4)
    with pytest.raises(ValueError, match=r"505 regions, .*max_regions=400"):
        graph.to_svg(tmp_path / "graph.svg")
    assert not (tmp_path / "graph.svg").exists()
    assert graph.to_svg(max_regions=505).count("<text") == 505
