"""What may lie under the covered parts of an image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from einet.imaging.masks import over_channels
from einet.inference.sampling import Leaves
from einet.models.base import Model

__all__ = ["Inpainting", "inpaint"]


@dataclass(frozen=True)
class Inpainting:
    """Answers to what is covered; visible pixels keep their values, and have no deviation.

    Attributes:
        samples: Draws from p(covered | visible), a mixture's component from its posterior first.
        mean: E[covered | visible], exactly.
        deviation: The exact standard deviation of each variable given the visible ones.

    Example:
        >>> import einet
        >>> from einet import imaging
        >>> graph = einet.poon_domingos((4, 4), delta=2)
        >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3)
        >>> answer = inpaint(
        ...     model, torch.zeros(1, 16), imaging.masks.half((4, 4), "left"), samples=2
        ... )
        >>> answer.samples.shape, answer.mean.shape, answer.deviation.view(4, 4)[0] > 0
        (torch.Size([2, 1, 16]), torch.Size([1, 16]), tensor([ True,  True, False, False]))
    """

    samples: Float[Tensor, "samples batch variables"]
    mean: Float[Tensor, "batch variables"]
    deviation: Float[Tensor, "batch variables"]


def inpaint(
    model: Model,
    x: Float[Tensor, "batch variables"] | Integer[Tensor, "batch variables"],
    covered: Bool[Tensor, "height width"],
    *,
    samples: int = 8,
    leaves: Leaves = "sample",
    seed: int = 0,
) -> Inpainting:
    """Fill in the covered part of images: several draws, their mean and how uncertain it is.

    Args:
        model: A model of images of this size.
        x: Images in the model's units, an image in each row; what is covered is not looked at.
        covered: The covered pixels of all of them; see :mod:`einet.imaging.masks`.
        samples: How many draws for each image.
        leaves: ``"mean"`` draws what sums choose, and takes the means of the leaves: no noise.
        seed: Seed of the draws.

    Example:
        >>> import einet
        >>> from einet import imaging
        >>> graph = einet.poon_domingos((4, 4), delta=2)
        >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3)
        >>> covered = imaging.masks.half((4, 4), "left")
        >>> answer = inpaint(model, torch.full((1, 16), 0.5), covered, samples=2)
        >>> answer.samples[1, 0].view(4, 4)[:, 2:].unique()  # what was visible stays
        tensor([0.5000])
    """
    channels, rest = divmod(model.num_variables, covered.numel())
    if rest or x.shape[1] != model.num_variables:
        raise ValueError(
            f"x and covered must be of images with {model.num_variables} variables, as the model "
            f"has, got {x.shape[1]} variables and a mask of {covered.numel()} pixels"
        )
    visible = ~over_channels(covered, channels)
    posterior = model.given(x, visible.expand(x.shape))
    with torch.no_grad():
        return Inpainting(
            posterior.sample(samples, leaves=leaves, seed=seed),
            posterior.mean(),
            posterior.variance().sqrt(),
        )
