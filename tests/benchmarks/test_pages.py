"""Pages say what was measured."""

import pytest

from benchmarks import pages


@pytest.mark.parametrize("path", pages.PAGES, ids=lambda path: path.name)
def test_committed_pages_are_of_the_stored_numbers(path):
    """If this fails, run `python benchmarks/pages.py`."""
    page = path.read_text(encoding="utf-8")
    assert pages.renewed(page) == page


def test_every_text_has_its_place():
    written = "".join(path.read_text(encoding="utf-8") for path in pages.PAGES)
    for name in pages.BLOCKS:
        assert f"<!-- {name} -->\n" in written
        assert f"\n<!-- /{name} -->" in written


def test_only_own_places_are_filled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "BLOCKS", {"mine": lambda: r"new \1"})
    page = "a\n<!-- mine -->\nold\n<!-- /mine -->\nb\n<!-- other -->\nkept\n<!-- /other -->\n"
    assert pages.renewed(page) == page.replace("old", r"new \1")
