"""Damaged image files and archives: an ordinary error that names the file, or rows of bytes."""

from __future__ import annotations

import gzip
import os
import struct
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from einet.data.images import Images, array, folder, idx, svhn
from tests.fuzz.bounds import bounded_memory
from tests.fuzz.campaign import Campaign
from tests.fuzz.image_files import KINDS, MAX_PIXELS, damage, encoded

# What reading a set with this limit may take: copies of one image, of a buffer, of a thread.
MEMORY = 400 << 20
# No case takes a tenth of it; machines differ, and endless loops take longer.
SECONDS = 20.0


def answer(name: str, load: Callable[[], Images]) -> str:
    """Read all rows; what is refused must be so by an error that names the file or its folder."""
    began = time.monotonic()
    try:
        # Pillow warns of some damages before it gives up, or goes on.
        with warnings.catch_warnings(), bounded_memory(MEMORY):
            warnings.simplefilter("ignore")
            images = load()
            rows = images.numpy()
    except (OSError, ValueError, TypeError) as error:
        result, said = f"refused: {type(error).__name__}", str(error)
    else:
        result, said = "read", name
        assert rows.dtype == np.uint8
        assert rows.shape == (len(images), np.prod(images.image_shape))
    assert name in said
    assert time.monotonic() - began < SECONDS
    return result


def test_damaged_image_files(campaign: Campaign):
    def case(random: np.random.Generator, root: Path) -> str:
        kind = str(random.choice(list(KINDS)))
        path, load = KINDS[kind](random, root)
        assert answer(root.name, load) == "read", kind
        content = path.read_bytes()
        for _ in range(random.integers(1, 3)):
            content = damage(random, content) or b"\0"
        path.write_bytes(content)
        return f"{kind} {answer(root.name, load)}"

    report = campaign.run("damaged_image_files", case, 70)
    refused = sum(count for words, count in report.answers.items() if "refused" in words)
    assert refused > report.tried / 4


