"""The whole command, on small data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from einet.data import debd
from experiments.table1 import entry, train
from experiments.table1.__main__ import main
from experiments.table1.settings import Settings


class Watch:
    """Counts trainings and readings of test rows, and may stop the run at a training."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        self.stop_at: int | None = None
        train_one, read = entry.train, debd.read

        def watched_train(
            data: train.Data, settings: Settings, seed: int, keep: Path | None = None
        ) -> train.Trained:
            if self.trainings == self.stop_at:
                raise KeyboardInterrupt
            self.events.append("search" if seed == entry.SEARCH_SEED else "final")
            return train_one(data, settings, seed, keep)

        def watched_read(name: str, split: str, root: Any):
            if split == "test":
                self.events.append("test")
            return read(name, split, root)

        monkeypatch.setattr(entry, "train", watched_train)
        monkeypatch.setattr(debd, "read", watched_read)

    @property
    def trainings(self) -> int:
        return len(self.events) - self.events.count("test")


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def run(root: Path, output: Path, *more: str, datasets: str = "nltcs") -> dict[str, Any]:
    # Other processes would not know of the small plan.
    arguments = ["--root", str(root), "--output", str(output), "--device", "cpu", "--workers", "1"]
    assert main([*arguments, "--datasets", datasets, *more]) == 0
    return json.loads((output / "results.json").read_text())


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "seconds"}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def test_searches_then_trains_then_reads_the_test_rows(root: Path, tmp_path: Path, watch: Watch):
    results = run(root, tmp_path / "out")
    once = ["search"] * 3 + ["final", "test"] * 3
    # Final models that are no mixtures are mixed at the end, of rows that were measured already.
    assert watch.events == [*once, *once, *once]
    assert list(results) == ["nltcs"]
    assert set(results["nltcs"]) == {"einsum", "rat", "learned"}
    single = results["nltcs"]["einsum"]
    # By Jensen's inequality a mixture is at least as likely as the mean of its members.
    assert single["mixed"]["members"] == 3
    assert single["mixed"]["test_ll"] >= single["test_ll"]
    for kind, result in results["nltcs"].items():
        assert result["seeds"] == [1, 2, 3]
        assert len(result["tried"]) == 3
        assert all(record["valid_ll"] < 0 for record in result["tried"])
        # The winner of all that was tried, short trainings included.
        best = max(result["tried"], key=lambda record: record["valid_ll"])
        assert result["settings"] == best["settings"] | {"members": 1 if kind == "einsum" else 2}
        tests = [model["test_ll"] for model in result["models"]]
        assert result["test_ll"] == pytest.approx(sum(tests) / 3)
        assert result["test_rows"] == 20
        assert result["seconds"] >= 0
        assert result["device"] == "cpu"
    table = (tmp_path / "out" / "results.md").read_text()
    assert "| nltcs | -6.011 | -6.015 | -5.99 " in table
    assert "| ours, one Einsum Network | p | its seeds mixed | ours, random trees mixed |" in table
    assert "Random trees (each entry an equal mixture of 2 models" in table
    assert "at or above the paper's EiNet on" in " ".join(table.split())
    assert not (tmp_path / "out" / "unfinished").exists()


@pytest.mark.parametrize("stop_at", [1, 4])
@pytest.mark.parametrize("kind", ["einsum", "rat"])
def test_goes_on_where_it_was_stopped(
    root: Path, tmp_path: Path, watch: Watch, stop_at: int, kind: str
):
    whole = run(root, tmp_path / "whole", "--kinds", kind)
    watch.events.clear()
    watch.stop_at = stop_at
    output = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        run(root, output, "--kinds", kind)
    assert not (output / "results.json").exists()
    watch.stop_at = None
    assert without_times(run(root, output, "--kinds", kind)) == without_times(whole)
    # Nothing was trained twice, and no model saw the test rows twice.
    assert watch.events == ["search"] * 3 + ["final", "test"] * 3


