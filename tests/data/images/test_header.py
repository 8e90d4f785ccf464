"""What image files declare."""

import io
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from einet.data.images import Framing, ImageError
from einet.data.images.header import decode, opened


def encoded(image: Image.Image, kind: str) -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


@pytest.mark.parametrize(
    "kind", ["png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm", "pcx", "sgi", "tga", "dib"]
)
def test_sizes_are_known_before_anything_is_decoded(kind: str):
    content = encoded(Image.new("RGB", (30, 20), "red"), kind)
    with opened(content, "a", 600) as image:
        assert (image.height, image.width) == (20, 30)
        decode(image, "a")
        assert image.convert("RGB").getpixel((3, 4)) == pytest.approx((255, 0, 0), abs=2)
    with (
        pytest.raises(ImageError, match=r"photo declares 20×30 pixels, more than the 599 .*allow"),
        opened(content, "photo", 599),
    ):
        pass
    with pytest.raises(ImageError, match="photo declares 20×30"):
        Framing(max_pixels=599)(content, "photo")
    assert repr(Framing(max_pixels=599)).endswith("channels=3, max_pixels=599)")


def test_limits_of_pillow_are_neither_used_nor_changed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    content = encoded(Image.new("L", (30, 20)), "png")
    # Pillow would refuse it, and warn of half its size; warnings are errors here.
    with ThreadPoolExecutor(4) as pool:
        for pixels in pool.map(Framing(channels=1), [content] * 8, ["a"] * 8):
            assert pixels.shape == (20, 30, 1)
    assert Image.MAX_IMAGE_PIXELS == 10


@pytest.mark.parametrize("kind", ["eps", "ico", "pdf"])
def test_formats_that_are_not_rasters_of_one_size_are_none(kind: str):
    content = encoded(Image.new("RGB", (32, 32)), kind)
    with pytest.raises(ImageError, match="a is no intact image: its format is unknown"):
        Framing()(content, "a")


def test_anything_that_a_parser_raises_names_the_file(monkeypatch: pytest.MonkeyPatch):
    content = encoded(Image.new("L", (30, 20)), "png")
    for error in (KeyError("x"), AssertionError("x"), ZeroDivisionError("x"), OverflowError("x")):

        def fail(*_: object, error: Exception = error) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr("PIL.PngImagePlugin.PngImageFile.load", fail)
            with pytest.raises(ImageError, match="photo is no intact image"):
                Framing()(content, "photo")


def test_without_pillow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"einet\[images\]"), opened(b"", "a"):
        pass


def test_large_images_wait_for_each_other():
    content = encoded(Image.fromarray(np.eye(600, dtype=np.uint8) * 255), "png")
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(Framing(size=60, channels=1), [content] * 24, ["a"] * 24))
    assert all(np.array_equal(found[0], other) for other in found)
