"""What is told of waiting in the studio."""

from benchmarks import studio_text


def test_every_goal_has_its_line():
    rows = [
        {"task": f"csv to first model, {name}", "rows": 1000, "columns": 3, "seconds": 2.04,
         "goal_seconds": 10.0}
        for name in ("titanic", "adult")
    ]  # fmt: skip
    rows += [
        {"task": "evidence to redrawn", "columns": 15, "redrawn_median_ms": 60.4,
         "redrawn_95th_ms": 90.0, "goal_median_ms": 100.0, "goal_95th_ms": 200.0},
        {"task": "evidence to answer, states and intervals", "server_median_ms": 9.8},
        {"task": "inpainting", "size": "28x28", "draws": 8, "http_median_ms": 31.2,
         "goal_ms": 300.0},
        {"task": "first paint", "paint_median_ms": 136, "goal_ms": 1000.0},
        {"task": "page weight", "bytes": 235116, "goal_bytes": 500000},
    ]  # fmt: skip
    text = studio_text.waiting(rows)
    assert "| csv to first model, titanic (1,000 × 3) | 2.0 s | 10 s |" in text
    assert "| 60, 90 ms | 100, 200 ms |" in text
    assert "| what the page loads | 235 kB | 500 kB |" in text
    assert {line.count("|") for line in text.splitlines()} == {4}
