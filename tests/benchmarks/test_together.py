"""The benchmark of clusters trained at the same time, on a small part of it."""

import json
from pathlib import Path

import pytest

from benchmarks import together


def test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    output = tmp_path / "rows.json"
    arguments = ["--device", "cpu", "--quick", "--runs", "1", "--together", "4"]
    arguments += ["--workloads", "celeba", "--output", str(output)]
    monkeypatch.setattr("sys.argv", ["together.py", *arguments])
    together.main()
    rows = json.loads(output.read_text())
    assert [row["together"] for row in rows] == [1, 4]
    assert rows[0]["ratio"] == 1.0
    assert all(row["workload"] == "celeba" and len(row["seconds"]) == 1 for row in rows)


def test_stored_rows():
    """Documents tell of these."""
    rows = json.loads((together.RESULTS / "together-cuda.json").read_text())
    assert {row["workload"] for row in rows} == set(together.WORKLOADS)
    for row in rows:
        assert row["clusters"] == together.CLUSTERS
        assert row["epochs"] == together.EPOCHS
