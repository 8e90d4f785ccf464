"""What is covered."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from einet.data.images import Framing, ImageError
from einet.imaging import masks
from einet.imaging.masks import Box


def test_halves_cover_each_other():
    for grid in ((4, 6), (5, 7)):
        for one, other in (("top", "bottom"), ("left", "right")):
            first, second = masks.half(grid, one), masks.half(grid, other)
            assert not (first & second).any()
            odd = sum(size % 2 for size in grid[: 1 if one == "top" else 2][-1:])
            assert bool((first | second).all()) == (odd == 0)
    assert masks.half((4, 6), "top")[:2].all()
    assert masks.half((4, 6), "right")[:, 3:].all()
    with pytest.raises(ValueError, match="which must be one of top, bottom, left, right"):
        masks.half((4, 6), "middle")


def test_boxes():
    covered = masks.box((4, 6), Box.parse("1, 2,2,3"))
    assert covered.sum() == 6
    assert covered[1:3, 2:5].all()
    assert masks.box((4, 6), Box(0, 0, 4, 6)).all()


@pytest.mark.parametrize("text", ["1,2,3", "1,2,3,4,5", "a,b,c,d", "", "1.5,0,1,1"])
def test_what_is_no_box(text: str):
    with pytest.raises(ValueError, match="box must be four whole numbers"):
        Box.parse(text)


@pytest.mark.parametrize("where", [(0, 0, 0, 1), (0, 0, 5, 1), (-1, 0, 1, 1), (3, 5, 1, 2)])
def test_boxes_outside_the_image(where: tuple[int, int, int, int]):
    with pytest.raises(ValueError, match="lie within the image of 4×6 pixels"):
        masks.box((4, 6), Box(*where))


def test_a_mask_covers_all_channels_of_a_pixel():
    covered = torch.tensor([[True, False], [False, False]])
    assert masks.over_channels(covered, 3).tolist() == [True] * 3 + [False] * 9


def save(path: Path, grey: np.ndarray) -> Path:
    Image.fromarray(grey.astype(np.uint8)).save(path)
    return path


def test_masks_in_files(tmp_path: Path):
    grey = np.zeros((4, 6))
    grey[1, 2], grey[3, 5], grey[0, 0] = 255, 128, 127
    covered = masks.read(save(tmp_path / "mask.png", grey), (4, 6))
    assert covered.nonzero().tolist() == [[1, 2], [3, 5]]
    everything = masks.read(save(tmp_path / "all.png", np.full((4, 6), 255)), (4, 6))
    assert everything.all()
    small = masks.read(tmp_path / "all.png", (2, 3), Framing((2, 3), channels=1))
    assert small.shape == (2, 3)


def test_wrong_files(tmp_path: Path):
    with pytest.raises(ImageError, match=r"mask.png is 4×6 pixels .* must be 4×4"):
        masks.read(save(tmp_path / "mask.png", np.full((4, 6), 255)), (4, 4))
    with pytest.raises(ValueError, match="dark.png covers nothing"):
        masks.read(save(tmp_path / "dark.png", np.zeros((4, 6))), (4, 6))
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ImageError, match="text.png is no intact image"):
        masks.read(tmp_path / "text.png", (4, 6))
