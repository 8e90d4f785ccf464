"""Grids and PNG files."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from einet.imaging.pictures import MISSING, grid, save_png


def test_grid_places_images_and_marks_what_is_missing():
    images = np.zeros((3, 2, 2))
    images[1] = 255
    images[2, 0] = np.nan
    picture = grid(images, columns=2, scale=1)
    assert picture.shape == (10, 10, 3)
    assert (picture[2:4, 2:4] == 0).all()
    assert (picture[2:4, 6:8] == 255).all()
    assert (picture[6, 2] == MISSING).all()
    assert (picture[7, 2] == 0).all()
    # Margins, and the place of a fourth image.
    assert (picture[:2] == 255).all()
    assert (picture[6:8, 6:8] == 255).all()


def test_colours_and_scale():
    image = np.zeros((1, 2, 2, 3))
    image[0, 0, 1] = [10, 20.6, 300]
    picture = grid(image, scale=3, margin=0)
    assert picture.shape == (6, 6, 3)
    assert (picture[:3, 3:] == [10, 21, 255]).all()
    assert (picture[3:] == 0).all()


def test_a_pixel_is_missing_if_one_channel_is():
    image = np.zeros((1, 1, 2, 3))
    image[0, 0, 0, 1] = np.nan
    assert grid(image, margin=0)[0, 0].tolist() == list(MISSING)


def test_about_a_square_by_default():
    assert grid(np.zeros((7, 4, 4)), margin=0).shape == (12, 12, 3)
    assert grid(np.zeros((2, 4, 4)), columns=9, margin=0).shape == (4, 8, 3)


def test_wrong_arguments():
    for shape in [(0, 2, 2), (1, 2, 2, 4)]:
        with pytest.raises(ValueError, match="images must have shape"):
            grid(np.zeros(shape))
    for name, value in (("columns", 0), ("scale", 0), ("margin", -1)):
        with pytest.raises(ValueError, match=f"{name} must be at least"):
            grid(np.zeros((1, 2, 2)), **{name: value})


def test_png_files(tmp_path: Path):
    colours = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    save_png(tmp_path / "new" / "colours.png", colours)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "new/colours.png")), colours)
    save_png(tmp_path / "grey.png", colours[..., :1])
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "grey.png")), colours[..., 0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grey.png", "new"]


def test_without_pillow_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"needs the package pillow.*einet\[images\]"):
        save_png(tmp_path / "a.png", np.zeros((2, 2), np.uint8))
