"""The commands for tables, from a csv file to answers."""

from __future__ import annotations

import io
import json
import os
import signal
from pathlib import Path

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

import einet
from einet.cli.commands import app
from einet.cli.table_fitting import as_columns
from einet.tables import TableModel


def run(*arguments: object, stdin: bytes | None = None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def made(rows: int = 300) -> pandas.DataFrame:
    generator = np.random.default_rng(0)
    sex = generator.choice(["Female", "Male"], rows)
    return pandas.DataFrame(
        {
            "name": [f"person {number}" for number in range(rows)],
            "sex": sex,
            "hours per week": generator.normal(np.where(sex == "Male", 45, 30), 4).round(1),
            "children": generator.integers(0, 4, rows),
            "member": generator.random(rows) < 0.3,
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a table, one with holes, and a model of it that the command made."""
    folder = tmp_path_factory.mktemp("tables")
    made().to_csv(folder / "people.csv", index=False)
    holes = made(20)
    holes.loc[::3, "sex"] = None
    holes.loc[::4, "hours per week"] = None
    holes["more"] = [None, 1.0] * 10
    holes.to_csv(folder / "holes.csv", index=False)
    result = run(
        "fit", folder / "people.csv", "-o", folder / "model.einet", "--epochs", 3, "--num-sums", 4,
        "--plot", folder / "curve.png", "--column", "children=integer",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "300 rows of 5 columns, 3 epochs" in result.output
    # What was left out is said, in a line.
    (line,) = [line for line in result.output.splitlines() if line.startswith("einet: ")]
    assert "'name'" in line
    return folder


def test_fit_writes_a_model_and_its_curve(folder):
    model = TableModel.load(folder / "model.einet")
    assert model.table.names == list(made().columns)
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_an_interrupted_fit_goes_on_to_the_same_model(folder, tmp_path, monkeypatch):
    words = ["fit", folder / "people.csv", "--epochs", 4, "--num-sums", 2, "-o"]
    assert run(*words, tmp_path / "whole.einet").exit_code == 0
    assert [file.name for file in tmp_path.iterdir()] == ["whole.einet"]
    real, steps = einet.StochasticEM.step, []

    def step(learner, *arguments, **options):
        steps.append(1)
        if len(steps) == 14:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(learner, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(einet.StochasticEM, "step", step)
        result = run(*words, tmp_path / "parts.einet")
    assert result.exit_code == 130
    assert "--resume goes on from" in result.output
    assert not (tmp_path / "parts.einet").exists()
    assert (tmp_path / "parts.einet.checkpoint").is_dir()
    assert run(*words, tmp_path / "parts.einet", "--resume").exit_code == 0
    whole, parts = (tmp_path / f"{name}.einet" for name in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()
    assert not (tmp_path / "parts.einet.checkpoint").exists()


def test_fit_from_a_pipe_and_in_json(folder, tmp_path):
    content = (folder / "people.csv").read_bytes()
    path = tmp_path / "m.einet"
    result = run("fit", "-", "-o", path, "--epochs", 1, "--num-sums", 2, "--json", stdin=content)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["rows"], said["epochs"], said["model"]) == (300, 1, str(path))
    again = run("fit", folder / "people.csv", "-o", path)
    assert again.exit_code == 2
    assert "is there already; --force replaces it" in again.output


def test_describe(folder):
    result = run("describe", folder / "model.einet")
    assert result.exit_code == 0
    assert "hours per week" in result.output
    assert "parameters" in result.output
    said = json.loads(run("describe", folder / "model.einet", "--json").stdout)
    assert list(said["columns"]) == list(made().columns)


def test_score(folder, tmp_path):
    model = TableModel.load(folder / "model.einet")
    logs = model.log_prob(made())
    result = run("score", folder / "model.einet", folder / "people.csv", "-o", tmp_path / "s.csv")
    assert result.exit_code == 0, result.output
    assert f"mean log-likelihood {logs.mean():.4f} nats" in result.output
    assert pandas.read_csv(tmp_path / "s.csv")["log_prob"].to_numpy() == pytest.approx(logs)
    said = json.loads(run("score", folder / "model.einet", folder / "people.csv", "--json").stdout)
    assert said["mean_log_prob"] == pytest.approx(logs.mean())
    piped = run("score", folder / "model.einet", folder / "people.csv", "-o", "-")
    assert len(pandas.read_csv(io.StringIO(piped.stdout))) == 300


def test_sample(folder, tmp_path):
    out, picture = tmp_path / "new.csv", tmp_path / "pairs.png"
    given = "sex=Female, 20<=`hours per week`<30 or member"
    result = run(
        "sample", folder / "model.einet", "-n", 50, "--given", given, "-o", out,
        "--plot", picture, "--data", folder / "people.csv", "--seed", 3,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    drawn = pandas.read_csv(out)
    assert list(drawn.columns) == ["sex", "hours per week", "children", "member"]
    assert len(drawn) == 50
    assert set(drawn["sex"]) == {"Female"}
    hours = drawn["hours per week"]
    assert (((hours >= 20) & (hours < 30)) | drawn["member"]).to_numpy().all()
    assert picture.read_bytes().startswith(b"\x89PNG")
    one, two = (run("sample", folder / "model.einet", "-n", 5, "--seed", 1) for _ in range(2))
    assert one.stdout == two.stdout
    assert len(pandas.read_csv(io.StringIO(one.stdout))) == 5


@pytest.mark.parametrize("method", ["mean", "median", "mode", "sample"])
def test_impute(folder, tmp_path, method):
    out = tmp_path / "full.csv"
    result = run(
        "impute", folder / "model.einet", folder / "holes.csv", "-o", out, "--method", method
    )
    assert result.exit_code == 0, result.output
    assert "filled 12 cells and wrote 20 rows" in result.output
    assert "10 cells of columns that the model does not know stay empty" in result.output
    before, after = pandas.read_csv(folder / "holes.csv"), pandas.read_csv(out)
    assert list(after.columns) == list(before.columns)
    assert not after[["sex", "hours per week"]].isna().to_numpy().any()
    # What was known is as it was.
    known = before.notna().to_numpy()
    assert (after.to_numpy(object)[known] == before.to_numpy(object)[known]).all()


def test_outliers(folder, tmp_path):
    odd = made(40)
    odd.loc[7, "hours per week"] = 58.0
    odd.loc[7, "sex"] = "Female"
    odd.to_csv(tmp_path / "odd.csv", index=False)
    arguments = ("outliers", folder / "model.einet", tmp_path / "odd.csv", "-n", 2)
    out, picture = tmp_path / "cells.csv", tmp_path / "why.svg"
    result = run(*arguments, "--plot", picture, "-o", out)
    assert result.exit_code == 0, result.output
    first = next(line for line in result.stdout.splitlines() if line.startswith("row "))
    assert first.startswith("row 8: log-likelihood")
    assert "hours per week=58.0" in first
    assert picture.read_text().startswith("<?xml")
    cells = pandas.read_csv(out)
    assert list(cells.columns) == ["log_prob", "sex", "hours per week", "children", "member"]
    said = json.loads(run(*arguments, "--json").stdout)
    assert said[0]["row"] == 8
    told = said[0]["cells"][0]
    assert told["column"] == "hours per week"
    assert told["surprise"] == pytest.approx(cells["hours per week"][7])


def test_query(folder, tmp_path):
    model = TableModel.load(folder / "model.einet")
    text = 'P(sex=Male | "hours per week" > 40, not member)'
    result = run("query", folder / "model.einet", text, "--plot", tmp_path / "m.png")
    assert result.exit_code == 0, result.output
    value = model.query(text).value
    assert float(result.stdout) == pytest.approx(value, rel=1e-4)
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
    said = json.loads(run("query", folder / "model.einet", "E(children)", "--json").stdout)
    assert said["kind"] == "mean"
    assert 1 < said["value"] < 2


MISTAKES = {
    "no model": (["query", "nowhere.einet", "P(a)"], "there is no model nowhere.einet"),
    "unread": (["query", "{model}", "P(sex="], "got the end (at character 7: the end)"),
    "column": (["query", "{model}", "P(sx=Male)"], "no column 'sx'; did you mean 'sex'? (at chara"),
    "value": (["query", "{model}", "P(sex=male)"], "'male' is no value of 'sex', which has"),
    "left out": (["query", "{model}", "mode(name)"], "'name' was left out of the model"),
    "given": (["sample", "{model}", "--given", "sex="], "(at character 5: the end)"),
    "impossible": (["sample", "{model}", "--given", "children=9"], "probability 0"),
    "plot alone": (["sample", "{model}", "--plot", "a.png"], "plot and data go together"),
    "empty csv": (["score", "{model}", "{empty}"], "empty.csv is empty"),
    "ragged": (["score", "{model}", "{ragged}"], "line 3 has 1 cells, but the header has 2 names"),
    "no csv": (["impute", "{model}", "nowhere.csv"], "there is no table nowhere.csv"),
    "other csv": (["score", "{model}", "{other}"], "has no column of the table"),
    "method": (["impute", "{model}", "{data}", "--method", "best"], "method must be one of"),
    "output": (["impute", "{model}", "{data}", "-o", "{data}"], "is read by this command"),
    "images": (["describe", "{images}"], "without the schema of a table"),
    "kind": (["fit", "{data}", "-o", "{new}", "--column", "sex"], "column must be NAME=KIND"),
    "device": (["score", "{model}", "{data}", "--device", "abacus"], "device must be cpu or cuda"),
}


@pytest.mark.parametrize(("command", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_in_one_line(folder, tmp_path, command, said):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n1\n")
    (tmp_path / "other.csv").write_text("x,y\n1,2\n")
    images = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=1)
    images.save(tmp_path / "images.einet")
    places = {
        "model": folder / "model.einet",
        "data": folder / "people.csv",
        "new": tmp_path / "new.einet",
        "images": tmp_path / "images.einet",
        **{name: tmp_path / f"{name}.csv" for name in ("empty", "ragged", "other")},
    }
    before = (folder / "people.csv").read_bytes()
    result = run(*(part.format(**places) for part in command))
    assert result.exit_code == 2, result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("einet: ")]
    assert said in line
    assert result.stdout == ""
    assert (folder / "people.csv").read_bytes() == before
    assert not (tmp_path / "new.einet").exists()


def test_kinds_of_columns():
    assert as_columns(["a=b=integer"]) == {"a=b": "integer"}
    for wrong in (["a"], ["=integer"], ["a="], ["a=integer", "a=positive"]):
        with pytest.raises(ValueError, match="column"):
            as_columns(wrong)


def test_parquet_goes_in_and_comes_out(folder, tmp_path):
    made(30).to_parquet(tmp_path / "in.parquet")
    result = run(
        "impute", folder / "model.einet", tmp_path / "in.parquet", "-o", tmp_path / "out.parquet"
    )
    assert result.exit_code == 0, result.output
    back = pandas.read_parquet(tmp_path / "out.parquet")
    pandas.testing.assert_frame_equal(back, made(30), check_dtype=False)
