"""Every public definition says what it is."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "einet"
ROOMS = ("data", "storage", "structures")


@pytest.mark.parametrize("room", ROOMS)
def test_public_definitions_have_docstrings(room: str):
    files = sorted((PACKAGE / room).rglob("*.py"))
    assert files
    silent = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in files
        for name, node in definitions(ast.parse(path.read_text(encoding="utf-8")), "the module")
        if ast.get_docstring(node) is None
    ]
    assert silent == []


def definitions(
    node: ast.Module | ast.ClassDef, name: str
) -> Iterator[tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef]]:
    """A module or class with all that is public in it; not what functions define inside."""
    yield name, node
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef) and any(
            isinstance(decorator, ast.Attribute) and decorator.attr == "setter"
            for decorator in inner.decorator_list
        ):
            # What it sets is said where it is read.
            continue
        if isinstance(inner, ast.ClassDef | ast.FunctionDef) and not inner.name.startswith("_"):
            if isinstance(inner, ast.ClassDef):
                yield from definitions(inner, inner.name)
            else:
                yield inner.name, inner
