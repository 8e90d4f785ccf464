"""Images decoded on demand, from folders and archives."""

import pickle
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import einet
from einet.data.images import Framing, ImageError, ImageFiles, files, folder
from einet.data.images.sources import open_source


def write(path: Path, seed: int, height: int = 8, width: int = 6) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


@pytest.fixture(params=["folder", "zip"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """50 images of one size."""
    inside = tmp_path / "photos"
    for number in range(50):
        write(inside / f"{number:03}.png", number)
    if request.param == "folder":
        return inside
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for path in sorted(inside.iterdir(), reverse=True):
            archive.write(path, path.name)
    return tmp_path / "photos.zip"


def expected() -> np.ndarray:
    generators = (np.random.default_rng(number) for number in range(50))
    return np.stack([g.integers(0, 256, 8 * 6 * 3, dtype=np.uint8) for g in generators])


@pytest.mark.parametrize("workers", [None, 1, 3])
def test_threads_do_not_change_the_order(root: Path, workers: int | None):
    images = folder.load(root, workers=workers)
    assert np.array_equal(images.numpy(), expected())
    assert np.array_equal(images[[40, 2, 17] * 10], expected()[[40, 2, 17] * 10])
    assert images.names[:2] == ["000.png", "001.png"]


def test_only_what_is_asked_for_is_decoded(root: Path, monkeypatch: pytest.MonkeyPatch):
    decoded: list[str] = []
    lock = threading.Lock()
    original = Framing.__call__

    def counted(self: Framing, content: bytes, name: str) -> np.ndarray:
        with lock:
            decoded.append(Path(name).stem)
        return original(self, content, name)

    monkeypatch.setattr(Framing, "__call__", counted)
    images = folder.load(root, channels=3)
    assert decoded == ["000"]
    part = images.take(slice(10, 40))
    assert decoded == ["000"]
    assert part[:5].shape == (5, 144)
    assert sorted(decoded[1:]) == [f"{n:03}" for n in range(10, 15)]
    batches = images.batches(20)
    assert len(decoded) == 6
    next(batches)
    assert len(decoded) == 26

    decoded.clear()
    kept = folder.load(root, channels=3, keep=True)
    assert len(decoded) == 1
    assert np.array_equal(kept[3:5], expected()[3:5])
    assert len(decoded) == 51
    part = kept.take([1, 2])
    assert np.array_equal(part.numpy(), expected()[[1, 2]])
    assert np.shares_memory(kept.numpy(), kept[7:9].numpy())
    assert len(decoded) == 51


def test_a_damaged_file_is_named_in_fit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "_AT_ONCE", 2)
    for number in range(20):
        write(tmp_path / f"{number:02}.png", number, 4, 4)
    bad = tmp_path / "13.png"
    bad.write_bytes(bad.read_bytes()[:60])
    images = folder.load(tmp_path, workers=3)
    model = einet.Einet(einet.poon_domingos((4, 4), 2, channels=3), einet.Binomial(255), 2)
    with pytest.raises(ImageError, match="13.png is no intact image"):
        einet.fit(model, images, epochs=1)
    assert len(images[:13]) == 13


def test_mixed_sizes_need_a_size(tmp_path: Path):
    for number in range(4):
        write(tmp_path / f"{number}.png", number)
    write(tmp_path / "4.png", 4, height=9)
    images = folder.load(tmp_path)
    with pytest.raises(ImageError, match=r"4.png is 9×6 .*, but .*0.png is 8×6; give size or crop"):
        images.numpy()
    # The size of the whole set holds for its parts.
    with pytest.raises(ImageError, match="4.png is 9×6"):
        images.take([4]).numpy()
    assert folder.load(tmp_path, size=5).numpy().shape == (5, 75)
    assert folder.load(tmp_path, crop=(8, 6)).numpy().shape == (5, 144)


def test_a_framing_that_does_not_fit_is_found_at_once(root: Path):
    with pytest.raises(ImageError, match=r"000.png is 8×6 .*smaller than crop=\(7, 7\)"):
        folder.load(root, crop=7)


def test_damaged_archives_are_named(tmp_path: Path):
    path = tmp_path / "photos.zip"
    path.write_bytes(b"PK and then nothing")
    with pytest.raises(ValueError, match="photos.zip is no intact zip archive"):
        folder.load(path)
    write(tmp_path / "a.png", 0, 50, 50)
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tmp_path / "a.png", "x/a.png")
    content = bytearray(path.read_bytes())
    content[1000] ^= 255
    path.write_bytes(content)
    with pytest.raises(ImageError, match=r"photos.zip/x/a.png cannot be unpacked: Bad CRC"):
        folder.load(path)


def test_archives_that_ask_for_too_much_memory_are_named(tmp_path: Path, monkeypatch):
    """A member packed by LZMA declares with how much memory it wants to be unpacked."""
    write(tmp_path / "a.png", 0)
    with zipfile.ZipFile(tmp_path / "photos.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.write(tmp_path / "a.png", "x/a.png")

    def greedy(*_, **__):
        raise MemoryError

    monkeypatch.setattr("lzma.LZMADecompressor", greedy)
    with pytest.raises(ImageError, match=r"photos.zip/x/a.png cannot be unpacked: MemoryError"):
        folder.load(tmp_path / "photos.zip")


def test_a_file_that_vanishes_is_named(tmp_path: Path):
    for number in range(2):
        write(tmp_path / f"{number}.png", number)
    images = folder.load(tmp_path)
    (tmp_path / "1.png").unlink()
    with pytest.raises(FileNotFoundError, match="1.png"):
        images.numpy()


def test_a_set_can_go_to_another_process(root: Path):
    images = folder.load(root).take([5, 3])
    again = pickle.loads(pickle.dumps(images))
    assert np.array_equal(again.numpy(), expected()[[5, 3]])


def test_arguments_are_checked(root: Path):
    with pytest.raises(ValueError, match="workers must be a whole number of at least 1, got 0"):
        folder.load(root, workers=0)
    with pytest.raises(ValueError, match="at least one image, got none"):
        ImageFiles(open_source(root).take([]), Framing())
