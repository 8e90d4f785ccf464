"""The check against a RAT-SPN, on small data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.table1 import sanity


def test_the_command(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = sanity.Check("nltcs", 2, replicas=2, num_sums=2, batch_size=30, epochs=2)
    monkeypatch.setattr(sanity, "CHECKS", (check,))
    arguments = ["--root", str(root), "--output", str(tmp_path), "--device", "cpu", "--seeds", "2"]
    assert sanity.main(arguments) == 0
    (row,) = json.loads((tmp_path / "sanity.json").read_text())
    assert row["check"] == check._asdict()
    assert len(row["einet_test_ll"]) == len(row["rat_spn_test_ll"]) == 2
    # From one start both are the same network after the same steps.
    assert row["same_start_largest_difference"] < 1e-4
    assert "| nltcs | 2 | 2 | 2 | -" in (tmp_path / "sanity.md").read_text()
    monkeypatch.setattr(sanity, "measure", None)
    assert sanity.main(arguments) == 0
