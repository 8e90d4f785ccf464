"""MNIST's files, written small."""

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from einet.data.images import ImageError, idx


def encoded(array: np.ndarray, kind: int = 8) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape) + array.tobytes()


def write(path: Path, array: np.ndarray, compress: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = encoded(array)
    path.write_bytes(gzip.compress(content) if compress else content)


def images(split: str) -> np.ndarray:
    rows = {"train": 7, "test": 4}[split]
    return np.random.default_rng(rows).integers(0, 256, (rows, 5, 3), dtype=np.uint8)


def labels(split: str) -> np.ndarray:
    return (np.arange(len(images(split))) % 10).astype(np.uint8)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for split, prefix in (("train", "train"), ("test", "t10k")):
        write(tmp_path / f"{prefix}-images-idx3-ubyte.gz", images(split), True)
        write(tmp_path / f"{prefix}-labels-idx1-ubyte.gz", labels(split), True)
    return tmp_path


@pytest.mark.parametrize("joint", ["-", "."])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("inside", ["", "raw"])
def test_reads_every_layout(tmp_path: Path, joint: str, suffix: str, compress: bool, inside: str):
    # Some programs unpack a file and keep the .gz of its name.
    root = tmp_path / "mnist"
    for split, prefix in (("train", "train"), ("test", "t10k")):
        for what, array in (("images", images(split)), ("labels", labels(split))):
            name = f"{prefix}-{what}{joint}idx{array.ndim}-ubyte{suffix}"
            write(root / inside / name, array, compress)
    for split in ("train", "test"):
        read = idx.load(root, split)
        assert repr(read) == f"ArrayImages('mnist', {split=}, {len(images(split))} images of 5×3×1)"
        assert np.array_equal(read.tensor(), images(split).reshape(-1, 15))
        assert read.labels is not None
        assert np.array_equal(read.labels, labels(split))


def test_one_split_does_not_need_the_other(root: Path):
    for path in root.glob("t10k*"):
        path.unlink()
    assert len(idx.load(str(root), "train")) == 7
    with pytest.raises(FileNotFoundError) as caught:
        idx.load(root, "test")
    for part in ("the test images are not in", "t10k-images-idx3-ubyte, ", "ubyte.gz", str(root)):
        assert part in str(caught.value)


def test_images_without_labels_are_read_and_only_their_labels_are_not(root: Path):
    (root / "train-labels-idx1-ubyte.gz").unlink()
    train = idx.load(root, "train")
    assert np.array_equal(train.tensor(), images("train").reshape(-1, 15))
    some = train.take([2, 0])
    assert np.array_equal(some.tensor(), images("train").reshape(-1, 15)[[2, 0]])
    for without in (train, some):
        with pytest.raises(FileNotFoundError, match="train labels are not in .*train-labels-idx1"):
            _ = without.labels


def test_labels_are_read_when_they_are_asked_for(root: Path):
    train = pickle.loads(pickle.dumps(idx.load(root, "train").take(slice(1, None)).take([-1, 0])))
    write(root / "train-labels-idx1-ubyte.gz", labels("train") + 3, True)
    assert train.labels is not None
    assert train.labels.tolist() == [6 + 3, 1 + 3]


def test_missing_folders_are_named(root: Path):
    with pytest.raises(FileNotFoundError, match="folder of the idx files, but .*gone is none"):
        idx.load(root / "gone", "train")
    with pytest.raises(ValueError, match="split must be one of train, test, got 'valid'"):
        idx.load(root, "valid")
    with pytest.raises(ValueError, match="content must be one of images, labels, got 'pixels'"):
        idx.find(root, "train", "pixels")


def test_files_must_belong_together(root: Path):
    write(root / "train-labels-idx1-ubyte.gz", labels("test"), True)
    with pytest.raises(
        ValueError, match=r"train-labels.* for each of the 7 images in .*got .*\[4\]"
    ):
        _ = idx.load(root, "train").labels
    write(root / "train-images-idx3-ubyte.gz", labels("test"), True)
    with pytest.raises(ValueError, match=r"train-images.* \[images, height, width\], got \[4\]"):
        idx.load(root, "train")


@pytest.mark.parametrize("compress", [False, True])
def test_damaged_files_are_named(tmp_path: Path, compress: bool):
    path = tmp_path / "train-images-idx3-ubyte"
    whole = encoded(images("train"))

    def fails(content: bytes, match: str) -> None:
        path.write_bytes(gzip.compress(content) if compress else content)
        with pytest.raises((ValueError, ImageError), match=match) as caught:
            idx.read(path)
        assert str(path) in str(caught.value)

    fails(whole[:-5], r"must hold 105 bytes .* shape \[7, 5, 3\], but it has 100")
    fails(whole + b"x", "must hold 105 bytes .* but it has more")
    fails(whole[:14], "ends within its header of 3 sizes")
    fails(b"", "is no idx file")
    fails(b"\x89PNG....", "is no idx file: it begins with .*PNG")
    fails(encoded(images("train"), kind=0x0D), "idx type 0x0d; only unsigned bytes")
    huge = struct.pack(">HBB3I", 0, 8, 3, 2**31, 2**31, 2**31) + b"few"
    fails(huge, r"declares \d+ bytes, packed into" if compress else "but it has 3")


def test_a_broken_gzip_file_is_named(root: Path):
    path = root / "train-images-idx3-ubyte.gz"
    content = path.read_bytes()
    for damaged in (content[:-12], content[:30] + bytes(20) + content[50:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"ubyte.gz (is no intact gzip file|must hold)"):
            idx.load(root, "train")


@pytest.mark.parametrize(
    ("name", "first"), [("mnist", [7, 2, 1, 0, 4]), ("fashion_mnist", [9, 2, 1, 1, 6])]
)
def test_the_public_files(data_dir: Path, name: str, first: list[int]):
    if not (data_dir / name).is_dir():
        pytest.skip(f"no folder {name} among the real data")
    test = idx.load(data_dir / name, "test")
    assert repr(test) == f"ArrayImages('{name}', split='test', 10000 images of 28×28×1)"
    assert test.labels is not None
    assert test.labels[:5].tolist() == first
