"""Commands that start processes of their own write what one process would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from typer.testing import CliRunner

import einet
from einet.cli.commands import app
from einet.distributed import ProcessesError


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    a = generator.normal(size=120)
    frame = pandas.DataFrame({"a": a, "b": 2 * a + generator.normal(size=120)})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def test_two_workers_fit_what_one_does(table: Path, capfd: pytest.CaptureFixture[str]) -> None:
    models = []
    for workers in (1, 2):
        output = table.with_name(f"{workers}.einet")
        given = ("fit", table, "-o", output, "--epochs", 3, "--device", "cpu")
        result = run(*given, "--workers", workers)
        assert result.exit_code == 0, result.output
        models.append(einet.TableModel.load(output))
    one, two = (dict(model.model.named_parameters()) for model in models)
    for name, parameter in one.items():
        torch.testing.assert_close(two[name], parameter, rtol=1e-3, atol=1e-5)
    # Said once, by the first of them.
    assert capfd.readouterr().out.count("120 rows of 2 columns") == 1


def test_images_are_handed_to_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each calls what one process would; what they share is tested beside the processes."""
    from einet.cli import image_training

    called: list[Any] = []
    monkeypatch.setattr(image_training, "run_workers", lambda *given: called.append(given))
    np.save(tmp_path / "images.npy", np.zeros((4, 4, 4), dtype=np.uint8))
    given = ("images", "train", tmp_path / "images.npy", "--output", tmp_path / "model.einet")
    result = run(*given, "--device", "cpu", "--workers", 3)
    assert result.exit_code == 0, result.output
    ((workers, device, function, each, images, _, training),) = called
    assert (workers, device, each) == (3, torch.device("cpu"), 1)
    assert function is image_training.train_by
    assert images[0] == tmp_path / "images.npy"
    assert training.output == tmp_path / "model.einet"


def test_a_killed_worker_is_told_of_in_one_line(
    monkeypatch: pytest.MonkeyPatch, table: Path
) -> None:
    """That it is found out in time is tested beside the processes."""
    from einet.cli import table_fitting

    def killed(*given: Any) -> None:
        raise ProcessesError("process 1 was killed by signal 9 (SIGKILL)")

    monkeypatch.setattr(table_fitting, "run_workers", killed)
    output = table.with_name("model.einet")
    result = run("fit", table, "-o", output, "--device", "cpu", "--workers", 2)
    assert result.exit_code == 2
    assert result.output == "einet: process 1 was killed by signal 9 (SIGKILL)\n"


def test_mistakes(table: Path) -> None:
    output = table.with_name("model.einet")
    result = run("fit", "-", "-o", output, "--device", "cpu", "--workers", 2)
    assert result.exit_code == 2
    assert "several of them cannot read what is piped in" in result.output
    assert run("fit", table, "-o", output, "--workers", 0).exit_code == 2
