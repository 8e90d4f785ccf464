"""The numbers of docs/threads.md are those that were measured."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_is_of_the_stored_rows():
    stored = json.loads((ROOT / "benchmarks" / "results" / "threads.json").read_text())["rows"]
    page = (ROOT / "docs" / "threads.md").read_text()
    table = page.split("<!-- threads -->")[1].split("<!-- /threads -->")[0]
    lines = [line.strip("| ").split(" | ") for line in table.strip().splitlines()[2:]]
    threads = sorted({row["threads"] for row in stored})
    shown = {
        (int(rows), question.strip("`"), count): cell
        for rows, question, *cells in lines
        for count, cell in zip(threads, cells, strict=True)
    }
    expected = {}
    for row in stored:
        ratio = "" if row["threads"] == 1 else f" ({row['ratio']:g}×)"
        key = (row["rows"], row["question"], row["threads"])
        expected[key] = f"{row['calls_per_s']:g}{ratio}"
    assert shown == expected
