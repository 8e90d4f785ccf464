"""The graph of what to read next leads to pages that are there."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

DOCS = Path(__file__).parents[2] / "docs"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reading_path", DOCS / "reading_path.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("reading_path", module)
    spec.loader.exec_module(module)
    return module


def test_every_box_is_a_page_and_every_page_is_reached():
    path = loaded()
    for page in path.PAGES:
        assert (DOCS / f"{page}.md").exists(), page
    reached = {"start"} | {target for _, target in path.EDGES}
    assert reached == set(path.PAGES)
    assert {source for source, _ in path.EDGES} <= set(path.PAGES)


def test_boxes_do_not_overlap():
    places = [(column, row) for column, row, _ in loaded().PAGES.values()]
    for index, (column, row) in enumerate(places):
        for other, line in places[index + 1 :]:
            assert column != other or abs(row - line) >= 1


def test_the_drawing_is_svg_with_a_link_for_each_page():
    path = loaded()
    drawing = path.drawing()
    ElementTree.fromstring(drawing)
    links = re.findall(r'<a href="([^"]+)\.html"', drawing)
    assert links == list(path.PAGES)
