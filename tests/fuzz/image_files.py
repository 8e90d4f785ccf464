"""Small sets of images of every kind that is read, and ways to damage their files."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.io import savemat

from einet.data.images import Images, array, celeba, folder, idx, svhn

__all__ = ["KINDS", "MAX_PIXELS", "Maker", "damage", "encoded"]

#: Sets are read with this limit, so that what is just allowed is quickly decoded.
MAX_PIXELS = 1 << 20

#: Writes a set to a folder; returns the file to damage and how to read the set.
Maker = Callable[[np.random.Generator, Path], tuple[Path, Callable[[], Images]]]


def encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    """An image as a file of some kind."""
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def _picture(random: np.random.Generator, mode: str) -> Image.Image:
    height, width = random.integers(1, 12, 2)
    if mode == "I;16":
        return Image.fromarray(random.integers(0, 1 << 16, (height, width), dtype=np.uint16))
    colours = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(colours).convert(mode)


def _single(kind: str, suffix: str, modes: str, **options: Any) -> Maker:
    """A folder of one image."""

    def make(random: np.random.Generator, root: Path) -> tuple[Path, Callable[[], Images]]:
        mode = str(random.choice(modes.split()))
        path = root / f"a.{suffix}"
        path.write_bytes(encoded(_picture(random, mode), kind, **options))
        return path, lambda: folder.load(root, max_pixels=MAX_PIXELS)

    return make


def _archive(method: int) -> Maker:
    """A zip archive of two images, in a folder of its own."""

    def make(random: np.random.Generator, root: Path) -> tuple[Path, Callable[[], Images]]:
        path = root / "photos.zip"
        picture = _picture(random, "RGB")
        with zipfile.ZipFile(path, "w", method) as archive:
            for name in ("x/a.bmp", "b.png"):
                archive.writestr(name, encoded(picture, name[-3:]))
        return path, lambda: folder.load(path, max_pixels=MAX_PIXELS)

    return make


def _idx(compress: bool) -> Maker:
    def make(random: np.random.Generator, root: Path) -> tuple[Path, Callable[[], Images]]:
        pixels = random.integers(0, 256, (5, 4, 3), dtype=np.uint8)
        content = struct.pack(">HBB3I", 0, 8, 3, *pixels.shape) + pixels.tobytes()
        path = root / "train-images-idx3-ubyte"
        path.write_bytes(gzip.compress(content) if compress else content)
        return path, lambda: idx.load(root, "train", max_pixels=MAX_PIXELS)

    return make


def _npy(random: np.random.Generator, root: Path) -> tuple[Path, Callable[[], Images]]:
    path = root / "images.npy"
    np.save(path, random.integers(0, 256, (5, 4, 3), dtype=np.uint8))
    return path, lambda: array.load(path, max_pixels=MAX_PIXELS)


def _mat(compress: bool) -> Maker:
    def make(random: np.random.Generator, root: Path) -> tuple[Path, Callable[[], Images]]:
        path = root / "train_32x32.mat"
        pixels = random.integers(0, 4, (32, 32, 3, 2), dtype=np.uint8)
        digits = np.array([[1], [10]], dtype=random.choice(["u1", "f8", "i4"]))
        savemat(path, {"y": digits, "X": pixels}, do_compression=compress)
        return path, lambda: svhn.load(root, "train", max_pixels=MAX_PIXELS)

    return make


def _celeba(random: np.random.Generator, root: Path) -> tuple[Path, Callable[[], Images]]:
    faces = root / "img_align_celeba"
    faces.mkdir()
    lines = []
    for number in range(3):
        picture = Image.fromarray(random.integers(0, 256, (6, 5, 3), dtype=np.uint8))
        (faces / f"{number:06}.jpg").write_bytes(encoded(picture, "jpeg"))
        lines.append(f"{number:06}.jpg {number % 2}\n")
    partition = root / "list_eval_partition.txt"
    partition.write_text("".join(lines))
    damaged = partition if random.integers(2) else faces / "000000.jpg"
    return damaged, lambda: celeba.load(root, "train", max_pixels=MAX_PIXELS)


#: All kinds by name.
KINDS: dict[str, Maker] = {
    "png": _single("png", "png", "RGB L P 1 LA RGBA I;16"),
    "jpeg": _single("jpeg", "JPG", "RGB L CMYK"),
    "progressive": _single("jpeg", "jpeg", "RGB L", progressive=True),
    "gif": _single("gif", "gif", "L P RGB"),
    "bmp": _single("bmp", "bmp", "RGB L P 1"),
    "tiff": _single("tiff", "tif", "RGB L P CMYK LA I;16 1"),
    "tiff-lzw": _single("tiff", "tiff", "RGB L", compression="tiff_lzw"),
    "tiff-zip": _single("tiff", "tiff", "RGB L", compression="tiff_adobe_deflate"),
    "webp": _single("webp", "webp", "RGB RGBA"),
    "webp-lossless": _single("webp", "webp", "RGB RGBA", lossless=True),
    "ppm": _single("ppm", "ppm", "RGB L 1 I;16"),
    "zip-stored": _archive(zipfile.ZIP_STORED),
    "zip-deflated": _archive(zipfile.ZIP_DEFLATED),
    "zip-bzip2": _archive(zipfile.ZIP_BZIP2),
    "zip-lzma": _archive(zipfile.ZIP_LZMA),
    "idx": _idx(False),
    "idx-gzip": _idx(True),
    "npy": _npy,
    "mat": _mat(False),
    "mat-compressed": _mat(True),
    "celeba": _celeba,
}

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 20_000)


def damage(random: np.random.Generator, content: bytes) -> bytes:
    """Change a file in one of many ways; a number in its header rather than in its pixels."""
    size = len(content)
    # Half of the time near the beginning, where headers are.
    place = int(random.integers(max(1, min(size, 64) if random.integers(2) else size)))
    way = random.integers(7)
    if way == 0:
        changed = bytearray(content)
        for _ in range(random.integers(1, 9)):
            changed[int(random.integers(size))] ^= 1 << int(random.integers(8))
        return bytes(changed)
    if way == 1:
        return content[:place]
    if way == 2:
        return content + random.bytes(int(random.integers(1, 100)))
    if way == 3:
        return content[:place] + random.bytes(int(random.integers(1, 40))) + content[place:]
    if way == 4:
        return content[:place] + content[place + int(random.integers(1, 40)) :]
    if way == 5:
        length = int(random.integers(1, 40))
        return content[:place] + bytes(length) + content[place + length :]
    number, width = int(random.choice(_NUMBERS)), int(random.choice([1, 2, 4]))
    order = "little" if random.integers(2) else "big"
    hostile = (number % (1 << (8 * width))).to_bytes(width, order)  # type: ignore[arg-type]
    return content[:place] + hostile + content[place + width :]
