"""What docs/_extensions adds to Sphinx. Sphinx comes with the extra `docs`, not with `dev`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"
pytest.importorskip("sphinx")


def extension(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


def test_links_out_of_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    links = extension("repository_links", monkeypatch)
    docs = tmp_path / "docs"
    (docs / "inside").mkdir(parents=True)
    (tmp_path / "results").mkdir()
    for name in ("README.md", "results/a.json", "docs/gpu.md", "docs/inside/page.md"):
        (tmp_path / name).write_text("")
    text = "[a](../results/a.json), [all](../results), [read](../README.md#start), [gpu](gpu.md#x)"
    assert links.rewrite(text, docs, docs) == (
        "{download}`a <../results/a.json>`, all, [read](index.md#start), [gpu](gpu.md#x)"
    )
    # A document of the root, shown as a page of the site.
    assert links.rewrite("[gpu](docs/gpu.md)", tmp_path, docs, docs) == "[gpu](gpu.md)"
    assert (
        links.rewrite("[x](https://a.b/c) [y](#here)", docs, docs)
        == "[x](https://a.b/c) [y](#here)"
    )
    fenced = "```\n[a](nowhere.md)\n```"
    assert links.rewrite(fenced, docs, docs) == fenced
    with pytest.raises(FileNotFoundError, match="nowhere.md"):
        links.rewrite("[a](nowhere.md)", docs, docs)


def test_our_names(monkeypatch: pytest.MonkeyPatch):
    names = extension("our_names", monkeypatch)
    assert "einet.tables.schema.Table" in names.places("einet.tables.Table")
    assert "einet.inference.distribution.Distribution.prior" in names.places("einet.Einet.prior")
    assert names.places("einet.kernels.nodes") == ["einet.kernels.nodes"]
    assert names.places("einet.EpochReport.epoch") is not None
    assert names.places("einet.nothing") is None
    assert names.places("einet.Einet.nothing") is None


def test_sizes_are_no_substitutions(monkeypatch: pytest.MonkeyPatch):
    names = extension("our_names", monkeypatch)
    assert names.escape_sizes("the size |T| of ``|x|``") == "the size \\|T\\| of ``|x|``"


def test_types_stand_before_headings(monkeypatch: pytest.MonkeyPatch):
    names = extension("our_names", monkeypatch)
    lines = ["text", "", ".. rubric:: Example", ":rtype: int", "", ">>> 1"]
    assert names.part_types(lines) == [
        "text", "", ":rtype: int", "", ".. rubric:: Example", "", ">>> 1",
    ]  # fmt: skip


def test_formulas(monkeypatch: pytest.MonkeyPatch):
    mathml = extension("mathml", monkeypatch)
    assert "<mfrac>" in mathml.to_mathml(r"\frac{a}{b}", as_block=False)
    assert 'display="block"' in mathml.to_mathml(r"\exp\big(x\big), \dots", as_block=True)
    with pytest.raises(ValueError, match="nonsense"):
        mathml.to_mathml(r"\nonsense", as_block=False)
