"""The commands that every model knows."""

import os
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import einet
from einet.cli.commands import app


def test_demo_writes_pictures_and_a_model(tmp_path):
    arguments = ["demo", "--out", str(tmp_path), "--epochs", "1", "--num-sums", "2"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    for part in ("train", "valid", "test", "bits per dimension"):
        assert part in result.output
    panel = np.asarray(Image.open(tmp_path / "inpainting.png"))
    assert panel.ndim == 3
    assert panel.std() > 0
    assert (tmp_path / "samples.png").exists()
    assert einet.load(tmp_path / "digits.einet").num_variables == 64


@pytest.mark.parametrize("module", ["sklearn", "PIL"])
def test_demo_names_its_extra_before_it_trains(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "pip install 'einet[demo]'" in result.output
    assert not (tmp_path / "out").exists()


def test_info_describes_a_saved_model(tmp_path):
    model = einet.Einet(einet.random_trees(4, 1, 2), einet.Bernoulli(), num_sums=3)
    model.save(tmp_path / "model.einet")
    result = CliRunner().invoke(app, ["info", str(tmp_path / "model.einet")])
    assert result.exit_code == 0
    assert "Einet" in result.output


@pytest.mark.parametrize("content", [None, b"not a model"])
def test_info_says_what_is_wrong_with_a_file(tmp_path, content):
    path = tmp_path / "model.einet"
    if content is not None:
        path.write_bytes(content)
    result = CliRunner().invoke(app, ["info", str(path)])
    assert result.exit_code == 2
    assert "model.einet" in result.output


def test_info_does_not_wait_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "model.einet")
    result = CliRunner().invoke(app, ["info", str(tmp_path / "model.einet")])
    assert result.exit_code == 2
    assert "there is no model" in result.output
