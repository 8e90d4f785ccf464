"""The names of other libraries that the site links to exist, in the form that Sphinx reads."""

import pkgutil
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
INVENTORIES = sorted((DOCS / "inventories").glob("*.txt"))


@pytest.mark.parametrize("path", INVENTORIES, ids=lambda path: path.stem)
def test_names_exist(path: Path):
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    assert head == "# Sphinx inventory version 1"
    assert lines[0].startswith("# Project: ")
    assert lines[1].startswith("# Version: ")
    for line in lines[2:]:
        name, kind, address = line.split(" ")
        assert kind in ("class", "function", "exception", "mod")
        assert address.endswith(".html")
        pkgutil.resolve_name(name if "." in name else f"builtins.{name}")


def test_there_is_one_for_each_library():
    conf = (DOCS / "conf.py").read_text(encoding="utf-8")
    for path in INVENTORIES:
        assert f'"inventories/{path.name}"' in conf
    assert len(INVENTORIES) == 4
