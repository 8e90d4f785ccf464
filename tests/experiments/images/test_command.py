"""The whole command, on small data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import einet
from einet.clusters import training as clusters
from einet.imaging.pixels import load_with_pixels
from experiments.images import __main__ as command
from experiments.images.__main__ import main
from experiments.images.panels import PANELS

TINY = ["train_rows=60", "test_rows=48", "num_sums=2", "clusters=2", "epochs=2", "batch_size=20"]
NAME = " ".join(["paper", *TINY])


def run(root: Path, output: Path, *more: str, code: int = 0) -> dict[str, Any]:
    arguments = ["mnist", "--root", str(root), "--output", str(output), "--device", "cpu"]
    assert main([*arguments, *more]) == code
    return json.loads((output / "mnist.json").read_text()) if code == 0 else {}


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models trained."""
    names, real = [], command._run

    def watched(name: str, *arguments: Any) -> str:
        names.append(name)
        return real(name, *arguments)

    monkeypatch.setattr(command, "_run", watched)
    return names


def test_results_and_pictures(root: Path, tmp_path: Path, trainings: list[str]):
    out, kept = tmp_path / "out", tmp_path / "kept"
    results = run(root, out, "--set", *TINY, "--keep", str(kept))
    (record,) = results.values()
    for name in ("test_ll", "test_se", "bits_per_dim", "train_seconds", "kmeans_seconds"):
        assert isinstance(record[name], float), name
    assert record["settings"]["num_sums"] == 2
    assert (record["device"], record["test_images"]) == ("cpu", 48)
    (folder,) = (out / "mnist").iterdir()
    assert sorted(path.stem for path in folder.iterdir()) == sorted(PANELS)
    assert not (out / "unfinished").exists()
    (file,) = kept.iterdir()
    model, pixels = load_with_pixels(file)
    assert (type(model), pixels.shape) == (einet.ClusteredEinet, (8, 8, 1))
    # What is finished is left alone, unless something about it changes.
    assert run(root, out, "--set", *TINY) == results
    assert trainings == [NAME]
    run(root, out, "--set", *TINY, "--again")
    assert trainings == [NAME, NAME]
    (folder / "samples.png").unlink()
    run(root, out, "--set", *TINY)
    assert len(trainings) == 3


def test_several_models(root: Path, tmp_path: Path):
    few = ["num_sums=2", "epochs=1", "batch_size=40", "valid_rows=20", "levels=2", "depth=2"]
    models = "categorical-chow-liu,soft-random-trees"
    more = ["--pictures", "none", "--no-checkpoints"]
    results = run(root, tmp_path, "--models", models, "--set", *few, *more)
    assert [name.split()[0] for name in results] == models.split(",")
    assert all(record["valid_images"] == 20 for record in results.values())
    assert not (tmp_path / "mnist").exists()


def test_a_search_reads_no_test_images(root: Path, tmp_path: Path):
    for file in (root / "mnist").glob("t10k-*"):
        file.unlink()
    models = tmp_path / "models.txt"
    models.write_text(
        "categorical-chow-liu # as it is\n\ncategorical-chow-liu num_sums=3 momentum=0.5\n"
    )
    few = ["num_sums=2", "epochs=1", "batch_size=40", "valid_rows=20", "levels=2"]
    arguments = ["mnist", "--root", str(root), "--output", str(tmp_path), "--device", "cpu"]
    searched = [*arguments, "--list-file", str(models), "--validation-only", "--set", *few]
    assert main(searched) == 0
    assert not (tmp_path / "mnist.json").exists()
    results = json.loads((tmp_path / "search-mnist.json").read_text())
    assert [record["settings"]["num_sums"] for record in results.values()] == [2, 3]
    for record in results.values():
        assert not record["test_read"]
        assert not any(name.startswith("test") for name in record if name != "test_read")
        assert record["train_bits"] > 0
        assert record["valid_bits"] > 0
    assert main([*arguments, "--list-file", str(models), "--set", *few]) == 1  # there are none


def test_an_interrupted_run_goes_on(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainings: list[str]
):
    whole = run(root, tmp_path / "whole", "--set", *TINY, "--pictures", "none")[NAME]
    real, out = clusters.ClusterTraining._teach, tmp_path / "parts"

    def pulled(training, lesson, start, watch):
        watch._interrupt.requested = training.done == 1
        return real(training, lesson, start, watch)

    with monkeypatch.context() as patch:
        patch.setattr(clusters.ClusterTraining, "_teach", pulled)
        run(root, out, "--set", *TINY, "--pictures", "none", code=130)
    assert len(list((out / "unfinished").iterdir())) == 1
    parts = run(root, out, "--set", *TINY, "--pictures", "none")[NAME]
    assert (parts["resumed"], whole["resumed"]) == (True, False)
    for name in ("test_ll", "bits_per_dim"):
        assert parts[name] == whole[name]
    assert not (out / "unfinished").exists()


def test_a_model_that_fails_does_not_stop_the_others(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def failing(*arguments: Any) -> str:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(command, "_run", failing)
    run(root, tmp_path, "--models", "all", code=1)


def test_quick_settings_and_names(capsys: pytest.CaptureFixture[str]):
    args = command._parse(["mnist", "--quick", "--root", ".", "--clusters", "3"])
    ((name, (settings, pictures)),) = args.wanted.items()
    assert name == "paper clusters=3"
    assert (settings.clusters, settings.train_rows, settings.num_sums) == (3, 1000, 8)
    assert pictures
    assert args.output.name == "quick"
    assert main(["svhn", "--list"]) == 0
    assert "both-axes: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--models", "none"], "--models must be of paper, .* got 'none'"),
        (["--set", "clusters"], "--set must be given NAME=VALUE, got 'clusters'"),
        (["--set", "flavour=red"], "there is no setting 'flavour'"),
        (["--models", "one", "--list-file", "x"], "--models must not be given with --list-file"),
        (["--list-file", "nowhere.txt"], "--list-file nowhere.txt cannot be read"),
        (["--validation-only", "--pictures", "all"], "--pictures all needs test images"),
        (
            ["--validation-only", "--models", "paper-all-images"],
            "paper-all-images: valid_rows must be at least 1 with --validation-only",
        ),
        (["--models", "one,one"], "--models must name different models, got 'one' twice"),
        (["--device", "cuda"], "there is no CUDA device here"),
    ],
    ids=str,
)
def test_wrong_arguments(
    more: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    if "cuda" in more and command.torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(SystemExit):
        main(["svhn", "--root", str(tmp_path), *more])
    assert re.search(message, capsys.readouterr().err)


def test_committed_searches_can_be_run():
    files = list((Path(command.__file__).parent / "searches").glob("*.txt"))
    assert files
    for file in files:
        more = ["--root", ".", "--validation-only", "--list-file", str(file)]
        args = command._parse([file.stem, *more])
        assert len(args.wanted) > 1
