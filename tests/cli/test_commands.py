"""The commands that every model knows."""

import os
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import einet
from einet.cli.commands import app
from einet.data.files import read_tensors, write_tensors
from einet.imaging import Pixels


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


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A model of small images, saved, and a folder with one of them."""
    folder = tmp_path_factory.mktemp("pictures")
    pixels = Pixels((2, 2, 3))
    model = einet.Einet(einet.random_trees(12, 1, 2), einet.Gaussian(), num_sums=2)
    model.save(folder / "model.einet", pixels.metadata())
    (folder / "images").mkdir()
    Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(folder / "images" / "a.png")
    return folder


COMMANDS = {
    "info": ["info", "{model}"],
    "sample": ["images", "sample", "{model}", "--output", "{out}"],
    "inpaint": [
        "images", "inpaint", "{model}", "{image}", "--box", "0,0,2,1", "--output", "{out}",
    ],
    "evaluate": ["images", "evaluate", "{model}", "{images}"],
}  # fmt: skip


@pytest.mark.parametrize("fault", ["flipped", "cut", "large", "deep", "pipe"])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_damaged_model_is_refused_in_one_line(tmp_path, pictures, command, fault):
    content = (pictures / "model.einet").read_bytes()
    path = tmp_path / "bad.einet"
    if fault == "flipped":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif fault == "cut":
        path.write_bytes(content[:-1])
    elif fault == "pipe":
        os.mkfifo(path)
    else:
        header, tensors = read_tensors(pictures / "model.einet", "einet")
        if fault == "large":
            header["model"]["num_leaves"] = 10**12
        for _ in range(0 if fault == "large" else 100):
            header["model"] = {"kind": "Mixture", "dtype": "x", "components": [header["model"]]}
        write_tensors(path, tensors, "einet", header)
    images = pictures / "images"
    places = {"model": path, "out": tmp_path / "out", "image": images / "a.png", "images": images}
    result = CliRunner().invoke(app, [part.format(**places) for part in command])
    assert result.exit_code == 2, result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("einet: ")]
    said = "there is no model" if fault == "pipe" else "is no model that"
    assert "bad.einet" in line
    assert said in line
    assert not (tmp_path / "out").exists()


def test_info_does_not_wait_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "model.einet")
    result = CliRunner().invoke(app, ["info", str(tmp_path / "model.einet")])
    assert result.exit_code == 2
    assert "there is no model" in result.output
