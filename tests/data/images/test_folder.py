"""A folder of images of any kind."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from einet.data.images import folder


def fill(path: Path, value: int, size: tuple[int, int] = (10, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value, value)).save(path)


def test_finds_all_kinds_recursively_and_sorts_by_path(tmp_path: Path):
    paths = ["a/2.png", "a/10.PNG", "b.bmp", "a/deep/er/x.jpeg", "c.webp", "z.tif", "y.gif"]
    for number, path in enumerate(sorted(paths)):
        fill(tmp_path / path, 10 * number)
    # These are no images of the user's.
    fill(tmp_path / ".hidden.png", 255)
    fill(tmp_path / ".cache" / "thumb.png", 255)
    fill(tmp_path / "__MACOSX" / "thumb.png", 255)
    (tmp_path / "notes.txt").write_text("no image")
    images = folder.load(str(tmp_path))
    assert list(images.names) == sorted(paths)
    assert images.image_shape == (8, 10, 1)
    assert images.labels is None
    assert abs(images.numpy()[:, 0].astype(int) - 10 * np.arange(len(paths))).max() <= 2
    assert images.name == tmp_path.name


def test_sizes_and_grey(tmp_path: Path):
    for number, size in enumerate([(30, 20), (20, 30), (64, 64)]):
        fill(tmp_path / f"{number}.png", 50 * number, size)
    images = folder.load(tmp_path, size=(12, 16), channels=1)
    assert images.image_shape == (12, 16, 1)
    assert images.numpy().tolist() == [[50 * n] * (12 * 16) for n in range(3)]
    assert folder.load(tmp_path, crop=20, size=10).image_shape == (10, 10, 1)
    in_colours = folder.load(tmp_path, size=64, enlarge=True, channels=3)
    assert in_colours.numpy().shape == (3, 64 * 64 * 3)


def test_one_image_with_colours_is_enough_for_three_channels(tmp_path: Path):
    for number in range(3):
        fill(tmp_path / f"{number}.png", 50 * number)
    Image.new("L", (10, 8), 7).save(tmp_path / "3.png")
    assert folder.load(tmp_path).image_shape == (8, 10, 1)
    assert folder.load(tmp_path).numpy()[:, 0].tolist() == [0, 50, 100, 7]
    Image.new("RGB", (10, 8), (7, 7, 8)).save(tmp_path / "4.png")
    images = folder.load(tmp_path)
    assert images.image_shape == (8, 10, 3)
    assert images.numpy()[:, :3].tolist()[1:] == [[50] * 3, [100] * 3, [7] * 3, [7, 7, 8]]
    assert folder.load(tmp_path, channels=1).image_shape == (8, 10, 1)


def test_missing_folders_and_images_are_named(tmp_path: Path):
    with pytest.raises(
        FileNotFoundError, match="a folder or a zip archive, but there is no .*gone"
    ):
        folder.load(tmp_path / "gone")
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(FileNotFoundError, match="there are no images in root=.*looked for .bmp, "):
        folder.load(tmp_path)
