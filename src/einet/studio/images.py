"""Images: samples of a model, pictures fitted to it, and what may lie under their covered parts."""

from __future__ import annotations

import base64
import binascii
import io
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from einet._checks import as_int, as_seed, check_choice, missing_package
from einet.data.images import Framing, Images
from einet.data.images.header import decode, opened
from einet.imaging import Pixels, reading
from einet.imaging.masks import over_channels
from einet.models.base import Model
from einet.studio.answers import ApiError
from einet.studio.limits import Limits

__all__ = ["ImageModel", "open_tests"]

_START = "data:image/"
# White in the picture of deviations: the most that a byte can deviate.
_LARGEST_DEVIATION = 127.5
_MOST_TESTS = 10_000
# A mask covers what is at least so opaque, or so bright.
_COVERED = 128


class ImageModel:
    """A model of images that answers in pictures.

    Args:
        model: The model.
        pixels: What images its variables are.
        limits: How much it takes on.
        tests: Images to try it with.
    """

    def __init__(
        self, model: Model, pixels: Pixels, limits: Limits, tests: Images | None = None
    ) -> None:
        self.model, self.pixels, self.limits = model, pixels, limits
        if tests is not None and tests.image_shape != pixels.shape:
            tests = None
        self.tests = tests

    def described(self) -> dict[str, Any]:
        """What images these are."""
        count = 0 if self.tests is None else min(len(self.tests), _MOST_TESTS)
        return {"shape": list(self.pixels.shape), "has_tests": count > 0, "tests": count}

    def samples(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """New images."""
        n = self._count("n", asked.get("n", 16))
        seed = as_seed(asked.get("seed", 0))
        leaves = asked.get("leaves", "sample")
        check_choice("leaves", leaves, ("sample", "mean"))
        drawn = self.model.sample(n, leaves=leaves, seed=seed)
        return {"images": [as_url(image) for image in self.pixels.to_pictures(drawn)]}

    def test(self, index: Any) -> dict[str, Any]:
        """One of the images to try it with."""
        if self.tests is None:
            raise ApiError(404, "there are no images to try the model with; drop one of your own")
        if not isinstance(index, str) or not index.isdecimal() or len(index) > 9:
            raise ApiError(400, "index must be a whole number")
        count = self.described()["tests"]
        if int(index) >= count:
            raise ApiError(404, f"index must be below {count}, the number of images")
        row = self.tests.read(slice(int(index), int(index) + 1))
        return {"image": as_url(np.asarray(row).reshape(self.pixels.shape))}

    def picture(self, content: bytes) -> dict[str, Any]:
        """Any picture, fitted to the model: its largest centred part, resized, grey or coloured."""
        return {"image": as_url(self._fitted(content))}

    def _fitted(self, content: bytes) -> np.ndarray:
        framing = Framing(
            self.pixels.grid,
            channels=self.pixels.channels,
            enlarge=True,
            max_pixels=self.limits.max_pixels,
        )
        return framing(content, "the picture")

    def inpaint(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What may lie under the covered parts of an image."""
        began = time.perf_counter()
        draws = self._count("draws", asked.get("draws", 8))
        seed = as_seed(asked.get("seed", 0))
        leaves = asked.get("leaves", "sample")
        check_choice("leaves", leaves, ("sample", "mean"))
        image = self._fitted(from_url("image", asked.get("image")))
        covered = self._mask(from_url("covered", asked.get("covered")))
        x = self.pixels.to_model(torch.from_numpy(image.copy()).reshape(1, -1))
        visible = ~over_channels(torch.from_numpy(covered), self.pixels.channels)
        with torch.no_grad():
            posterior = self.model.given(x, visible.expand(x.shape))
            log_evidence = float(posterior.log_evidence[0])
            if log_evidence == -np.inf:
                raise ApiError(422, "what is visible has probability 0 under the model")
            samples = posterior.sample(draws, leaves=leaves, seed=seed)[:, 0]
            mean = posterior.mean()
            deviation = posterior.variance().clamp(min=0).sqrt()
        shown = self.pixels.deviations(deviation)[0].numpy() / _LARGEST_DEVIATION * 255
        bright = np.rint(shown).clip(0, 255).astype(np.uint8)[..., None]
        return {
            "mean": as_url(self.pixels.to_pictures(mean)[0]),
            "deviation": as_url(bright),
            "largest_deviation": float(self.pixels.deviations(deviation).max()),
            "draws": [as_url(picture) for picture in self.pixels.to_pictures(samples)],
            "log_evidence": log_evidence,
            "covered": int(covered.sum()),
            "milliseconds": 1000 * (time.perf_counter() - began),
        }

    def cleaned(self, asked: Mapping[str, Any]) -> tuple[str, str]:
        """An image, fitted, and what is covered of it, in black and white, as PNG in base64."""
        if asked.get("image") is None and asked.get("index") is not None:
            image = from_url("image", self.test(str(asked["index"]))["image"])
        else:
            image = from_url("image", asked.get("image"))
        covered = self._mask(from_url("covered", asked.get("covered")))
        urls = as_url(self._fitted(image)), as_url(covered[..., None] * np.uint8(255))
        return urls[0].split(",", 1)[1], urls[1].split(",", 1)[1]

    def _mask(self, content: bytes) -> np.ndarray:
        """Which pixels are covered: the opaque ones of a picture that is not opaque throughout,
        the bright ones of any other."""
        with opened(content, "covered", self.limits.max_pixels) as picture:
            decode(picture, "covered")
            if picture.size != self.pixels.grid[::-1]:
                height, width = self.pixels.grid
                raise ApiError(
                    422,
                    f"covered must be of {height}×{width} pixels, as the images are, got "
                    f"{picture.height}×{picture.width}",
                )
            alpha = np.asarray(picture.convert("RGBA"))[..., 3]
            grey = np.asarray(picture.convert("L"))
        return (grey if bool((alpha == 255).all()) else alpha) >= _COVERED

    def _count(self, name: str, value: Any) -> int:
        count = as_int(name, value, minimum=1)
        if count > self.limits.max_images:
            raise ApiError(422, f"{name} must be at most {self.limits.max_images}, got {count}")
        return count


def open_tests(path: Path, limits: Limits) -> Images:
    """Images to try a model with, whatever kind of set they are."""
    return reading.open_images(path, split="test", limit=_MOST_TESTS, max_pixels=limits.max_pixels)


def as_url(image: np.ndarray) -> str:
    """A picture of bytes as a PNG file in an address."""
    try:
        from PIL import Image
    except ImportError as error:
        raise missing_package("pillow", "showing images", "images") from error
    content = io.BytesIO()
    flat = image[..., 0] if image.shape[-1] == 1 else image
    Image.fromarray(np.ascontiguousarray(flat)).save(content, format="png", compress_level=1)
    return f"{_START}png;base64,{base64.b64encode(content.getvalue()).decode()}"


def from_url(name: str, url: Any) -> bytes:
    """The file in such an address."""
    if not isinstance(url, str) or not url.startswith(_START) or ";base64," not in url[:80]:
        raise ApiError(422, f"{name} must be a picture as data:image/png;base64,…")
    try:
        return base64.b64decode(url.split(",", 1)[1], validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(422, f"{name} is no base64 that can be read") from None
