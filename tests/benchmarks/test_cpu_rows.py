"""The rows of the comparison on a CPU."""

import json
from pathlib import Path

import pytest

from benchmarks.cpu_rows import Point, Samples, expected_seconds, load, samples_of, summarise, write

POINT: Point = (10, 100, 2)


def _sample(train: float, **fields: float) -> dict:
    sample = {"train_ms": train, "forward_ms": 1.0, "peak_mib": 2.0, "parameters": 5}
    learnt = {"log_likelihood_before": -2.0, "log_likelihood_after": -1.0}
    return sample | learnt | {"process_s": 4.0} | fields


def test_medians_and_back():
    samples: Samples = {("einet", POINT): [_sample(3.0), _sample(90.0), _sample(5.0)]}
    rows = summarise(samples, [POINT], {"einet": "1.0"}, absent=["libspn"])
    ours, absent = rows
    assert ours["train_ms"] == 5.0
    assert ours["train_ms_per_sample"] == 0.05
    assert ours["rounds"] == 3
    assert absent["note"] == "absent"
    assert samples_of(rows, {"einet": "1.0"}) == samples
    assert samples_of(rows, {"einet": "1.1"}) == {}


def test_what_is_not_measured_yet_says_so():
    (row,) = summarise({}, [POINT], {"einet": "1.0"})
    assert row["note"] == "not measured yet"
    assert row["rounds"] == 0


def test_duration_by_samples_and_by_medians():
    (row,) = summarise({("einet", POINT): [_sample(3.0)]}, [POINT], {"einet": "1.0"})
    assert expected_seconds([row], repeats=20, budget=5.0) == 4.0
    # Rows of older files have no samples. A step of 4 s: one to warm up, three to measure; a
    # forward pass of 0.1 s: twenty.
    row |= {"samples": [], "train_ms": 4000.0, "forward_ms": 100.0}
    assert expected_seconds([row], repeats=20, budget=5.0) == pytest.approx(12 + 4 + 12 + 2)


def test_files(tmp_path: Path):
    path = tmp_path / "results" / "cpu.json"
    assert load(path) == []
    rows = summarise({("einet", POINT): [_sample(3.0)]}, [POINT], {"einet": "1.0"})
    write(rows, path)
    assert load(path) == rows
    machine = json.loads((tmp_path / "results" / "cpu-machine.json").read_text())
    assert machine["cores"] >= 1
    assert len(list(path.parent.iterdir())) == 2
