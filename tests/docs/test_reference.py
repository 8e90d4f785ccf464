"""Every public name is on a page of the reference, and every name on these pages exists."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
DIRECTIVE = re.compile(
    r"^\.\. (?:auto(class|function|exception|data|module)|py:(data)):: (\S+)\n((?:   :.*\n)*)",
    re.MULTILINE,
)
# What users may import from; the other rooms are read by who changes them.
PUBLIC = (
    "einet",
    "einet.data",
    "einet.data.debd",
    "einet.data.images",
    "einet.distributed",
    "einet.families",
    "einet.imaging",
    "einet.imaging.masks",
    "einet.imaging.pictures",
    "einet.imaging.reading",
    "einet.inference",
    "einet.layers",
    "einet.storage",
    "einet.structures",
    "einet.tables",
)
pytestmark = pytest.mark.skipif(not REFERENCE.exists(), reason="documents are in the repository")


def described() -> tuple[set[str], set[int]]:
    """The names on the pages, and the identities of what they name."""
    names: set[str] = set()
    for page in REFERENCE.glob("*.md"):
        for kind, other, name, options in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            names.add(name)
            if kind == "module" and ":no-members:" not in options:
                module = importlib.import_module(name)
                names.update(f"{name}.{member}" for member in module.__all__)
            assert kind or other
    return names, {id(pkgutil.resolve_name(name)) for name in names}


def missing(module: Any, names: set[str], found: set[int]) -> list[str]:
    return [
        f"{module.__name__}.{name}"
        for name in module.__all__
        if f"{module.__name__}.{name}" not in names and id(getattr(module, name)) not in found
    ]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_on_a_page(name: str):
    names, found = described()
    names.add("einet.__version__")  # a string
    assert missing(importlib.import_module(name), names, found) == []


def test_no_name_is_described_twice():
    seen: list[str] = []
    for page in REFERENCE.glob("*.md"):
        for *_, name, _ in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            seen.append(name)
    assert len(seen) == len(set(seen))


def test_pages_are_in_the_index():
    index = (REFERENCE / "index.md").read_text(encoding="utf-8")
    for page in REFERENCE.glob("*.md"):
        assert page.stem == "index" or f"]({page.name})" in index
