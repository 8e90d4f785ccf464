"""Images that a model does not learn from, to choose by and to say how good it is."""

from __future__ import annotations

import torch

from einet.data.images import Images

__all__ = ["count_held_out", "hold_out"]

# By default a tenth of the images: some at least, as fewer say nothing, and no more than it takes.
_SHARE, _LEAST, _MOST = 0.1, 10, 5000
# Fewer images than this are all needed for training.
_TOO_FEW = 2 * _LEAST


def count_held_out(num_images: int, share: float | int | None = None) -> int:
    """How many images are held out.

    Args:
        num_images: How many there are.
        share: The share of them to hold out, 0 for none. By default a tenth, but at least 10 and
            at most 5,000, and none of fewer than 20.

    Example:
        >>> [count_held_out(number) for number in (19, 20, 950, 600_000)]
        [0, 10, 95, 5000]
        >>> count_held_out(600_000, share=0.1)
        60000
    """
    if share is None:
        if num_images < _TOO_FEW:
            return 0
        return min(_MOST, max(_LEAST, round(_SHARE * num_images)))
    number = isinstance(share, int | float) and not isinstance(share, bool)
    if not number or not 0 <= share < 1:
        raise ValueError(f"share must be a number of at least 0 and below 1, got {share!r}")
    count = round(share * num_images)
    if share and not 0 < count < num_images:
        raise ValueError(
            f"share must hold out some of the {num_images} images and leave some, got {share!r}"
        )
    return count


def hold_out(
    images: Images, share: float | int | None = None, seed: int = 0
) -> tuple[Images, Images | None]:
    """Images to train on, and others to choose by; None where none are held out.

    Args:
        images: All of them.
        share: As in :func:`count_held_out`.
        seed: Which ones is drawn at random; both parts keep the order of the images.

    Example:
        >>> import numpy as np
        >>> from einet.data.images import ArrayImages
        >>> images = ArrayImages(np.zeros((50, 4, 4), dtype=np.uint8))
        >>> hold_out(images)
        (ArrayImages('images', 40 images of 4×4×1), ArrayImages('images', 10 images of 4×4×1))
    """
    count = count_held_out(len(images), share)
    if not count:
        return images, None
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    return images.take(order[count:].sort().values), images.take(order[:count].sort().values)
