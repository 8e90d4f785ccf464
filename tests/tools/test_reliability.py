"""The page on reliability says what was tried, and names tests that are there."""

import json
import re
from pathlib import Path

from tools import reliability

ROOT = Path(__file__).parents[2]


def test_the_table_is_of_the_stored_counts():
    """If this fails, run `python tools/reliability.py`."""
    page = reliability.PAGE.read_text(encoding="utf-8")
    assert reliability.renewed(page) == page
    assert reliability.table() in page


def test_every_campaign_has_its_row_and_its_counts():
    sources = "".join(path.read_text() for path in (ROOT / "tests" / "fuzz").glob("test_*.py"))
    for name in reliability.ATTACKS:
        assert f'"{name}"' in sources
        counts = json.loads((reliability.RESULTS / f"{name}.json").read_text())
        assert counts["tried"] == sum(counts["answers"].values()) > 0
    stored = {path.stem for path in reliability.RESULTS.glob("*.json")}
    assert stored == set(reliability.ATTACKS)


def test_the_tests_that_the_page_names_are_there():
    page = reliability.PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[\w/.]+)`", page))
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists()] == []
