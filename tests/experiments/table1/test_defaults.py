"""What the defaults of ``fit`` reach."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.table1 import defaults, defaults_report, report
from experiments.table1.store import read_json


def test_the_command(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that were not measured on test rows are trained again for that, others are not."""
    out = tmp_path / "out"
    common = ["--root", str(root), "--output", str(out), "--device", "cpu", "--workers", "1"]
    few = [*common, "--datasets", "nltcs", "--seeds", "1"]
    assert defaults.main([*few, "--validation-only"]) == 0
    rows = json.loads((out / "defaults.json").read_text())
    assert [row["variant"] for row in rows] == ["before", "now"]
    assert all("test_ll" not in row for row in rows)
    assert "No data set has been measured" in (out / "defaults.md").read_text()
    assert defaults.main(few) == 0
    measured = json.loads((out / "defaults.json").read_text())
    assert [row["valid_ll"] for row in measured] == [row["valid_ll"] for row in rows]
    assert all(row["test_rows"] == 20 for row in measured)
    assert "On test rows of 1 data sets" in (out / "defaults.md").read_text()
    monkeypatch.setattr(defaults, "train", None)
    assert defaults.main(few) == 0


def test_what_fails_is_said(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(job: defaults.Job) -> dict:
        raise RuntimeError("no memory")

    monkeypatch.setattr(defaults, "train", broken)
    common = ["--root", str(root), "--output", str(tmp_path), "--device", "cpu", "--workers", "1"]
    assert defaults.main([*common, "--datasets", "nltcs", "--seeds", "1"]) == 1
    assert "nltcs now 1 failed: RuntimeError: no memory" in capsys.readouterr().out


@pytest.mark.parametrize("bad", [["--seeds", "0"], ["--datasets", "nothing"]])
def test_bad_arguments(root: Path, bad: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        defaults.main(["--root", str(root), *bad])
    assert bad[1] in capsys.readouterr().err


def test_the_summary() -> None:
    def row(name: str, variant: str, test: float) -> dict:
        kept = {"dataset": name, "variant": variant, "seed": 1, "valid_ll": test - 1}
        return kept | {"test_ll": test, "best_epoch": 3, "epochs": 9, "seconds": 1, "device": "cpu"}

    rows = [
        row("nltcs", "before", -7.0), row("nltcs", "now", -6.0), row("dna", "before", -99.0),
        row("dna", "now", -98.0),
    ]  # fmt: skip
    searched = {"nltcs": {"rat": {"test_ll": -5.99}}, "dna": {"rat": {"test_ll": -93.5}}}
    said = defaults_report.markdown(rows, searched)
    assert "better than those before on 2 of 2 (by 7.6 % " in said
    assert "the paper's EiNets, whose settings were searched: at or above on 1 of 2" in said
    assert "at most 1 % below on 1, at most 3 % below on 2" in said
    assert "| dna | -100.000 | -99.000 | -99.000 | -98.000 | -96.086 | -93.500 |" in said
    assert "one Einsum Network" not in said
    both = {"nltcs": searched["nltcs"] | {"einsum": {"test_ll": -6.01}}, "dna": searched["dna"]}
    assert "Beside our one Einsum Network after a search for each set: at or above on 1 of 1" in (
        defaults_report.summary(rows, both)
    )


def test_committed_results() -> None:
    folder = Path(report.__file__).parent
    rows, results = read_json(folder / "defaults.json", []), read_json(folder / "results.json", {})
    kept = (folder / "defaults.md").read_text(encoding="utf-8")
    assert defaults_report.markdown(rows, results) == kept
    page = (folder.parents[1] / "docs" / "table1.md").read_text(encoding="utf-8")
    assert report.refreshed(page, defaults_report.page(rows, results), "defaults") == page
