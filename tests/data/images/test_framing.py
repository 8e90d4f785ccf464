"""Crops, sizes and colours."""

import io
import sys
from typing import Any

import numpy as np
import pytest
from PIL import Image

from einet.data.images import Framing, ImageError


def encoded(image: Image.Image, kind: str = "png", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def framed(given: np.ndarray, **options: Any) -> np.ndarray:
    return Framing(**options)(encoded(Image.fromarray(given)), "a.png")


def test_without_a_wish_pixels_are_those_of_the_file():
    given = noise(7, 5, 3)
    assert np.array_equal(framed(given), given)
    grey = noise(7, 5)
    assert np.array_equal(framed(grey, channels=1), grey[..., None])
    assert np.array_equal(framed(grey), np.repeat(grey[..., None], 3, 2))


def test_crop_is_the_centre_pixel_by_pixel():
    given = noise(109, 89, 3)
    assert np.array_equal(framed(given, crop=64), given[22:86, 12:76])
    assert np.array_equal(framed(given, crop=(100, 30)), given[4:104, 29:59])
    assert np.array_equal(framed(given, crop=(109, 89)), given)
    assert np.array_equal(framed(given, crop=64, size=64), given[22:86, 12:76])


def test_size_takes_the_largest_centred_part_undistorted():
    # Twice as wide as wanted: the outer quarters fall away, and 2×2 pixels become one.
    given = np.zeros((16, 32, 3), dtype=np.uint8)
    given[:, :8], given[:, 24:] = 255, 255
    given[:, 8:24] = np.kron(noise(8, 8, 1) // 2, np.ones((2, 2, 3), dtype=np.uint8))
    small = framed(given, size=8)
    assert small.shape == (8, 8, 3)
    assert small.max() < 128
    assert framed(given, size=(6, 11)).shape == (6, 11, 3)
    assert framed(given, size=(16, 9)).shape == (16, 9, 3)


def test_resizing_averages():
    given = np.zeros((64, 64, 3), dtype=np.uint8)
    given[::2] = 200
    inner = framed(given, size=8)[1:-1]
    assert abs(inner.astype(int) - 100).max() <= 1
    # Nothing overshoots at an edge.
    edge = np.full((64, 64, 3), 50, dtype=np.uint8)
    edge[:, 32:] = 180
    small = framed(edge, size=9)
    assert (small.min(), small.max()) == (50, 180)


@pytest.mark.parametrize("size", [(3, 7), (7, 3), (5, 5), (1, 1), (11, 13)])
@pytest.mark.parametrize("shape", [(13, 17), (97, 31), (101, 103)])
def test_any_size(size: tuple[int, int], shape: tuple[int, int]):
    assert framed(noise(*shape), size=size, channels=1).shape == (*size, 1)


def test_smaller_images_are_an_error_unless_wanted():
    given = noise(40, 30, 3)
    with pytest.raises(ImageError, match=r"a.png is 40×30 .* smaller than crop=\(32, 32\)"):
        framed(given, crop=32)
    with pytest.raises(
        ImageError, match=r"a.png is 40×30 .* smaller than size=\(32, 32\).*enlarge"
    ):
        framed(given, size=32)
    with pytest.raises(ImageError, match=r"a.png is 20×20 .* after cropping, smaller than size"):
        framed(given, size=24, crop=20)
    assert framed(given, size=32, enlarge=True).shape == (32, 32, 3)


def test_colours_become_grey_and_grey_becomes_colours():
    red = Image.new("RGB", (4, 4), (255, 0, 0))
    assert np.unique(Framing(channels=1)(encoded(red), "a")).tolist() == [76]
    for image in (red.convert("P"), red.convert("CMYK"), red):
        kind = "tiff" if image.mode == "CMYK" else "png"
        pixels = Framing()(encoded(image, kind), "a")
        assert pixels.reshape(-1, 3)[0].tolist() == pytest.approx([255, 0, 0], abs=2)
    black = Framing()(encoded(Image.new("1", (2, 2), 1)), "a")
    assert np.unique(black).tolist() == [255]


def test_what_is_transparent_becomes_white():
    clear = Image.new("RGBA", (2, 1), (10, 20, 30, 0))
    clear.putpixel((1, 0), (10, 20, 30, 255))
    assert Framing()(encoded(clear), "a").tolist() == [[[255, 255, 255], [10, 20, 30]]]
    palette = clear.quantize(4)
    assert Framing()(encoded(palette), "a")[0, 0].tolist() == [255, 255, 255]
    grey = Image.new("LA", (1, 1), (10, 0))
    assert Framing(channels=1)(encoded(grey), "a").tolist() == [[[255]]]


def test_of_16_bits_the_upper_8_are_kept():
    wide = Image.fromarray(np.array([[0, 256, 65535]], dtype=np.uint16))
    for kind in ("png", "tiff", "ppm"):
        assert Framing(channels=1)(encoded(wide, kind), "a").tolist() == [[[0], [1], [255]]]
    with pytest.raises(ImageError, match="b.tif has 32 bits for each pixel .*allowed are 8 or 16"):
        Framing()(encoded(Image.new("F", (2, 2)), "tiff"), "b.tif")


def test_orientation_marks_are_obeyed():
    given = noise(2, 3, 3)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: clockwise by a quarter gives the picture
    content = encoded(Image.fromarray(given), exif=exif)
    assert np.array_equal(Framing()(content, "a"), np.rot90(given, -1))


# Of some damages Pillow warns before it gives up.
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("kind", ["png", "jpeg", "bmp", "gif", "webp", "tiff"])
def test_damaged_files_are_named(kind: str):
    content = encoded(Image.fromarray(noise(64, 64, 3)), kind)
    Framing()(content, "whole")
    for damaged in (content[: len(content) // 2], content[:10], b"", b"no image at all"):
        with pytest.raises(ImageError, match="photos/broken is no intact image"):
            Framing()(damaged, "photos/broken")


def test_arguments_are_checked():
    for value in (0, -3, (4, 0)):
        with pytest.raises(
            ValueError, match=r"size must be a positive .* or two, \(height, width\)"
        ):
            Framing(size=value)
        with pytest.raises(ValueError, match="crop must be a positive whole number or two"):
            Framing(crop=value)
    for value in ((4,), (4, 4, 3), True):
        with pytest.raises(TypeError, match="size must be a positive whole number or two"):
            Framing(size=value)
    with pytest.raises(ValueError, match=r"channels must be 3 \(RGB\) or 1 \(grey\), got 4"):
        Framing(channels=4)


def test_without_pillow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    content = encoded(Image.new("L", (2, 2)))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"needs the package pillow.*einet\[images\]"):
        Framing()(content, "a")
