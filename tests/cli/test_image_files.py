"""``einet images`` and other people's files: none is lost, and what cannot work is not begun."""

from __future__ import annotations

import os
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import einet
from einet.cli.commands import app
from einet.imaging import Pixels

QUICK = ["--epochs", "1", "--num-sums", "2", "--batch-size", "20", "--device", "cpu"]


def run(*arguments: str | Path, code: int = 2) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, result.output
    if code == 2 and not result.stderr.startswith("Usage: "):
        # What is wrong is the last line, and one line alone.
        lines = result.stderr.splitlines()
        assert [line.startswith("einet: ") for line in lines].index(True) == len(lines) - 1
    return result.output


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of images, an array of them, a model, and a text."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (30, 4, 3), dtype=np.uint8)
    (tmp_path / "good").mkdir()
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / "good" / f"{number:02}.png")
    np.save(tmp_path / "data.npy", pixels)
    (tmp_path / "notes.txt").write_text("precious")
    model = einet.Einet(einet.poon_domingos((4, 3), 2), einet.Gaussian(), num_sums=2)
    model.initialize(pixels.reshape(30, 12))
    model.save(tmp_path / "m.einet", Pixels((4, 3, 1)).metadata())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    ("data", "output", "checkpoint", "words"),
    [
        ("good", "new.einet", "new.einet", "checkpoint: new.einet is the same file as new.einet"),
        ("good", "new.refine", "new", "checkpoint: new.refine is the same file as new.refine"),
        ("good", "new", "good/../new", "is the same file as new"),
        ("data.npy", "new", "data.npy", "checkpoint: data.npy is read by this command"),
        ("data.npy", "new", "hard.npy", "checkpoint: hard.npy is read by this command"),
        ("data.npy", "data.npy", "new", "output: data.npy is read by this command"),
        ("data.npy", "link.npy", "new", "output: link.npy is read by this command"),
        ("good", "good/07.png", "new", "output: good/07.png is read by this command"),
        ("good", "new", "good/07.png", "checkpoint: good/07.png is read by this command"),
        ("good", "new", "notes.txt", "checkpoint: notes.txt is there already and is no checkpoint"),
        ("good", "new", "m.einet", "checkpoint: m.einet is there already and is no checkpoint"),
        ("good", "new", "notes", "checkpoint: notes.refine is there already and is no checkpoint"),
        ("good", "new", "good", "checkpoint: good is a folder"),
        ("good", "new", "nowhere/a", "checkpoint: there is no folder nowhere"),
        ("good", "notes.txt/a", "new", "output: "),
        ("good", "/dev/null", "new", "output: /dev/null is no file"),
    ],
)
def test_training_writes_to_no_file_of_others(place, data, output, checkpoint, words):
    os.link(place / "data.npy", place / "hard.npy")
    (place / "link.npy").symlink_to("data.npy")
    (place / "notes.refine").write_text("precious")
    before = contents(place)
    more = ["--output", output, "--checkpoint", checkpoint, "--force", *QUICK]
    for resume in ([], ["--resume"]):
        assert words in run("images", "train", data, *more, *resume)
        assert contents(place) == before


