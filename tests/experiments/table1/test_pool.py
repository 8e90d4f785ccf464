"""Jobs in processes of their own."""

from __future__ import annotations

from pathlib import Path

from experiments.table1.entry import Job
from experiments.table1.pool import outcomes
from experiments.table1.store import Store


def test_what_fails_in_another_process_is_reported(tmp_path: Path):
    absent = str(tmp_path / "absent")
    job = Job("nltcs", "rat", absent, device="cpu", seeds=1, quick=True, workers=2)
    ((done, outcome),) = outcomes([job], Store(tmp_path), lambda job, text: None, workers=2)
    assert done == job
    assert isinstance(outcome, FileNotFoundError)
    assert "absent is no folder" in str(outcome)
