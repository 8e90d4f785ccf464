"""Images in arrays and in .npy files."""

from pathlib import Path

import numpy as np
import pytest
import torch

import einet
from einet.data.images import ArrayImages, array
from tests.budgets import limit


def pixels(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


def test_nothing_is_copied():
    given = pixels(10, 4, 5, 3)
    images = ArrayImages(given)
    for part in (images.numpy(), images[2:7].numpy(), images.take(slice(3, None)).numpy()):
        assert np.shares_memory(part, given)
    assert np.shares_memory(np.asarray(images), given)
    assert not np.shares_memory(np.array(images), given)


def test_grey_images_have_one_channel_with_or_without_an_axis_for_it():
    given = pixels(3, 4, 5)
    for images in (ArrayImages(given), ArrayImages(given[..., None])):
        assert images.image_shape == (4, 5, 1)
        assert np.array_equal(images.numpy(), given.reshape(3, 20))


def test_any_layout_in_memory_will_do():
    turned = pixels(4, 5, 3, 10).transpose(3, 0, 1, 2)
    images = ArrayImages(turned)
    assert np.array_equal(images[:], turned.reshape(10, -1))
    fixed = pixels(3, 2, 2)
    fixed.flags.writeable = False
    assert np.array_equal(ArrayImages(fixed)[:], fixed.reshape(3, 4))


def test_wrong_arrays_are_refused():
    with pytest.raises(TypeError, match=r"bytes \(uint8\) from 0 to 255, got float64"):
        ArrayImages(np.zeros((3, 4, 5)))
    for shape in ((3, 4), (3, 4, 5, 3, 1), (3, 0, 5)):
        with pytest.raises(ValueError, match="pixels must have shape .*got"):
            ArrayImages(np.zeros(shape, dtype=np.uint8))


@pytest.mark.parametrize("chunk", [1, 100, 10**6])
def test_a_saved_set_comes_back_from_disk(
    tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
):
    limit(monkeypatch, "image files", chunk)
    given = pixels(11, 4, 5, 3)
    path = tmp_path / "faces.npy"
    array.save(ArrayImages(given), path)
    assert [file.name for file in tmp_path.iterdir()] == ["faces.npy"]
    assert np.array_equal(np.load(path), given)
    images = array.load(path, labels=range(11), split="valid")
    assert repr(images) == "ArrayImages('faces', split='valid', 11 images of 4×5×3)"
    assert np.array_equal(images.tensor(), given.reshape(11, -1))
    # Still the file's own memory: what torch and numpy are given is no copy.
    base = images.numpy()
    while not isinstance(base, np.memmap):
        assert isinstance(base, np.ndarray)
        base = base.base
    for rows in (np.asarray(images), images[3:5].numpy(), images.tensor().numpy()):
        assert np.shares_memory(rows, base)
    images[0].fill_(0)
    assert np.array_equal(np.load(path), given)


def test_a_model_learns_from_disk(tmp_path: Path):
    array.save(ArrayImages(pixels(30, 2, 4)), tmp_path / "grey.npy")
    images = array.load(tmp_path / "grey.npy")
    model = einet.Einet(einet.poon_domingos(images.grid, delta=2), einet.Gaussian(), num_sums=2)
    einet.fit(model, images, epochs=1, batch_size=10)
    assert torch.isfinite(model.log_prob(images)).all()


def test_a_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    images = ArrayImages(pixels(4, 2, 2))
    path = tmp_path / "a.npy"
    array.save(images, path)

    def fail(rows: object) -> np.ndarray:
        raise OSError("broken")

    monkeypatch.setattr(images, "read", fail)
    with pytest.raises(OSError, match="broken"):
        array.save(images, path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.npy"]
    assert len(array.load(path)) == 4


def test_faults_name_the_file(tmp_path: Path):
    path = tmp_path / "a.npy"
    with pytest.raises(FileNotFoundError, match="a.npy is no file"):
        array.load(path)
    np.save(path, pixels(50, 4, 4))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="a.npy is no intact .npy file"):
        array.load(path)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="a.npy is no intact .npy file"):
        array.load(path)
    np.save(path, np.zeros((2, 3, 3)))
    with pytest.raises(TypeError, match="a.npy: pixels must be bytes .*float64"):
        array.load(path)
    np.savez(tmp_path / "b.npz", pixels(2, 3, 3))
    with pytest.raises(ValueError, match="b.npz holds several arrays"):
        array.load(tmp_path / "b.npz")
