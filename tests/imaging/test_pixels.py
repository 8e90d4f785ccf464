"""Between images and variables."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import einet
from einet.imaging.pixels import Pixels, load_with_pixels


def model(variables: int = 6) -> einet.Einet:
    return einet.Einet(einet.random_trees(variables, 1, 1), einet.Gaussian(), num_sums=2)


def test_there_and_back():
    bytes_ = torch.arange(12, dtype=torch.uint8).view(2, 6) * 20
    for scale in (1.0, 255.0):
        pixels = Pixels((1, 2, 3), scale)
        x = pixels.to_model(bytes_)
        np.testing.assert_array_equal(pixels.to_pictures(x), bytes_.view(2, 1, 2, 3).numpy())
    assert Pixels((1, 2, 3)).to_model(bytes_) is bytes_


def test_values_beyond_bytes_are_cut_off():
    pixels = Pixels((1, 3, 1), 255.0)
    shown = pixels.to_pictures(torch.tensor([[-0.2, 0.5, 1.7]]))
    assert shown.ravel().tolist() == [0, 128, 255]
    assert pixels.to_bytes(torch.tensor([[2.0, torch.nan, 0.0]]))[0, 0] == 510


def test_a_file_remembers(tmp_path: Path):
    path = tmp_path / "model.einet"
    pixels = Pixels((2, 3, 1), 255.0)
    model().save(path, pixels.metadata(note="small"))
    loaded, found = load_with_pixels(path)
    assert found == pixels
    assert loaded.num_variables == 6
    assert einet.load_metadata(path)["note"] == "small"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "model.einet: the file does not say what images its variables are"),
        ({"pixels": {"shape": [2, 3]}}, "model.einet: what the file says .* is damaged"),
        ({"pixels": {"shape": [2, 3, 2], "scale": 1}}, "damaged: shape must be"),
        ({"pixels": {"shape": [2, 2, 1], "scale": 1}}, "its images are 2×2×1, but .* 6 variables"),
    ],
    ids=str,
)
def test_files_that_say_nothing_or_nonsense(metadata: Any, message: str, tmp_path: Path):
    model().save(tmp_path / "model.einet", metadata)
    with pytest.raises(ValueError, match=message):
        load_with_pixels(tmp_path / "model.einet")


@pytest.mark.parametrize("shape", [(2, 3, 2), (0, 3, 1), (2, 3, True)], ids=str)
def test_wrong_shapes(shape: tuple[int, int, int]):
    with pytest.raises(ValueError, match="shape must be"):
        Pixels(shape)


def test_wrong_scale():
    with pytest.raises(ValueError, match="scale must be a positive number, got 0"):
        Pixels((2, 3, 1), 0.0)
