"""The comparison on a CPU: rounds, failures, going on after an interruption."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import cpu

ARGUMENTS = ("--num-sums", "10", "--batches", "100", "--threads", "1", "2")
FAILS = {"error": "out of memory (more than 100 MiB)", "process_s": 30.0}


class Clock:
    """Stands in for the processes: the n-th measurement of a point takes n milliseconds."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, cpu.Point]] = []
        self.stop_after: int | None = None

    def measure(self, python: Path, name: str, point: cpu.Point, args: object) -> dict:
        if len(self.calls) == self.stop_after:
            raise KeyboardInterrupt
        self.calls.append((name, point))
        if name == "spflow-em":
            return dict(FAILS)
        number = float(self.calls.count((name, point)))
        measured = {"train_ms": number, "forward_ms": number, "peak_mib": number, "parameters": 7}
        learnt = {"log_likelihood_before": -2.0, "log_likelihood_after": -1.0}
        return measured | learnt | {"process_s": 60.0}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    result = Clock()
    monkeypatch.setattr(cpu, "measure", result.measure)
    monkeypatch.setattr(cpu, "interpreter", lambda *args: Path(sys.executable))
    monkeypatch.setattr(cpu, "version", lambda *args: "1.0")
    return result


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["cpu.py", *ARGUMENTS, *map(str, arguments)])
    cpu.main()


def rows_of(path: Path) -> dict[tuple[str, int], dict]:
    rows = json.loads(path.read_text())
    return {(row["implementation"], row["threads"]): row for row in rows}


def test_everything_gets_three_rounds(monkeypatch, clock: Clock, tmp_path: Path):
    run(monkeypatch, "--implementations", "einet", "spflow-em", "--output", tmp_path / "cpu.json")
    rows = rows_of(tmp_path / "cpu.json")
    assert rows["einet", 1]["rounds"] == rows["einet", 2]["rounds"] == 3
    assert rows["einet", 1]["train_ms"] == 2.0
    assert [sample["train_ms"] for sample in rows["einet", 1]["samples"]] == [1.0, 2.0, 3.0]
    # What fails once is not tried again, and says why.
    assert clock.calls.count(("spflow-em", (10, 100, 1))) == 1
    assert rows["spflow-em", 1]["note"] == FAILS["error"]
    assert rows["spflow-em", 1]["train_ms"] is None


def test_slow_ones_run_once_only_where_that_is_asked_for(monkeypatch, clock: Clock):
    run(monkeypatch, "--implementations", "einet", "--once-above", 59)
    assert len(clock.calls) == 2


def test_an_interrupted_run_goes_on(monkeypatch, clock: Clock, tmp_path: Path, capsys):
    output = tmp_path / "cpu.json"
    clock.stop_after = 3
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, "--implementations", "einet", "--output", output)
    assert rows_of(output)["einet", 1]["rounds"] == 2
    capsys.readouterr()
    clock.stop_after = None
    run(monkeypatch, "--implementations", "einet", "--output", output, "--resume")
    assert len(clock.calls) == 6
    assert {row["rounds"] for row in rows_of(output).values()} == {3}
    # One round of the one point and two of the other were missing, of a minute each.
    assert "about 3 minutes by what is stored" in capsys.readouterr().err


def test_other_versions_are_measured_anew(monkeypatch, clock: Clock, tmp_path: Path):
    output = tmp_path / "cpu.json"
    run(monkeypatch, "--implementations", "einet", "--output", output)
    monkeypatch.setattr(cpu, "version", lambda *args: "2.0")
    run(monkeypatch, "--implementations", "einet", "--output", output, "--resume")
    assert len(clock.calls) == 12


def test_points_that_were_never_measured_are_counted(monkeypatch, clock: Clock, capsys):
    run(monkeypatch, "--implementations", "einet")
    assert "6 processes of points that were never measured" in capsys.readouterr().err


def test_rows_of_a_peer_that_is_gone_are_not_overwritten(monkeypatch, clock, tmp_path: Path):
    output = tmp_path / "cpu.json"
    arguments = ("--implementations", "einet", "libspn", "--output", output)
    run(monkeypatch, *arguments)
    before = output.read_text()

    def interpreter(implementation, *args: object) -> Path:
        if implementation.name == "libspn":
            raise cpu.Unavailable("no such release")
        return Path(sys.executable)

    monkeypatch.setattr(cpu, "interpreter", interpreter)
    with pytest.raises(SystemExit, match="has rows of libspn, which cannot be measured here"):
        run(monkeypatch, *arguments)
    assert output.read_text() == before


def test_resume_needs_a_file(monkeypatch, clock: Clock):
    with pytest.raises(SystemExit):
        run(monkeypatch, "--resume")
