"""Whether a model draws pieces of its training images instead of new ones.

A leaf with many pixels, and few images to learn it from, ends up as a copy of one of them. Samples
are then put together of strips of training images. This shows in samples with the means of leaves:
a strip is one leaf's means there, and is compared with the same strip of all training images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from einet.clusters.clustered import ClusteredEinet
from einet.imaging.pixels import Pixels
from einet.models.einet import Einet

__all__ = ["Memorised", "count_copies", "find_memorised"]

# Two strips are the same if no value differs by more: leaves are means, and are rounded.
_GREY_LEVELS = 2
# Strips of fewer values are alike by chance: the more so as means are nearer to all images.
_LEAST_VALUES = 64
# Images have some strips in common, and so may samples have: so much more is worth a warning.
_WORTH_A_WARNING = 0.02
# Numbers in a temporary tensor.
_CELLS_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class Memorised:
    """What :func:`find_memorised` measured.

    Attributes:
        samples: The share of the strips of samples that are those of a training image.
        images: The share of the strips of training images that are those of another one: so many
            are no sign of anything.

    Example:
        >>> found = Memorised(samples=0.4, images=0.1)
        >>> found.is_worth_a_warning
        True
        >>> print(found)
        40% of the strips in samples are strips of a training image, within 2 grey values; ...
    """

    samples: float
    images: float

    @property
    def is_worth_a_warning(self) -> bool:
        """Whether samples have clearly more of them than the images themselves."""
        return self.samples > self.images + _WORTH_A_WARNING

    def __str__(self) -> str:
        return (
            f"{self.samples:.0%} of the strips in samples are strips of a training image, within "
            f"{_GREY_LEVELS} grey values; of training images {self.images:.0%} are those of another"
        )


def find_memorised(
    model: Einet | ClusteredEinet,
    images: UInt8[Tensor, "rows variables"],
    pixels: Pixels | None = None,
    *,
    number: int = 200,
    seed: int = 0,
) -> Memorised | None:
    """How much of what a model draws was copied from its training images.

    Args:
        model: A model of images; a strip is what one of its leaves covers.
        images: All images that it was trained on, as bytes.
        pixels: What images the model has; bytes by default.
        number: How many samples, and how many images, are looked at.
        seed: Seed of both.

    Returns:
        None where leaves have so few values each that images agree in them by chance, as with
        trees over pixels, or where there is but one image.

    Example:
        >>> from einet.imaging import Recipe
        >>> images = torch.randint(0, 256, (4, 16 * 8), generator=torch.manual_seed(0)).byte()
        >>> recipe = Recipe.paper(num_sums=8, delta=4)
        >>> model = recipe.model((16, 8, 1), num_clusters=4)
        >>> _ = model.fit(images, epochs=5, optimizer=recipe.learner(), progress=False)
        >>> find_memorised(model, images)
        Memorised(samples=1.0, images=0.0)
    """
    graph = model.graph
    strips = [torch.tensor(graph.variables(leaf)) for leaf in graph.leaves]
    strips = [strip for strip in strips if len(strip) >= _LEAST_VALUES]
    if not strips or len(images) < 2:
        return None
    drawn = model.sample(number, leaves="mean", seed=seed)
    if pixels is None:
        bytes_drawn = drawn.round().clamp(0, 255).to(torch.uint8).cpu()
    else:
        bytes_drawn = torch.from_numpy(pixels.to_pictures(drawn)).reshape(number, -1)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[:number]
    copied = count_copies(bytes_drawn, images, strips)
    shared = count_copies(images[order], images, strips, own=order)
    return Memorised(copied / (len(strips) * number), shared / (len(strips) * len(order)))


def count_copies(
    pictures: UInt8[Tensor, "pictures variables"],
    images: UInt8[Tensor, "rows variables"],
    strips: Sequence[Int[Tensor, " _"]],
    own: Int[Tensor, " pictures"] | None = None,
) -> int:
    """How many strips of pictures are, but for two grey values, the same strip of an image.

    Args:
        pictures: What is looked at, as bytes.
        images: What it may be copied from.
        strips: The variables of each strip.
        own: The number of each picture among the images, if it is one of them: it is passed over.
    """
    total = 0
    for strip in strips:
        at_once = max(1, _CELLS_AT_ONCE // max(len(pictures), len(strip)))
        copied = torch.zeros(len(pictures), dtype=torch.bool)
        wanted = _centred(pictures[:, strip])
        for start in range(0, len(images), at_once):
            others = _centred(images[start : start + at_once, strip])
            apart = _squared_distances(wanted, others)
            apart[copied] = torch.inf
            if own is not None:
                here = own.unsqueeze(1) == torch.arange(start, start + len(others))
                apart.masked_fill_(here, torch.inf)
            copied |= _any_the_same(wanted, others, apart)
        total += int(copied.sum())
    return total


def _centred(strips: UInt8[Tensor, "number values"]) -> Float[Tensor, "number values"]:
    """Numbers around 0: float32 loses less of their squares, and nothing of them."""
    return strips.float() - 128


def _squared_distances(
    wanted: Float[Tensor, "pictures values"], others: Float[Tensor, "rows values"]
) -> Float[Tensor, "pictures rows"]:
    """By one matrix product, which is rounded."""
    squares = wanted.square().sum(1).unsqueeze(1) + others.square().sum(1)
    return torch.addmm(squares, wanted, others.T, alpha=-2)


def _any_the_same(
    wanted: Float[Tensor, "pictures values"],
    others: Float[Tensor, "rows values"],
    apart: Float[Tensor, "pictures rows"],
) -> Bool[Tensor, " pictures"]:
    """Which strips have one that is the same in all values, given squared distances."""
    # Where no value differs by more than 2, squares add up to 4 for each; the rest is for rounding.
    near = apart <= (_GREY_LEVELS**2 + 1) * wanted.shape[1]
    nearest = apart.argmin(1)
    result = _the_same(wanted, others[nearest]) & near.any(1)
    pairs = (near & ~result.unsqueeze(1)).nonzero()
    for some in pairs.split(max(1, _CELLS_AT_ONCE // wanted.shape[1])):
        one, other = some.unbind(1)
        result[one[_the_same(wanted[one], others[other])]] = True
    return result


def _the_same(one: Tensor, other: Tensor) -> Bool[Tensor, " pairs"]:
    return (one - other).abs().amax(1) <= _GREY_LEVELS