def test_a_checkpoint_is_gone_only_once_it_has_served(place: Path):
    rows = np.zeros((9, 4), dtype=np.float32) + np.arange(4, dtype=np.float32)
    other = einet.Einet(einet.random_trees(4, 1, 1), einet.Gaussian(), num_sums=2)
    einet.fit(other, rows, epochs=1, checkpoint="new.einet.checkpoint.refine", progress=False)
    before = contents(place)
    output = run("images", "train", "good", "--output", "new.einet", *QUICK, code=0)
    # What an earlier training left must not be taken up by a later one; it is said.
    assert "new.einet.checkpoint.refine of an earlier training is replaced" in output
    after = contents(place)
    assert after.keys() - before.keys() == {str(place / "new.einet")}
    gone = before.keys() - after.keys()
    assert {Path(name).parent for name in gone} == {place / "new.einet.checkpoint.refine"}
    assert not (place / "new.einet.checkpoint").exists()
    # One of another run is refused, and stays.
    einet.fit(other, rows, epochs=1, checkpoint="other", progress=False)
    kept = contents(place / "other")
    more = ["--output", "next.einet", "--checkpoint", "other", "--resume", *QUICK]
    assert "is of another training run" in run("images", "train", "good", *more)
    assert contents(place / "other") == kept


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["sample", "m.einet", "--output", "m.einet"], "output: m.einet is read by this command"),
        (["sample", "m.einet", "--output", "notes.txt"], "is there already and is no PNG file"),
        (["sample", "m.einet", "--output", "good"], "output: good is a folder"),
        (["sample", "m.einet", "--output", "notes.txt/a.png"], "notes.txt is no folder"),
        (["sample", "m.einet", "--number", "999999999"], "number: 999999999 images of 4×3"),
        (["sample", "m.einet", "--zoom", "999999999"], "with zoom 999999999 make a picture of"),
        (["sample", "m.einet", "--max-pixels", "100"], "more than the 100 that are allowed"),
        (["sample", "m.einet", "--device", "meta"], "device must be cpu or cuda, got 'meta'"),
        (["sample", "m.einet", "--device", "cpu:3"], "device: there is no cpu:3"),
        (
            ["inpaint", "m.einet", "good/covered.png", "--box", "0,0,1,1", "--output", "good"],
            "output: good/covered.png is read by this command (image: good/covered.png)",
        ),
        (
            ["inpaint", "m.einet", "good/00.png", "--mask", "good/mean.png", "--output", "good"],
            "output: good/mean.png is read by this command (mask: good/mean.png)",
        ),
        (["inpaint", "m.einet", "good/00.png", "--box", "0,0,1,1", "--output", "notes.txt"],
         "output: "),
        (["inpaint", "m.einet", "good/00.png", "--box", "0,0,1,1", "--samples", "999999999"],
         "samples must be at most 100000, got 999999999"),
        (["inpaint", "m.einet", "good/00.png", "--box", "0,0,1,1", "--zoom", "99999"],
         "samples: 12 images of 4×3 with zoom 99999"),
        (["inpaint", "m.einet", "good/00.png", "--box", "0,0,1,1", "--max-pixels", "11"],
         "more than the 11 that are allowed"),
        (["evaluate", "m.einet", "good", "--max-pixels", "11"], "declares 4×3 pixels, more than"),
        (["train", "good", "--max-pixels", "11"], "declares 4×3 pixels, more than the 11 that"),
        (["train", "data.npy", "--max-pixels", "11"], "data.npy declares 4×3 pixels, more than"),
        (["train", "good", "--num-sums", "999999999"], "models with num_sums 999999999"),
        (["train", "good", "--step-size", "nan"], "step_size"),
        (["train", "good", "--step-size", "-1"], "step_size"),
        (["train", "good", "--prior", "nan"], "--prior"),
        (["train", "good", "--prior", "inf"], "must be"),
        (["train", "good", "--valid-share", "nan"], "share must be a number"),
        (["train", "good", "--delta", "nan"], "delta must be positive and finite"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_not_begun(place: Path, command: list[str], words: str):
    Image.open(place / "good" / "00.png").save(place / "good" / "covered.png")
    Image.open(place / "good" / "01.png").save(place / "good" / "mean.png")
    before = contents(place)
    assert words in run("images", *command)
    assert contents(place) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "notes.txt"], "out: "),
        (["--out", "notes.txt/inside"], "out: "),
        (["--out", "/proc/demo"], "out: nothing can be written to /proc"),
        (["--out", "mine"], "digits.einet is there already and is no model"),
        (["--num-sums", "999999999"], "models with num_sums 999999999"),
    ],
)
def test_a_demo_that_cannot_end_is_not_begun(place: Path, arguments: list[str], words: str):
    (place / "mine").mkdir()
    (place / "mine" / "digits.einet").write_text("precious")
    before = contents(place)
    assert words in run("demo", *arguments)
    assert contents(place) == before


def test_pictures_that_are_there_are_replaced_as_ever(place: Path):
    for _ in range(2):
        run("images", "sample", "m.einet", "--output", "new/s.png", code=0)
        box = ["--box", "0,0,2,3", "--samples", "1", "--output", "new"]
        run("images", "inpaint", "m.einet", "good/00.png", *box, code=0)
    assert len(list((place / "new").iterdir())) == 6


def test_a_full_disk_is_noticed_before_the_training(place: Path, monkeypatch: pytest.MonkeyPatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 8, 2))
    before = contents(place)
    assert "output: there is no room for" in run("images", "train", "good", *QUICK)
    assert "output: there is no room for" in run("images", "sample", "m.einet")
    assert contents(place) == before


def test_more_images_than_memory_are_not_begun(place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("einet._memory._UNASKED", 0)
    monkeypatch.setattr("einet._memory.available", lambda: 100)
    assert "30 images of 4×3×1 take" in run("images", "train", "good", *QUICK)
    assert not (place / "model.einet").exists()


def test_the_memory_of_images_is_announced(place: Path):
    output = run("images", "evaluate", "m.einet", "good", code=0)
    assert "30 images of 4×3×1 in good, 0.0 MB" in output


def test_names_that_no_terminal_can_show(place: Path):
    assert "there is no" in run("images", "train", "no\nsuch\udcff", *QUICK)
