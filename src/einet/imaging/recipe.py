"""Recipes for models of images: structure, leaves, and what to learn them with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch

from einet._checks import as_int
from einet.clusters.clustered import ClusteredEinet
from einet.families import Binomial, Categorical, ExponentialFamily, Gaussian
from einet.imaging.recipe_size import check_model
from einet.kernels.dispatch import Precision
from einet.learning.em import StochasticEM
from einet.learning.prior import Prior
from einet.learning.schedules import linear
from einet.structures import RegionGraph, chow_liu, poon_domingos

__all__ = ["MOST_CLUSTERS", "Axes", "LeafKind", "Recipe", "Structure", "pixel_tree"]

Axes = Literal["vertical", "both"]
LeafKind = Literal["gaussian", "binomial", "categorical"]
Structure = Literal["poon_domingos", "chow_liu"]

#: The paper's number of clusters; more are never made by default.
MOST_CLUSTERS = 100


@dataclass(frozen=True)
class Recipe:
    """A structure for images of bytes, with leaves to match, and how to learn it.

    The defaults are the paper's structure (sec. 4.2), learnt so that unseen images are likely:
    with a prior, wide variances, a step size that falls and more images for each cluster.
    :meth:`paper` is the paper's own recipe. :meth:`tree` is the other one to begin with: in place
    of cuts that are the same for all images, what is next to what is learnt from them.

    Args:
        num_sums: K.
        delta: Δ, the step between cuts, or several steps, the finer for what the coarser leave: see
            :func:`~einet.poon_domingos`. By default a quarter of the width.
        axes: ``"vertical"`` for cuts from top to bottom only, or ``"both"``.
        family: Gaussian leaves as in the paper, or Binomial or Categorical ones over 256 values.
        min_variance, max_variance: Bounds of Gaussian leaves, on the scale ``byte / 255``.
        structure: ``"poon_domingos"``, or ``"chow_liu"`` for a tree that is learnt from rows: delta
            and axes have no meaning then, and sums are linear.
        prior: The pseudo-count of a :class:`~einet.Prior` on sums and leaves; 0 for none.
        step_size, last_step_size: λ of stochastic EM falls linearly from the first to the last, or
            is constant without a last one.
        images_each: How many images there should be for each cluster.

    Example:
        >>> recipe = Recipe.paper()
        >>> recipe.graph((32, 32, 3))
        RegionGraph(num_variables=3072, regions=10, leaves=4, partitions=10, layers=4)
        >>> recipe.clusters_for(73_257), recipe.clusters_for(950), recipe.clusters_for(40)
        (100, 9, 1)
        >>> recipe.learner().step_size_at(1.0)
        0.5
        >>> Recipe.tree().graph((2, 2, 1), rows=torch.arange(40).view(10, 4) % 7)
        RegionGraph(num_variables=4, regions=6, leaves=4, partitions=2, layers=3)
    """

    num_sums: int = 40
    delta: float | int | Sequence[float | int] | None = None
    axes: str = "vertical"
    family: str = "gaussian"
    min_variance: float | int = 1e-6
    max_variance: float | int = 1.0
    structure: str = "poon_domingos"
    prior: float | int = 1.0
    step_size: float | int = 0.5
    last_step_size: float | int | None = 0.05
    images_each: int = 500

    def __post_init__(self) -> None:
        for name, kinds in (("axes", Axes), ("family", LeafKind), ("structure", Structure)):
            if getattr(self, name) not in get_args(kinds):
                known = ", ".join(get_args(kinds))
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name)!r}")
        if self.is_tree and (self.delta is not None or self.axes != "vertical"):
            raise ValueError(
                "delta and axes are of Poon–Domingos structures, not of Chow–Liu trees; got "
                f"delta={self.delta}, axes={self.axes!r}"
            )

        as_int("images_each", self.images_each, minimum=1)

    @staticmethod
    def paper(**changes: Any) -> Recipe:
        """The paper's: 100 clusters, variances of at most 0.01, a constant λ and no prior.

        It makes good samples of many images, and a copy of each where there are few.

        Args:
            changes: What shall be otherwise, by name.

        Example:
            >>> Recipe.paper(num_sums=20).max_variance
            0.01
        """
        paper = Recipe(max_variance=1e-2, prior=0.0, last_step_size=None, images_each=100)
        return replace(paper, **changes)

    @staticmethod
    def tree(**changes: Any) -> Recipe:
        """A Chow–Liu tree with K 64, a weak prior, and λ that falls from 1 to 0.01.

        A leaf of a single pixel has more images to learn from than a strip of hundreds.

        Args:
            changes: What shall be otherwise, by name.

        Example:
            >>> Recipe.tree(prior=1.0).structure
            'chow_liu'
        """
        tree = Recipe(num_sums=64, structure="chow_liu", prior=0.1)
        return replace(replace(tree, step_size=1.0, last_step_size=0.01), **changes)

    @property
    def is_tree(self) -> bool:
        """Whether the structure is learnt from rows.

        Example:
            >>> Recipe().is_tree, Recipe.tree().is_tree
            (False, True)
        """
        return self.structure == "chow_liu"

    def clusters_for(self, num_images: int) -> int:
        """100 clusters as in the paper, or as many as have enough images; one for a tree.

        Args:
            num_images: How many training images there are.
        """
        if self.is_tree:
            return 1
        return max(1, min(MOST_CLUSTERS, num_images // self.images_each))

    def learner(self) -> StochasticEM:
        """Stochastic EM with this λ and prior."""
        first, last = self.step_size, self.last_step_size
        return StochasticEM(first if last is None else linear(first, last), self.as_prior())

    def as_prior(self) -> Prior | None:
        """The prior, None where there is none.

        Example:
            >>> Recipe().as_prior(), Recipe.paper().as_prior()
            (Prior(sums=1.0, leaves=1.0, states=None), None)
        """
        return Prior(self.prior, self.prior) if self.prior else None

    def delta_for(self, width: int) -> float | int | Sequence[float | int]:
        """Δ for images of some width.

        Args:
            width: The width in pixels.

        Example:
            >>> Recipe().delta_for(32), Recipe(delta=4).delta_for(32)
            (8.0, 4)
        """
        return max(1.0, width / 4) if self.delta is None else self.delta

    def graph(self, shape: tuple[int, int, int], rows: Any = None) -> RegionGraph:
        """The structure for images of height, width and channels; of these rows, if learnt.

        Args:
            shape: Height, width and channels.
            rows: What a tree is learnt from: images as the model will see them.
        """
        height, width, channels = shape
        if self.is_tree:
            if rows is None:
                raise ValueError("rows must be given for a Chow–Liu tree: it is learnt from them")
            return pixel_tree(rows, self.family)
        axes = [1] if self.axes == "vertical" else [0, 1]
        return poon_domingos((height, width), self.delta_for(width), axes, channels)

    def leaves(self) -> ExponentialFamily:
        """The family of all pixels, which are bytes.

        Example:
            >>> Recipe(family="binomial").leaves()
            Binomial(n=255, ...)
        """
        if self.family == "binomial":
            return Binomial(255)
        if self.family == "categorical":
            return Categorical(256, numeric=True)
        # Bounds for byte / 255 are larger by 255² for bytes; the models are the same.
        return Gaussian(self.min_variance * 255**2, self.max_variance * 255**2)

    def model(
        self,
        shape: tuple[int, int, int],
        num_clusters: int,
        *,
        rows: Any = None,
        seed: int = 0,
        precision: Precision = "highest",
        device: torch.device | str | None = None,
    ) -> ClusteredEinet:
        """A mixture of so many Einets over bytes, yet to be trained.

        Args:
            shape: Height, width and channels.
            num_clusters: The number of Einets; all have the same structure.
            rows: What a Chow–Liu tree is learnt from: images as the model will see them.
            seed, precision, device: As those of :class:`~einet.ClusteredEinet`.

        Raises:
            MemoryError: If there is no room for it, before it is built.

        Example:
            >>> model = Recipe(num_sums=4).model((8, 8, 1), num_clusters=3)
            >>> model.num_clusters, model.num_variables
            (3, 64)
        """
        num_clusters = as_int("num_clusters", num_clusters, minimum=1)
        check_model(
            shape,
            as_int("num_sums", self.num_sums, minimum=1),
            num_clusters,
            delta=None if self.is_tree else self.delta_for(shape[1]),
            axes=self.axes,
            family=self.family,
        )
        return ClusteredEinet(
            self.graph(shape, rows),
            self.leaves(),
            self.num_sums,
            num_clusters,
            sums="linear" if self.is_tree else "einsum",
            seed=seed,
            precision=precision,
            device=device,
        )


def pixel_tree(rows: Any, family: str, levels: int = 16, **options: Any) -> RegionGraph:
    """The Chow–Liu tree of images.

    Args:
        rows: Images ``[images, variables]``, as the model sees them.
        family: Of the leaves. If they are Gaussian the tree is by correlations, else by counts.
        levels: So many grey values are told apart for that: 256 would need far more images.
        options: More for :func:`~einet.chow_liu`.
    """
    if family == "gaussian":
        return chow_liu(rows, information="gaussian", **options)
    return chow_liu(torch.as_tensor(rows) // -(-256 // levels), **options)
