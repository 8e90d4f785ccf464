"""Masks: which pixels of an image are covered. True is covered, and to be filled in."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from einet.data.images.framing import Framing
from einet.data.images.limits import ImageError, file_bytes, read_file

__all__ = ["Box", "Half", "box", "half", "over_channels", "read"]

Half = Literal["top", "bottom", "left", "right"]

# A mask in a file covers what is at least so bright.
_BRIGHT = 128


class Box(NamedTuple):
    """A rectangle of pixels, from its upper left corner.

    Example:
        >>> Box.parse("8,0,16,32")
        Box(top=8, left=0, height=16, width=32)
    """

    top: int
    left: int
    height: int
    width: int

    @classmethod
    def parse(cls, text: str) -> Box:
        """From ``"top,left,height,width"``.

        Args:
            text: Four whole numbers with commas between them.

        Example:
            >>> Box.parse("8,0,16,32")
            Box(top=8, left=0, height=16, width=32)
        """
        try:
            numbers = [int(part) for part in text.split(",")]
            return cls(*numbers)
        except (ValueError, TypeError):
            raise ValueError(
                "box must be four whole numbers, 'top,left,height,width', such as '8,0,16,32', "
                f"got {text!r}"
            ) from None


def box(grid: tuple[int, int], where: Box) -> Bool[Tensor, "height width"]:
    """Cover a rectangle, all of which must lie within the image.

    Args:
        grid: Height and width of the image.
        where: The rectangle.

    Example:
        >>> box((2, 3), Box(0, 1, 2, 1)).int()
        tensor([[0, 1, 0],
                [0, 1, 0]], dtype=torch.int32)
    """
    bottom, right = where.top + where.height, where.left + where.width
    inside = where.top >= 0 and where.left >= 0 and bottom <= grid[0] and right <= grid[1]
    if not inside or where.height < 1 or where.width < 1:
        raise ValueError(
            f"box must cover at least one pixel and lie within the image of {grid[0]}×{grid[1]} "
            f"pixels (height×width), got {','.join(map(str, where))} (top,left,height,width)"
        )
    covered = torch.zeros(grid, dtype=torch.bool)
    covered[where.top : bottom, where.left : right] = True
    return covered


def half(grid: tuple[int, int], which: str) -> Bool[Tensor, "height width"]:
    """Cover one half of an image; of an odd number of lines, the middle one stays visible.

    Args:
        grid: Height and width of the image.
        which: ``"top"``, ``"bottom"``, ``"left"`` or ``"right"``.

    Example:
        >>> half((2, 4), "left").int()
        tensor([[1, 1, 0, 0],
                [1, 1, 0, 0]], dtype=torch.int32)
    """
    if which not in get_args(Half):
        raise ValueError(f"which must be one of {', '.join(get_args(Half))}, got {which!r}")
    height, width = grid
    if which in ("top", "bottom"):
        first = 0 if which == "top" else height - height // 2
        return box(grid, Box(first, 0, height // 2, width))
    first = 0 if which == "left" else width - width // 2
    return box(grid, Box(0, first, height, width // 2))


def read(
    path: str | PathLike[str], grid: tuple[int, int], framing: Framing | None = None
) -> Bool[Tensor, "height width"]:
    """Read a mask from an image file: what is white is covered, what is black is visible.

    Args:
        path: The file.
        grid: Height and width that it must have.
        framing: What is made of it before, such as was made of the image it belongs to.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.fromarray(np.uint8([[255, 0, 0], [255, 0, 0]])).save(f"{folder}/mask.png")
        ...     read(f"{folder}/mask.png", (2, 3)).int()
        tensor([[1, 0, 0],
                [1, 0, 0]], dtype=torch.int32)
    """
    path = Path(path)
    framing = Framing(channels=1) if framing is None else framing
    content = read_file(path, file_bytes(framing.max_pixels))
    grey = framing(content, str(path))[..., 0]
    if grey.shape != tuple(grid):
        raise ImageError(
            f"the mask {path} is {grey.shape[0]}×{grey.shape[1]} pixels (height×width), but must "
            f"be {grid[0]}×{grid[1]}, as the image is"
        )
    covered = torch.from_numpy(np.asarray(grey >= _BRIGHT))
    if not bool(covered.any()):
        raise ValueError(f"the mask {path} covers nothing: what is to be covered must be white")
    return covered


def over_channels(
    covered: Bool[Tensor, "height width"], channels: int
) -> Bool[Tensor, " variables"]:
    """A mask of variables: all channels of a pixel are covered or none.

    Args:
        covered: The covered pixels.
        channels: The numbers of a pixel.

    Example:
        >>> over_channels(half((1, 2), "left"), channels=3).int()
        tensor([1, 1, 1, 0, 0, 0], dtype=torch.int32)
    """
    return covered.unsqueeze(-1).expand(*covered.shape, channels).flatten()
