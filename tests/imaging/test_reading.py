"""Sets of images by their path."""

import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from einet.data.images import ArrayImages, ImageError
from einet.imaging import Pixels
from einet.imaging.reading import detect, in_memory, open_images, parse_size, read_image


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five images of 12×10 pixels."""
    root = tmp_path / "photos"
    root.mkdir()
    generator = np.random.default_rng(0)
    for number in range(5):
        pixels = generator.integers(0, 256, (12, 10, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / f"{number}.png")
    return root


def write_idx(root: Path, split: str, count: int) -> None:
    root.mkdir(exist_ok=True)
    for name, shape in (("images-idx3", (count, 4, 5)), ("labels-idx1", (count,))):
        header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
        content = bytes(range(256)) * count
        size = int(np.prod(shape))
        (root / f"{split}-{name}-ubyte").write_bytes(header + content[:size])


def test_folders(folder: Path):
    images = open_images(folder, size=(6, 5), limit=3)
    assert (len(images), images.image_shape) == (3, (6, 5, 3))
    assert open_images(folder, channels=1).image_shape == (12, 10, 1)
    assert open_images(folder, crop=8).image_shape == (8, 8, 3)


def test_public_sets(tmp_path: Path):
    write_idx(tmp_path / "digits", "train", 3)
    write_idx(tmp_path / "digits", "t10k", 2)
    assert detect(tmp_path / "digits") == "idx"
    assert len(open_images(tmp_path / "digits")) == 3
    assert open_images(tmp_path / "digits", split="test").image_shape == (4, 5, 1)
    numbers = tmp_path / "numbers"
    numbers.mkdir()
    content = {"X": np.zeros((32, 32, 3, 4), dtype=np.uint8), "y": np.ones((4, 1))}
    scipy.io.savemat(numbers / "train_32x32.mat", content)
    assert detect(numbers) == "svhn"
    assert len(open_images(numbers)) == 4
    np.save(tmp_path / "array.npy", np.zeros((2, 4, 4), dtype=np.uint8))
    assert detect(tmp_path / "array.npy") == "npy"
    assert open_images(tmp_path / "array.npy").image_shape == (4, 4, 1)


def test_faces_with_and_without_a_list_of_parts(folder: Path, tmp_path: Path):
    faces = tmp_path / "celeba"
    faces.mkdir()
    folder.rename(faces / "img_align_celeba")
    assert detect(faces) == detect(faces / "img_align_celeba") == "celeba"
    assert len(open_images(faces)) == 5
    parts = "".join(f"{number}.png {0 if number < 3 else 2}\n" for number in range(5))
    (faces / "list_eval_partition.txt").write_text(parts)
    assert len(open_images(faces)) == 3
    assert len(open_images(faces, split="test", size=6)) == 2


def test_in_memory(folder: Path):
    images, done = open_images(folder), []
    array = in_memory(images, done.append)
    assert isinstance(array, ArrayImages)
    assert torch.equal(array.tensor(), images.tensor())
    assert done == [5]
    assert in_memory(array) is array


def test_one_image(folder: Path):
    row = read_image(folder / "0.png", Pixels((12, 10, 3)))
    expected = np.asarray(Image.open(folder / "0.png")).reshape(1, -1)
    np.testing.assert_array_equal(row.numpy(), expected)
    grey = read_image(folder / "0.png", Pixels((6, 6, 1)), resize=True, grey=True)
    assert grey.shape == (1, 36)
    assert read_image(folder / "0.png", Pixels((24, 24, 3)), resize=True).shape == (1, 24 * 24 * 3)
    with pytest.raises(ImageError, match="0.png is 12×10 pixels .* of images of 6×6"):
        read_image(folder / "0.png", Pixels((6, 6, 3)))
    with pytest.raises(FileNotFoundError, match="there is no image .*none.png"):
        read_image(folder / "none.png", Pixels((6, 6, 3)))


def test_an_image_with_colours_is_none_of_a_grey_model(folder: Path):
    with pytest.raises(ImageError, match="0.png has colours, but the model is of grey .*--grey"):
        read_image(folder / "0.png", Pixels((12, 10, 1)))
    Image.open(folder / "0.png").convert("L").convert("RGB").save(folder / "grey.png")
    assert read_image(folder / "grey.png", Pixels((12, 10, 1))).shape == (1, 120)
    assert read_image(folder / "grey.png", Pixels((12, 10, 3))).shape == (1, 360)


def test_folders_of_grey_images_have_one_channel(folder: Path):
    for path in folder.iterdir():
        Image.open(path).convert("L").convert("RGB").save(path)
    assert open_images(folder).image_shape == (12, 10, 1)
    assert open_images(folder, channels=3).image_shape == (12, 10, 3)


def test_sizes():
    assert parse_size("32X48") == parse_size("32×48") == (32, 48)
    for text in ("", "x", "0", "3x4x5", "-3", "3.5"):
        with pytest.raises(ValueError, match="crop must be HEIGHTxWIDTH"):
            parse_size(text, "crop")


def test_wrong_arguments(folder: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="kind must be one of auto, .* got 'video'"):
        open_images(folder, "video")
    with pytest.raises(FileNotFoundError, match="there is no .*nowhere"):
        open_images(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        open_images(folder, limit=0)
    write_idx(tmp_path / "digits", "train", 3)
    with pytest.raises(ValueError, match="size is for image files, but .*digits is read as idx"):
        open_images(tmp_path / "digits", size=2)
    with pytest.raises(FileNotFoundError, match="CelebA is not in root="):
        open_images(folder, "celeba")