# -- bombs -----------------------------------------------------------------------------------------


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(width: int, height: int, rows: int) -> bytes:
    """A PNG of black and white that holds so many of its rows."""
    header = struct.pack(">2I5B", width, height, 1, 0, 0, 0, 0)
    data = zlib.compress(bytes((width // 8 + 2) * rows), 9)
    parts = _chunk(b"IHDR", header), _chunk(b"IDAT", data), _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _patched(content: bytes, place: int, form: str, *values: int) -> bytes:
    new = struct.pack(form, *values)
    return content[:place] + new + content[place + len(new) :]


def _jpeg(width: int, height: int) -> bytes:
    content = encoded(Image.new("L", (8, 8)), "jpeg")
    return _patched(content, content.index(b"\xff\xc0") + 5, ">2H", height, width)


def _tiff(tags: dict[int, int]) -> bytes:
    """A TIFF of one byte with these tags."""
    base = {256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 1}
    entries = sorted((base | tags).items())
    listed = b"".join(struct.pack("<2H2I", tag, 4, 1, value) for tag, value in entries)
    end = struct.pack("<H", len(entries)) + listed + bytes(4)
    return struct.pack("<2sHI", b"II", 42, 12) + b"\7" + bytes(3) + end


def _webp(side: int) -> bytes:
    bits = struct.pack("<BI", 0x2F, (side - 1) | (side - 1) << 14) + bytes(60)
    return struct.pack("<4sI4s4sI", b"RIFF", 12 + len(bits), b"WEBP", b"VP8L", len(bits)) + bits


#: Files that declare far more than they hold, by name; all are refused with the default limit.
DECLARED: dict[str, bytes] = {
    "whole.png": _png(13_000, 13_000, 13_000),
    "cut.png": _png(1 << 30, 1 << 30, 0),
    "screen.gif": _patched(encoded(Image.new("L", (4, 4)), "gif"), 6, "<2H", 65_535, 65_535),
    "large.bmp": _patched(encoded(Image.new("L", (4, 4)), "bmp"), 18, "<2I", 60_000, 60_000),
    "large.jpg": _jpeg(65_500, 65_500),
    "large.ppm": b"P6 100000 100000 255\n" + bytes(100),
    "large.tif": _tiff({256: 1 << 20, 257: 1 << 20}),
    "tiles.tif": _tiff({322: 1 << 16, 323: 1 << 16, 324: 8, 325: 1}),
    "large.webp": _webp(16_384),
    "scans.jpg": encoded(Image.new("L", (64, 64)), "jpeg") + b"\xff\xda" * 1000,
}


@pytest.mark.parametrize("name", DECLARED)
def test_what_declares_too_much_is_refused_before_it_is_decoded(name: str, tmp_path: Path):
    (tmp_path / name).write_bytes(DECLARED[name])
    assert len(DECLARED[name]) < 40_000
    words = "declares|cannot|no intact image|scans"
    with bounded_memory(MEMORY), pytest.raises(OSError, match=words) as caught:
        folder.load(tmp_path)
    assert name in str(caught.value)


def _zip_of(path: Path, method: int, size: int, declared: int | None = None) -> None:
    """An archive with so many bytes of nothing; its list may declare another number of them."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.png", bytes(size))
    if declared is not None:
        content = path.read_bytes()
        place = content.index(b"PK\1\2") + 24
        path.write_bytes(_patched(content, place, "<I", declared))


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("declared", [None, 1000])
def test_archives_that_unpack_to_too_much(method: int, declared: int | None, tmp_path: Path):
    path = tmp_path / "a.zip"
    _zip_of(path, method, 28 << 20, declared)
    assert path.stat().st_size < 100_000
    with pytest.raises(OSError, match=r"a\.zip/a\.png (declares|cannot be unpacked)"):
        folder.load(path, max_pixels=MAX_PIXELS)


def _mat_bomb(path: Path, images: int) -> None:
    """A compressed X that declares so many images and holds two."""
    savemat(path, {"y": np.ones((2, 1), dtype="u1"), "X": np.zeros((32, 32, 3, 2), dtype="u1")})
    content, small, large = path.read_bytes(), 32 * 32 * 3 * 2, 32 * 32 * 3 * images
    start = content.index(b"\x0e\0\0\0", 128 + 8)
    name = b"\1\0\1\0X"
    sizes = struct.pack("<I", 2) + name, struct.pack("<I", images) + name
    element = content[start:].replace(*sizes)
    element = element.replace(struct.pack("<2I", 2, small), struct.pack("<2I", 2, large))
    packed = zlib.compress(element)
    digits = zlib.compress(
        content[128:start].replace(struct.pack("<2I", 2, 1), struct.pack("<2I", images, 1))
    )
    parts = (struct.pack("<2I", 15, len(part)) + part for part in (digits, packed))
    path.write_bytes(content[:128] + b"".join(parts))


def test_arrays_that_unpack_to_too_much(tmp_path: Path):
    images = tmp_path / "train-images-idx3-ubyte.gz"
    header = struct.pack(">HBB3I", 0, 8, 3, 600, 1000, 1000)
    images.write_bytes(gzip.compress(header + bytes(30 << 20)))
    with bounded_memory(MEMORY):
        with pytest.raises(OSError, match=r"idx3-ubyte\.gz declares 600000000 bytes, packed into"):
            idx.load(tmp_path, "train")
        # A header that lies does not help.
        header = struct.pack(">HBB3I", 0, 8, 3, 6, 10, 10)
        images.write_bytes(gzip.compress(header + bytes(30 << 20)))
        with pytest.raises(ValueError, match="must hold 600 bytes .* but it has more"):
            idx.load(tmp_path, "train")


def test_arrays_that_are_not_there(tmp_path: Path):
    path = tmp_path / "a.npy"
    for shape in [(1 << 40, 32, 32), (1, 1 << 20, 1 << 20), (1 << 62, 1 << 62, 1 << 62)]:
        with path.open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            file.write(bytes(1000))
        with bounded_memory(MEMORY), pytest.raises(ValueError, match=r"a\.npy is no intact"):
            array.load(path)
    # A file with holes has them all, but each image is too large.
    with path.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (1, 1 << 14, 1 << 14)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + (1 << 28))
    with pytest.raises(OSError, match=r"each image in .*a\.npy declares 16384×16384 pixels"):
        array.load(path)


def test_matlab_files_that_unpack_to_too_much(tmp_path: Path):
    path = tmp_path / "train_32x32.mat"
    _mat_bomb(path, 2)
    assert len(svhn.load(tmp_path, "train")) == 2
    _mat_bomb(path, 500_000)
    with bounded_memory(MEMORY), pytest.raises((OSError, ValueError), match=r"train_32x32\.mat"):
        svhn.load(tmp_path, "train")


def test_of_many_frames_the_first_is_read(tmp_path: Path):
    frames = [Image.new("L", (64, 64), shade % 256) for shade in range(600)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    with bounded_memory(MEMORY):
        images = folder.load(tmp_path)
    assert images.numpy().tolist() == [[0] * 4096]


def test_pipes_and_devices_do_not_block(tmp_path: Path):
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to("/dev/zero")
    (tmp_path / "c.png").symlink_to(tmp_path / "nowhere")
    (tmp_path / "d.png").mkdir()
    with pytest.raises(FileNotFoundError, match="there are no images"):
        folder.load(tmp_path)
    (tmp_path / "e.png").write_bytes(encoded(Image.new("L", (3, 2)), "png"))
    images = folder.load(tmp_path)
    assert len(images) == 1
    # It was a file when the folder was looked at.
    (tmp_path / "e.png").unlink()
    os.mkfifo(tmp_path / "e.png")
    with pytest.raises(OSError, match=r"e\.png is no file"):
        images.numpy()
    for load in (array.load, idx.read):
        with pytest.raises(OSError, match=r"a\.png is no file"):
            load(tmp_path / "a.png")
