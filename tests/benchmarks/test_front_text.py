"""The README's tables tell of what is lost, too."""

import pytest

from benchmarks import front_text, gpu_text, table_text
from benchmarks.cpu_rows import load
from benchmarks.pages import RESULTS


def rows_of(task: str, metric: str, values: dict[str, float], table: str = "a") -> list[dict]:
    fields = {"table": table, "task": task, "metric": metric, "seed": 0}
    return [{**fields, "method": name, "value": value} for name, value in values.items()]


def everything() -> list[dict]:
    rows = []
    for _, _, topic in front_text._topics():
        for metric in topic.metrics:
            rows += rows_of(topic.task, metric, dict.fromkeys(topic.methods, 0.5))
    rows += rows_of("synthetic", "C2ST with XGBoost", {"einet on a GPU": 0.9}, "adult")
    rows += rows_of("synthetic", "Trend", {"einet on a GPU": 0.9}, "adult")
    return rows


def test_quality():
    images = {
        name: {
            "best": {"valid_ll": -1.0, "bits_per_dim": 2.5},
            "lucky in the test": {"valid_ll": -2.0, "bits_per_dim": 1.0},
            "not validated": {"bits_per_dim": 0.5},
        }
        for name in front_text.PUBLISHED_BITS
    }
    text = front_text.quality(everything(), images, (20, 18, 7, 9))
    assert "at or above on 18; on 7 (9 of verified ones)" in text
    assert text.count(" 2.500 ") == 2
    # No worse than the others counts as the best; less than one of two published ones does not.
    (c2st,) = (line for line in text.splitlines() if "C2ST" in line)
    (trend,) = (line for line in text.splitlines() if "Trend" in line)
    assert "best in 1 of 1" in c2st
    assert "best in 0 of 1" in trend


def test_seconds():
    rows = []
    for table, learning in (("adult", 1.25), ("magic", 3.0)):
        rows += rows_of("synthetic", "learning s", {"einet on a GPU": learning}, table)
        rows += rows_of("synthetic", "sampling s", {"einet on a GPU": learning / 10}, table)
    rows += rows_of("latency", "query ms, median", {"einet": 0.75, "boosting": 9.0}, "adult")
    said = front_text.in_seconds(rows)
    assert "the tables adult and magic took 1.2 to 3.0 s to learn" in said
    assert "0.12 to 0.30 s to draw" in said
    assert "takes 0.8 ms on a CPU" in said


@pytest.mark.parametrize("metric", ["C2ST", "Trend"])
def test_published_figures_are_those_of_the_page(metric: str):
    found = table_text.ahead_of_published(load(RESULTS / "tables.json"), metric)
    assert found.compared == found.ahead + len(found.behind) == len(table_text.QUOTED)


def test_the_short_table_has_no_gaps():
    rows = load(RESULTS / "goals-cuda.json")
    lines = gpu_text.short_table(rows).splitlines()
    assert 4 < len(lines) < len(gpu_text.table(rows).splitlines())
    assert not any("–" in line or "measured" in line or "memory" in line for line in lines)
