"""Whether images are grey."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from einet.data.images import ImageError
from einet.data.images.grey import all_grey, is_grey
from einet.data.images.sources import open_source


def encoded(image: Image.Image, kind: str = "png") -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def noise() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 7), dtype=np.uint8))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "I;16", "RGB", "RGBA", "P"])
def test_grey_in_any_storage(mode: str):
    image = noise()
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) << 8)
    elif mode == "P":
        image = image.convert("RGB").quantize(16)
    else:
        image = image.convert(mode)
    assert is_grey(encoded(image), "a.png")


def test_a_grey_photograph_of_a_camera():
    assert is_grey(encoded(noise().convert("RGB"), "jpeg"), "a.jpg")


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P"])
def test_one_pixel_with_colours(mode: str):
    image = noise().convert("RGB")
    image.putpixel((3, 4), (200, 201, 200))
    image = image.quantize(64, Image.Quantize.MAXCOVERAGE) if mode == "P" else image.convert(mode)
    assert not is_grey(encoded(image), "a.png")


def test_what_is_seen_through_has_no_colours():
    image = noise().convert("RGBA")
    image.putpixel((3, 4), (200, 0, 0, 0))
    assert is_grey(encoded(image), "a.png")


def test_damaged_files(tmp_path: Path):
    with pytest.raises(ImageError, match="a.png is no intact image"):
        is_grey(b"no image", "a.png")
    (tmp_path / "0.png").write_bytes(b"no image")
    noise().save(tmp_path / "1.png")
    assert all_grey(open_source(tmp_path))
    Image.new("RGB", (9, 7), "red").save(tmp_path / "2.png")
    assert not all_grey(open_source(tmp_path))
