"""Random command lines: a result or one line, never a traceback, and nobody's files are touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import einet
from einet.cli.commands import app
from einet.imaging import Pixels
from tests.fuzz.bounds import bounded_memory
from tests.fuzz.campaign import Campaign

MEMORY = 1 << 30
SIZE = (4, 3)

# What may stand where a file is asked for. Made afresh for each case, the folder of which is {}.
PATHS = (
    "{}/photos", "{}/photos/0.png", "{}/photos/1.png", "{}/m.einet", "{}/old.checkpoint",
    "{}/data.npy", "{}/notes.txt", "{}/link.einet", "{}/hard.npy", "{}/pipe", "{}/empty",
    "{}/new", "{}/photos/new.png", "{}/no/such/folder/a.png", "{}/notes.txt/a.png", "{}/zip.zip",
    "{}", "{}/circle", "/dev/null", "/dev/full", "/proc/new.png", "", ".", "/", "{}/" + "n" * 300,
    "{}/line\nend.png", "{}/\udcff.png",
)  # fmt: skip
COUNTS = ("1", "2", "3", "0", "-1", "nan", "inf", "1e9", "x", "", "²", "9" * 30, "9" * 5000)
NUMBERS = ("0.1", "0.5", "1", "0", "-1", "nan", "inf", "-inf", "1e400", "x", "")
# Work of these would go on for ages, as was asked for; of those below it would be large.
LARGE = (*COUNTS, "999999999", "1000000")
SEEDS = ("0", "7", "-1", str(2**63 - 1), str(2**63), str(2**64), "x")
SIZES = ("4x3", "4", "0", "-1x3", "4x3x2", "99999999x99999999", "1" * 5000, "x", "nan", "4×3")
WORDS = ("", "auto", "folder", "idx", "svhn", "celeba", "npy", "train", "test", "mean", "sample")
MORE_WORDS = (
    "both",
    "vertical",
    "paper",
    "chow-liu",
    "binomial",
    "ycocg",
    "rgb",
    "high",
    "nonsense",
)
BOXES = ("0,0,2,3", "0,0,4,3", "-1,0,2,2", "0,0,9,9", "nan", "", "0,0,1", "9" * 40 + ",0,1,1")
DEVICES = ("cpu", "cpu", "cuda:99", "cpu:7", "meta", "mps", "abacus", "")
PIXELS = ("1", "11", "1000", "0", "-5", "nan", str(2**63 - 1), str(2**64))

OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "images train": {
        "--output": PATHS, "--checkpoint": PATHS, "--kind": WORDS, "--split": WORDS,
        "--size": SIZES, "--crop": SIZES, "--limit": LARGE, "--max-pixels": PIXELS,
        "--recipe": ("default", *MORE_WORDS), "--valid-share": NUMBERS, "--clusters": LARGE,
        "--structure": ("poon-domingos", *MORE_WORDS), "--num-sums": LARGE, "--delta": NUMBERS,
        "--axes": MORE_WORDS, "--family": MORE_WORDS, "--epochs": COUNTS, "--batch-size": LARGE,
        "--colour": MORE_WORDS, "--step-size": NUMBERS, "--last-step-size": NUMBERS,
        "--prior": NUMBERS, "--refine": COUNTS, "--precision": MORE_WORDS, "--seed": SEEDS,
        "--device": DEVICES,
    },
    "images sample": {
        "--output": PATHS, "--number": LARGE, "--leaves": WORDS, "--columns": LARGE,
        "--zoom": LARGE, "--max-pixels": PIXELS, "--seed": SEEDS, "--device": DEVICES,
    },
    "images inpaint": {
        "--mask": PATHS, "--box": BOXES, "--output": PATHS, "--samples": LARGE, "--leaves": WORDS,
        "--max-pixels": PIXELS, "--zoom": LARGE, "--seed": SEEDS, "--device": DEVICES,
    },
    "images evaluate": {
        "--kind": WORDS, "--split": WORDS, "--size": SIZES, "--crop": SIZES, "--limit": LARGE,
        "--max-pixels": PIXELS, "--draws": COUNTS, "--seed": SEEDS, "--device": DEVICES,
    },
    "info": {},
    # One that is not refused trains for seconds.
    "demo": {
        "--out": tuple(path for path in PATHS if path.endswith(("txt", "pipe", "null", "circle"))),
        "--epochs": COUNTS, "--num-sums": LARGE, "--seed": SEEDS,
    },
}  # fmt: skip
FLAGS = {
    "images train": ("--force", "--resume", "--grey", "--no-grey"),
    "images inpaint": ("--resize", "--grey"),
    "images evaluate": ("--grey",),
}
ARGUMENTS = {
    "images train": ("photos",),
    "images sample": ("m.einet",),
    "images inpaint": ("m.einet", "photos/0.png"),
    "images evaluate": ("m.einet", "photos"),
    "info": ("m.einet",),
    "demo": (),
}
# What a case begins with: quick work that succeeds.
DEFAULTS = {
    "images train": ("--epochs", "1", "--num-sums", "2", "--batch-size", "5", "--output", "{}/new"),
    "images sample": ("--output", "{}/new.png"),
    "images inpaint": ("--box", "0,0,2,3", "--output", "{}/new", "--samples", "1"),
    "demo": ("--out", "{}/notes.txt", "--epochs", "1", "--num-sums", "2"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], None]:
    """Fills a folder with images, a model, a checkpoint and files that are none of these."""
    root = tmp_path_factory.mktemp("place")
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (12, *SIZE), dtype=np.uint8)
    (root / "photos").mkdir()
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(root / "photos" / f"{number}.png")
    np.save(root / "data.npy", pixels)
    shutil.make_archive(str(root / "zip"), "zip", root / "photos")
    (root / "notes.txt").write_text("precious")
    (root / "empty").touch()
    graph = einet.poon_domingos(SIZE, 2)
    model = einet.Einet(graph, einet.Gaussian(), num_sums=2)
    rows = pixels.reshape(12, -1)
    einet.fit(model, rows, epochs=1, checkpoint=root / "old.checkpoint", progress=False)
    model.save(root / "m.einet", Pixels((*SIZE, 1)).metadata())

    def fill(folder: Path) -> None:
        shutil.copytree(root, folder, dirs_exist_ok=True)
        os.link(folder / "data.npy", folder / "hard.npy")
        os.mkfifo(folder / "pipe")
        (folder / "link.einet").symlink_to(folder / "m.einet")
        (folder / "circle").symlink_to(folder / "circle")

    return fill


def command_line(random: np.random.Generator, folder: Path) -> list[str]:
    """A command with some options, hostile or not."""
    command = str(random.choice(list(OPTIONS)))
    line = command.split()
    for name in ARGUMENTS[command]:
        path = f"{{}}/{name}" if random.random() < 0.8 else PATHS[random.integers(len(PATHS))]
        line.append(path)
    line += DEFAULTS.get(command, ())
    options = OPTIONS[command]
    for name in random.permutation(list(options))[: random.integers(0, 4)]:
        line += [str(name), options[name][random.integers(len(options[name]))]]
    line += [flag for flag in FLAGS.get(command, ()) if random.random() < 0.2]
    return [part.replace("{}", str(folder)) for part in line]


def contents(folder: Path) -> dict[str, bytes | None]:
    """All that lies in a folder, files with what is in them."""
    found = (path for path in folder.rglob("*") if not path.is_dir())
    return {str(path): path.read_bytes() if path.is_file() else None for path in found}


def may_replace(line: list[str], before: dict[str, bytes | None], changed: str) -> bool:
    """Whether a command was asked to replace a file, which is of a kind that it replaces."""
    content = before[changed] or b""
    given = {line[n - 1]: os.path.realpath(line[n]) for n in range(1, len(line))}
    wanted = os.path.realpath(changed)
    if "train" in line:
        forced = "--force" in line and given.get("--output") == wanted
        # A run that is given the folder of another takes the place of it.
        of_run = os.path.basename(wanted) == "lock" or b"einet.checkpoint" in content
        return forced or (of_run and given.get("--checkpoint") == os.path.dirname(wanted))
    is_read = wanted in map(os.path.realpath, line[2:4]) or given.get("--mask") == wanted
    place = given.get("--output", "")
    return content.startswith(b"\x89PNG") and not is_read and wanted.startswith(place)


def test_hostile_command_lines(
    campaign: Campaign,
    place: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    runner = CliRunner()
    # Outputs named without a folder must not end up beside the source.
    monkeypatch.chdir(tmp_path)

    def case(random: np.random.Generator, folder: Path) -> str:
        place(folder)
        before, line = contents(folder), command_line(random, folder)
        (folder / "command").write_text(repr(line))
        with bounded_memory(MEMORY):
            result = runner.invoke(app, line)
        (folder / "command").unlink()
        assert isinstance(result.exception, SystemExit | None), line
        assert result.exit_code in (0, 1, 2), line
        if result.exit_code and result.stderr.startswith("einet: "):
            last = result.stderr.rstrip("\n").split("\n")
            assert sum(text.startswith("einet: ") for text in last) == 1
        after = contents(folder)
        changed = [name for name in before if after.get(name, b"gone") != before[name]]
        for name in changed:
            assert result.exit_code == 0, line
            assert name in after or "--checkpoint" in line, line
            assert may_replace(line, before, name), line
        if result.exit_code:
            new = [name for name in after.keys() - before.keys() if "checkpoint" not in name]
            assert not [name for name in new if ".tmp" in name or ".part" in name], line
        return f"{' '.join(line[: 1 + (line[0] == 'images')])}: {result.exit_code}"

    report = campaign.run("hostile_command_lines", case, 20)
    assert any(answer.endswith(": 0") for answer in report.answers)
