"""Between images and the variables of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Integer, UInt8
from torch import Tensor

from einet.imaging.colour import Colour, as_colour, from_ycocg, to_ycocg
from einet.models.base import Model
from einet.storage import load, load_metadata

__all__ = ["Pixels", "load_with_pixels"]

_KEY = "pixels"


@dataclass(frozen=True)
class Pixels:
    """How the variables of a model are pixels: ``value / scale``, of images of one shape.

    A model's file remembers it: ``model.save(path, pixels.metadata())``.

    Args:
        shape: Height, width and channels (1 or 3); variables are in the C order of such an array.
        scale: What values were divided by: 1 for models of bytes, 255 for pixels in [0, 1].
        colour: What the values of three channels are: bytes R, G and B, or Y, Co and Cg of
            :mod:`einet.imaging.colour`.

    Example:
        >>> pixels = Pixels((1, 2, 1), scale=255.0)
        >>> pixels.to_model(torch.tensor([[0, 255]], dtype=torch.uint8))
        tensor([[0., 1.]])
        >>> pixels.to_pictures(torch.tensor([[-0.1, 0.5]])).ravel()
        array([  0, 128], dtype=uint8)
    """

    shape: tuple[int, int, int]
    scale: float | int = 1.0
    colour: Colour = "rgb"

    def __post_init__(self) -> None:
        whole = [isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in self.shape]
        if len(whole) != 3 or not all(whole) or self.shape[2] not in (1, 3):
            raise ValueError(
                "shape must be (height, width, channels), with 1 or 3 channels, "
                f"got {tuple(self.shape)}"
            )
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale must be a positive number, got {self.scale!r}")
        if as_colour(self.colour) != "rgb" and self.shape[2] != 3:
            raise ValueError(f"colour must be rgb for images of 1 channel, got {self.colour!r}")

    @property
    def grid(self) -> tuple[int, int]:
        """Height and width.

        Example:
            >>> Pixels((8, 6, 3)).grid
            (8, 6)
        """
        return self.shape[:2]

    @property
    def channels(self) -> int:
        """The numbers of a pixel.

        Example:
            >>> Pixels((8, 6, 3)).channels
            3
        """
        return self.shape[2]

    @property
    def num_variables(self) -> int:
        """The numbers of an image.

        Example:
            >>> Pixels((8, 6, 3)).num_variables
            144
        """
        return math.prod(self.shape)

    def to_model(
        self, x: UInt8[Tensor, "*batch variables"]
    ) -> Integer[Tensor, "*batch variables"] | Float[Tensor, "*batch variables"]:
        """Bytes in the units of the model; they stay bytes where it is a model of bytes.

        Args:
            x: Images of bytes, flattened.

        Example:
            >>> Pixels((1, 2, 1), scale=255.0).to_model(torch.tensor([[0, 255]], dtype=torch.uint8))
            tensor([[0., 1.]])
        """
        values = x if self.colour == "rgb" else to_ycocg(x)
        return values if self.scale == 1 else values / self.scale

    def to_bytes(
        self, x: Float[Tensor, "*batch variables"] | Integer[Tensor, "*batch variables"]
    ) -> Float[Tensor, "*batch variables"]:
        """Values of the model on the scale of bytes, neither rounded nor cut off; NaN stays.

        The mean of values is that of bytes, too: both are linear in one another.

        Args:
            x: Values of the model.

        Example:
            >>> Pixels((1, 2, 1), scale=255.0).to_bytes(torch.tensor([[0.5, 1.1]]))
            tensor([[127.5000, 280.5000]], dtype=torch.float64)
        """
        values = x if self.scale == 1 else x.double() * self.scale
        return values.double() if self.colour == "rgb" else from_ycocg(values)

    def deviations(
        self, deviation: Float[Tensor, "*batch variables"]
    ) -> Float[Tensor, "*batch height width"]:
        """One number for each pixel, on the scale of bytes, from the deviations of its values.

        The root of the mean variance of all channels, or the deviation of Y alone: those of R, G
        and B depend on how Y, Co and Cg vary together.

        Args:
            deviation: That of each variable of the model.

        Example:
            >>> Pixels((1, 1, 3), scale=255.0).deviations(torch.tensor([[0.1, 0.1, 0.1]]))
            tensor([[[25.5000]]], dtype=torch.float64)
        """
        each = (deviation.double() * self.scale).unflatten(-1, self.shape)
        return each.square().mean(-1).sqrt() if self.colour == "rgb" else each[..., 0]

    def to_pictures(
        self, x: Float[Tensor, "*batch variables"] | Integer[Tensor, "*batch variables"]
    ) -> UInt8[np.ndarray, "*batch height width channels"]:
        """Values of the model as images of bytes.

        Args:
            x: Values of the model.

        Example:
            >>> Pixels((1, 2, 1), scale=255.0).to_pictures(torch.tensor([[-0.1, 0.5]])).ravel()
            array([  0, 128], dtype=uint8)
        """
        rounded = self.to_bytes(x).round().clamp(0, 255).to(torch.uint8)
        return rounded.reshape(*x.shape[:-1], *self.shape).cpu().numpy()

    def metadata(self, **more: Any) -> dict[str, Any]:
        """For ``model.save(path, metadata)``, with whatever else it shall say.

        Args:
            more: Plain values by name.

        Example:
            >>> Pixels((8, 6, 1)).metadata(trained_on="digits")
            {'pixels': {'shape': [8, 6, 1], 'scale': 1.0, 'colour': 'rgb'}, 'trained_on': 'digits'}
        """
        record = {"shape": list(self.shape), "scale": float(self.scale), "colour": self.colour}
        return {_KEY: record, **more}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Pixels:
        """What :meth:`metadata` wrote.

        Args:
            metadata: What :func:`einet.load_metadata` read.

        Example:
            >>> pixels = Pixels((8, 6, 1), scale=255.0)
            >>> Pixels.from_metadata(pixels.metadata()) == pixels
            True
        """
        record = metadata.get(_KEY)
        if not isinstance(record, Mapping):
            raise ValueError(
                "the file does not say what images its variables are; models for images are "
                "written by 'einet images train', or with model.save(path, "
                "Pixels(shape).metadata())"
            )
        try:
            colour = as_colour(record.get("colour", "rgb"))
            return cls(tuple(record["shape"]), float(record["scale"]), colour)  # type: ignore[arg-type]
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"what the file says of its images is damaged: {error}") from error


def load_with_pixels(
    path: str | PathLike[str], device: torch.device | str | None = None
) -> tuple[Model, Pixels]:
    """A saved model of images, and what images these are."""
    try:
        pixels = Pixels.from_metadata(load_metadata(path))
    except ValueError as error:
        # Those of damaged files name them already.
        raise ValueError(f"{path}: {error}" if str(path) not in str(error) else error) from error
    model = load(path, device)
    if model.num_variables != pixels.num_variables:
        raise ValueError(
            f"{path} says that its images are {'×'.join(map(str, pixels.shape))}, but the model "
            f"has {model.num_variables} variables"
        )
    return model, pixels
