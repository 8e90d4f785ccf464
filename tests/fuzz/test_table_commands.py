"""Random command lines for tables: a result or one line, and nobody's files are touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import einet
from einet.cli.commands import app
from tests.fuzz.bounds import bounded_memory
from tests.fuzz.campaign import Campaign
from tests.fuzz.test_command_line import COUNTS, DEVICES, SEEDS, contents

MEMORY = 1 << 30

# What may stand where a file is asked for. Made afresh for each case, the folder of which is {}.
PATHS = (
    "{}/people.csv", "{}/people.parquet", "{}/m.einet", "{}/plain.einet", "{}/notes.txt", "{}/pipe",
    "{}/empty.csv", "{}/ragged.csv", "{}/link.csv", "{}/hard.csv", "{}/circle.csv", "{}", "-", "",
    "{}/new.csv", "{}/new.parquet", "{}/new.einet", "{}/new.png", "{}/no/such/folder/a.csv",
    "{}/notes.txt/a.csv", "/dev/null", "/dev/full", "/proc/new.csv", "{}/" + "n" * 300 + ".csv",
    "{}/line\nend.csv", "{}/\udcff.csv", "{}/new.csv.gz", "{}/new.tsv", "{}/new.xlsx",
)  # fmt: skip
KINDS = (
    "job=categories", "age=integer", "age=bounded", "job=integer", "nobody=categories", "age=",
    "=integer", "age", "job=ordered", "age=constant", "gain=spiked", "age=nonsense",
    "\udcff=integer",
)  # fmt: skip
CONDITIONS = (
    "job=nurse", "age<30", "20<=age<40, job in {nurse, clerk}", "age=30 or gain>0", "not job=nurse",
    "gain=0", "age>1e400", "job=king", "agee<3", "", "(", "P(age<3)", "age<age", "age<30<40<50",
    "job in {}", "age=nan", "\x00", "age<'", "since>2020-02-30", "since<2021", "💥=1", "gain>1e300",
    " and ".join(["not(age<30 or gain=0)"] * 40), "(" * 300 + "age<3" + ")" * 300,
    "age<3" + "0" * 5000,
)  # fmt: skip
QUESTIONS = (
    *(f"P(age<40 | {condition})" for condition in CONDITIONS),
    *(f"{function}(age | job=nurse)" for function in ("E", "median", "mode", "distribution")),
    "quantile(0.9, gain)", "interval(0.5, since)", "quantile(2, age)", "E(job)", "mode(gain)", "E(",
    "P(age<30) P(age<30)", "P(age=30.5)", "E(nobody)", "interval(0.9)", "what?", "P(|)", "E(since)",
)  # fmt: skip
NUMBERS = (*COUNTS, "1000", "999999999")

OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "fit": {
        "--output": PATHS, "--column": KINDS, "--num-sums": COUNTS[:10], "--epochs": COUNTS[:4],
        "--missing": ("?", "", "nurse", "0"), "--plot": PATHS, "--seed": SEEDS, "--device": DEVICES,
    },
    "describe": {},
    "score": {"--output": PATHS, "--missing": ("?", "nurse"), "--device": DEVICES},
    "sample": {
        "--output": PATHS, "--number": NUMBERS, "--given": CONDITIONS, "--seed": SEEDS,
        "--device": DEVICES,
    },
    "impute": {
        "--output": PATHS, "--method": ("mean", "median", "mode", "sample", "best", ""),
        "--missing": ("?", "nurse"), "--seed": SEEDS, "--device": DEVICES,
    },
    "outliers": {"--number": NUMBERS, "--output": PATHS, "--device": DEVICES},
    "query": {"--device": DEVICES},
}  # fmt: skip
FLAGS = {
    "fit": ("--force", "--json"),
    "describe": ("--json",),
    "score": ("--json",),
    "outliers": ("--json",),
    "query": ("--json",),
}
ARGUMENTS = {
    "fit": ("people.csv",),
    "describe": ("m.einet",),
    "score": ("m.einet", "people.csv"),
    "sample": ("m.einet",),
    "impute": ("m.einet", "people.csv"),
    "outliers": ("m.einet", "people.csv"),
    "query": ("m.einet",),
}
# What a case begins with: quick work that succeeds.
DEFAULTS = {
    "fit": ("--epochs", "1", "--num-sums", "2", "--output", "{}/new.einet"),
    "sample": ("--output", "{}/new.csv", "--number", "3"),
    "impute": ("--output", "{}/new.csv"),
}
# What is written, by the options that name it.
WRITTEN = ("--output", "--plot")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], None]:
    """Fills a folder with tables, models, and files that are neither."""
    root = tmp_path_factory.mktemp("place")
    random = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, 40), "D")
    frame = pd.DataFrame(
        {
            "age": random.integers(18, 80, 40),
            "job": random.choice(["nurse", "clerk", "smith"], 40),
            "gain": np.where(random.random(40) < 0.7, 0.0, random.gamma(2.0, 50.0, 40)),
            "since": days,
        }
    )
    frame.loc[::7, "job"] = None
    frame.to_csv(root / "people.csv", index=False)
    frame.to_parquet(root / "people.parquet")
    model = einet.TableModel.fit(frame, num_sums=2, epochs=1, device="cpu")
    model.save(root / "m.einet")
    model.model.save(root / "plain.einet")
    (root / "notes.txt").write_text("precious")
    (root / "empty.csv").touch()
    (root / "ragged.csv").write_text("age,job\n3\n4,nurse,more\n")

    def fill(folder: Path) -> None:
        shutil.copytree(root, folder, dirs_exist_ok=True)
        os.link(folder / "people.csv", folder / "hard.csv")
        os.mkfifo(folder / "pipe")
        (folder / "link.csv").symlink_to(folder / "people.csv")
        (folder / "circle.csv").symlink_to(folder / "circle.csv")

    return fill


def command_line(random: np.random.Generator, folder: Path) -> list[str]:
    """A command with some options, hostile or not."""
    command = str(random.choice(list(OPTIONS)))
    line = [command]
    for name in ARGUMENTS[command]:
        path = f"{{}}/{name}" if random.random() < 0.8 else PATHS[random.integers(len(PATHS))]
        line.append(path)
    if command == "query":
        line.append(QUESTIONS[random.integers(len(QUESTIONS))])
    line += DEFAULTS.get(command, ())
    options = OPTIONS[command]
    for name in random.permutation(list(options))[: random.integers(0, 3)]:
        line += [str(name), options[name][random.integers(len(options[name]))]]
    line += [flag for flag in FLAGS.get(command, ()) if random.random() < 0.2]
    return [part.replace("{}/", f"{folder}/").replace("{}", str(folder)) for part in line]


def may_replace(line: list[str], changed: str) -> bool:
    """Whether a command was asked to write this file, which it does not read.

    A model is replaced only where that was asked for in so many words.
    """
    wanted = os.path.realpath(changed)
    # Of an option that is given twice, the last counts.
    given = {line[n - 1]: os.path.realpath(line[n]) for n in range(1, len(line))}
    places = [given[option] for option in WRITTEN if option in given]
    if line[0] == "fit" and given.get("--output") == wanted and "--force" not in line:
        return False
    read = [os.path.realpath(part) for part in line[1 : 1 + len(ARGUMENTS[line[0]])]]
    return wanted in places and wanted not in read


def test_hostile_table_commands(
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
        after = contents(folder)
        for name in before:
            if after.get(name, b"gone") != before[name]:
                assert result.exit_code == 0, line
                assert name in after, line
                assert may_replace(line, name), line
        if result.exit_code:
            said = [text for text in result.stderr.split("\n") if text.startswith("einet: ")]
            assert len(said) == 1 or "Usage:" in result.stderr, line
            new = after.keys() - before.keys()
            assert not [name for name in new if ".tmp" in name or ".part" in name], line
        return f"{line[0]}: {result.exit_code}"

    report = campaign.run("hostile_table_commands", case, 20)
    assert any(answer.endswith(": 0") for answer in report.answers)