def test_no_model_begins_when_time_is_up(
    root: Path, tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
):
    whole = run(root, tmp_path / "whole", "--kinds", "einsum")
    watch.events.clear()
    output = tmp_path / "parts"
    clock, train_one = [0.0], entry.train

    def takes_a_minute(*arguments: Any) -> train.Trained:
        clock[0] += 60
        return train_one(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("time.time", lambda: clock[0])
        patch.setattr(entry, "train", takes_a_minute)
        arguments = ["--root", str(root), "--output", str(output), "--device", "cpu"]
        arguments += ["--workers", "1", "--datasets", "nltcs,msnbc", "--kinds", "einsum"]
        assert main([*arguments, "--minutes", "4.5"]) == 0
    assert not (output / "results.json").exists()
    # What is kept while an entry is not finished is scores and rows, but no models.
    kept = sorted(path.name for path in (output / "unfinished").rglob("*.*"))
    assert kept == ["msnbc-einsum.json", "rows-1.json", "rows-2.json"]
    results = run(root, output, "--kinds", "einsum", datasets="nltcs,msnbc")
    assert without_times(results["nltcs"]) == without_times(whole["nltcs"])
    assert watch.events == (["search"] * 3 + ["final", "test"] * 3) * 2


def test_a_finished_data_set_is_not_trained_again(root: Path, tmp_path: Path, watch: Watch):
    first = run(root, tmp_path, "--kinds", "rat", "--seeds", "1")
    trained = watch.trainings
    assert run(root, tmp_path, "--kinds", "rat", "--seeds", "1") == first
    assert watch.trainings == trained
    both = run(root, tmp_path, "--kinds", "rat", "--seeds", "1", datasets="msnbc,nltcs")
    assert list(both) == ["nltcs", "msnbc"]  # the order of the paper's table
    assert both["nltcs"] == first["nltcs"]
    assert watch.trainings == 2 * trained
    again = run(root, tmp_path, "--kinds", "rat", "--seeds", "1", "--again")
    assert watch.trainings == 3 * trained
    # The same seeds give the same numbers.
    assert without_times(again) == without_times(both)


def test_candidates_that_fail_are_left_out(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    train_one = entry.train

    def fails_for_three(data: train.Data, settings: Settings, *others: Any) -> train.Trained:
        if settings.num_sums == 3:
            raise RuntimeError("out of memory\nmore")
        return train_one(data, settings, *others)

    monkeypatch.setattr(entry, "train", fails_for_three)
    result = run(root, tmp_path, "--kinds", "rat", "--seeds", "1")["nltcs"]["rat"]
    assert result["settings"]["num_sums"] == 1
    errors = [record["error"] for record in result["tried"] if "error" in record]
    assert errors == ["RuntimeError: out of memory"]


def test_a_data_set_that_fails_does_not_stop_the_others(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (root / "nltcs.test.data").unlink()
    arguments = ["--root", str(root), "--output", str(tmp_path), "--device", "cpu"]
    arguments += ["--workers", "1", "--datasets", "nltcs,msnbc", "--kinds", "rat", "--seeds", "1"]
    assert main(arguments) == 1
    assert list(json.loads((tmp_path / "results.json").read_text())) == ["msnbc"]
    assert "failed: FileNotFoundError: the test rows of nltcs" in capsys.readouterr().out


def test_the_folder_comes_from_the_environment(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    moved = tmp_path / "elsewhere"
    shutil.move(root, moved)
    monkeypatch.setenv("EINET_DEBD", str(moved))
    arguments = ["--output", str(tmp_path), "--device", "cpu", "--datasets", "nltcs"]
    assert main([*arguments, "--workers", "1", "--kinds", "rat", "--seeds", "1"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--datasets", "mnist"], "name must be one of nltcs"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--minutes", "0"], "--minutes must be above 0, got 0"),
        (["--workers", "0"], "--workers must be at least 1, got 0"),
        (["--kinds", "poon"], "invalid choice: 'poon'"),
    ],
)
def test_bad_arguments(
    root: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as caught:
        main(["--root", str(root), *arguments])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
