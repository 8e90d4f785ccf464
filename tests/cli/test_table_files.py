"""Where commands for tables write, and how they talk."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest

import einet
from einet.cli.table_files import check_files, new_figure, save_plot, say_json, spoken_warnings


def test_what_is_read_is_not_written(tmp_path: Path):
    data = tmp_path / "data.csv"
    data.write_text("a\n1\n")
    with pytest.raises(ValueError, match=r"output: .*data.csv is read by this command \(data"):
        check_files({"data": data}, {"output": data})
    png = tmp_path / "a.png"
    check_files({}, {"output": None}, png, model=None)
    with pytest.raises(ValueError, match="output: .* is the same file as"):
        check_files({}, {}, png, model=png)
    check_files({"data": Path("-")}, {"output": Path("-")})
    assert data.read_text() == "a\n1\n"


def test_names_tell_what_is_written(tmp_path: Path):
    with pytest.raises(ValueError, match=r"out.txt.x: the name of a table ends in"):
        check_files({}, {"output": tmp_path / "out.txt.x"})
    with pytest.raises(ValueError, match=r"plot: .*a.gif must end in .png, .svg, .pdf"):
        check_files({}, plot=tmp_path / "a.gif")
    with pytest.raises(ValueError, match="a model is no text to print"):
        check_files({}, model=Path("-"))


def test_a_model_is_replaced_if_that_was_said(tmp_path: Path):
    path = tmp_path / "model.einet"
    check_files({}, model=path)
    einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=1).save(path)
    with pytest.raises(FileExistsError, match="is there already; --force replaces it"):
        check_files({}, model=path)
    check_files({}, model=path, force=True)
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    with pytest.raises(FileExistsError, match="is there already and is no model"):
        check_files({}, model=other, force=True)


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")]
)
def test_pictures_are_written_in_the_format_of_their_name(tmp_path: Path, name: str, start: bytes):
    figure = new_figure()
    figure.subplots().plot([0, 1])
    save_plot(figure, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_a_plot_without_matplotlib_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'einet\[plots\]'"):
        check_files({}, plot=tmp_path / "a.png")


def test_json_has_no_words_of_its_own(capsys):
    say_json({"a": float("nan"), "b": [float("-inf"), 1.5], 3: "ü", "c": (True, None)})
    said = capsys.readouterr().out
    assert json.loads(said) == {"a": None, "b": [None, 1.5], "3": "ü", "c": [True, None]}


def test_warnings_are_said_in_a_line_and_once(capsys):
    with spoken_warnings():
        for _ in range(2):
            warnings.warn("left\nout", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "einet: left out\n"
