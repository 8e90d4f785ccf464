"""The structure of a model, and what the members of a mixture differ in."""

from __future__ import annotations

import torch

import einet
from einet.data.images import ArrayImages
from einet.imaging import Pixels, Recipe
from einet.imaging.recipe import pixel_tree
from experiments.bootstrap import bootstrap_weights
from experiments.images.settings import Settings

__all__ = ["member_seed", "pixels_of", "recipe", "structure"]

# Seeds of members are so far apart that models of different seeds share none.
_APART = 10_000


def member_seed(settings: Settings, member: int) -> int:
    """The seed of a member; the first is the model that there would be without the others."""
    return settings.seed + _APART * member


def pixels_of(settings: Settings, images: ArrayImages) -> Pixels:
    """How a model's variables are pixels: bytes, or colours of whole numbers."""
    return Pixels(images.image_shape, colour=settings.colour)


def recipe(settings: Settings) -> Recipe:
    """Leaves, and structures on the grid of pixels."""
    return Recipe(
        settings.num_sums,
        settings.delta,
        settings.axes,
        settings.family,
        settings.min_variance,
        settings.max_variance,
    )


def structure(
    settings: Settings, images: ArrayImages, device: torch.device, member: int = 0
) -> einet.RegionGraph:
    """The regions of one member.

    Chow–Liu trees are those of the images (by correlations if leaves are Gaussian, else by counts
    of grey values), from the second member on of images drawn with replacement. Poon–Domingos
    structures are the same for all members.
    """
    if settings.structure == "poon_domingos":
        return recipe(settings).graph(images.image_shape)
    seed = member_seed(settings, member)
    if settings.structure == "random_trees":
        return einet.random_trees(
            images.num_variables, settings.depth, settings.replicas, seed=seed
        )
    rows = pixels_of(settings, images).to_model(images.tensor().to(device))
    weights = None if member == 0 else bootstrap_weights(len(images), seed)
    return pixel_tree(
        rows, settings.family, settings.levels, weights=weights, trees=settings.trees, seed=seed
    )
