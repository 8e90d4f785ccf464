"""SVHN's files, written small."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from einet.data.images import Images, svhn

ROWS = {"train": 12, "extra": 5, "test": 3}


def pixels(split: str) -> np.ndarray:
    generator = np.random.default_rng(ROWS[split])
    return generator.integers(0, 256, (ROWS[split], 32, 32, 3), dtype=np.uint8)


def digits(split: str) -> np.ndarray:
    return np.arange(ROWS[split]) % 10


def digits_of(images: Images) -> list[int]:
    assert images.labels is not None
    return images.labels.tolist()


def write(path: Path, images: np.ndarray, labels: np.ndarray, compress: bool = True) -> None:
    classes = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
    content = {"X": images.transpose(1, 2, 3, 0), "y": classes}
    savemat(path, content, do_compression=compress)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for split in ROWS:
        write(tmp_path / f"{split}_32x32.mat", pixels(split), digits(split), split != "test")
    return tmp_path


@pytest.mark.parametrize("split", ROWS)
def test_reads_images_and_digits(root: Path, split: str):
    images = svhn.load(str(root), split)
    assert repr(images) == f"ArrayImages('svhn', {split=}, {ROWS[split]} images of 32×32×3)"
    assert np.array_equal(images[:].view(-1, 32, 32, 3), pixels(split))
    assert digits_of(images) == digits(split).tolist()


def test_one_image_alone(tmp_path: Path):
    write(tmp_path / "test_32x32.mat", pixels("test")[:1], digits("test")[:1])
    images = svhn.load(tmp_path, "test")
    assert np.array_equal(images.numpy(), pixels("test")[:1].reshape(1, -1))
    savemat(tmp_path / "test_32x32.mat", {"X": pixels("test")[0], "y": [[7]]})
    assert digits_of(svhn.load(tmp_path, "test")) == [7]


def test_the_split_of_the_paper(root: Path):
    train, valid = svhn.paper_split(root, num_train=8)
    assert repr(train) == "ArrayImages('svhn', split='paper-train', 13 images of 32×32×3)"
    assert repr(valid) == "ArrayImages('svhn', split='paper-valid', 4 images of 32×32×3)"
    together = np.concatenate([pixels("train")[:8], pixels("extra")])
    assert np.array_equal(train.numpy(), together.reshape(13, -1))
    assert digits_of(train) == [*digits("train")[:8], *digits("extra")]
    assert np.array_equal(valid.numpy(), pixels("train")[8:].reshape(4, -1))
    assert digits_of(valid) == digits("train")[8:].tolist()


def test_the_split_without_extra_images(root: Path):
    (root / "extra_32x32.mat").unlink()
    with pytest.raises(FileNotFoundError, match="extra_32x32.mat; extra=False does without it"):
        svhn.paper_split(root, num_train=8)
    train, valid = svhn.paper_split(root, extra=False, num_train=8)
    assert np.array_equal(train.numpy(), pixels("train")[:8].reshape(8, -1))
    assert len(valid) == 4


def test_the_split_needs_images_for_both_parts(root: Path):
    with pytest.raises(ValueError, match="between 1 and 11, .* the 12 images in .*got 50000"):
        svhn.paper_split(root)
    with pytest.raises(ValueError, match="num_train must lie between 1 and 11"):
        svhn.paper_split(root, extra=False, num_train=12)


def test_missing_files_and_folders_are_named(root: Path):
    (root / "test_32x32.mat").unlink()
    assert len(svhn.load(root, "train")) == 12
    with pytest.raises(FileNotFoundError, match="the test images are not in .*test_32x32.mat"):
        svhn.load(root, "test")
    with pytest.raises(FileNotFoundError, match=r"folder of SVHN's .mat files, but .*gone is none"):
        svhn.load(root / "gone", "test")
    with pytest.raises(ValueError, match="split must be one of train, extra, test, got 'valid'"):
        svhn.load(root, "valid")


@pytest.mark.parametrize("split", ["train", "test"])  # one compressed, one not
def test_damaged_files_are_named(root: Path, split: str):
    path = root / f"{split}_32x32.mat"
    whole = path.read_bytes()
    hdf5 = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    for content in (whole[: len(whole) // 2], whole[:100], b"", b"no MATLAB file" * 50, hdf5):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{path.name} is no intact MATLAB file"):
            svhn.load(root, split)
    if split == "train":
        with pytest.raises(ValueError, match=f"{path.name} is no intact MATLAB file"):
            svhn.paper_split(root, num_train=3)


def test_wrong_arrays_are_named(tmp_path: Path):
    path = tmp_path / "train_32x32.mat"

    def fails(match: str, **content: np.ndarray) -> None:
        savemat(path, content)
        with pytest.raises(ValueError, match=match) as caught:
            svhn.load(tmp_path, "train")
        assert str(path) in str(caught.value)

    x, y = pixels("train").transpose(1, 2, 3, 0), np.ones((12, 1), dtype=np.uint8)
    fails("must hold an array X of 32×32×3×N, got no X", y=y)
    fails("32×32×3×N, got 12×32×32×3", X=pixels("train"), y=y)
    fails(r"X in .* must hold bytes \(uint8\), got float64", X=x / 255, y=y)
    fails("y in .* must hold a class for each of 12 images, got none", X=x)
    fails(r"class for each of 12 images, got uint8 of shape \[5, 1\]", X=x, y=y[:5])
    fails("between 1 and 10, which is the digit 0, got 11 to 11", X=x, y=y + 10)
    savemat(path, {"X": pixels("train"), "y": y})
    with pytest.raises(ValueError, match="32×32×3×N, got 12×32×32×3"):
        svhn.paper_split(tmp_path, extra=False, num_train=3)


def test_files_of_the_public_format(data_dir: Path):
    folder = data_dir / "svhn"
    if not (folder / "test_32x32.mat").is_file():
        pytest.skip("no folder svhn with test_32x32.mat among the real data")
    test = svhn.load(folder, "test")
    assert len(test) == 26032
    assert set(digits_of(test)) == set(range(10))
