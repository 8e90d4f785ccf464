"""The paper's models of images (sec. 4.2), and their close relatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from einet.clustered import ClusteredEinet
from einet.families import Binomial, Categorical, ExponentialFamily, Gaussian
from einet.kernels.dispatch import Precision
from einet.structures import RegionGraph, poon_domingos
from einet.structures.arguments import as_int

__all__ = ["Axes", "LeafKind", "Recipe"]

Axes = Literal["vertical", "both"]
LeafKind = Literal["gaussian", "binomial", "categorical"]

_MOST_CLUSTERS, _IMAGES_EACH = 100, 100


@dataclass(frozen=True)
class Recipe:
    """A Poon–Domingos structure for images of bytes, with leaves to match; defaults: the paper's.

    Args:
        num_sums: K.
        delta: Δ, the step between cuts, or several steps, the finer for what the coarser leave: see
            :func:`~einet.poon_domingos`. By default a quarter of the width.
        axes: ``"vertical"`` for cuts from top to bottom only, or ``"both"``.
        family: Gaussian leaves as in the paper, or Binomial or Categorical ones over 256 values.
        min_variance, max_variance: Bounds of Gaussian leaves, on the scale ``byte / 255``.

    Example:
        >>> recipe = Recipe()
        >>> recipe.graph((32, 32, 3))
        RegionGraph(num_variables=3072, regions=10, leaves=4, partitions=10, layers=4)
        >>> recipe.clusters_for(73_257), recipe.clusters_for(950), recipe.clusters_for(40)
        (100, 9, 1)
    """

    num_sums: int = 40
    delta: float | int | Sequence[float | int] | None = None
    axes: str = "vertical"
    family: str = "gaussian"
    min_variance: float | int = 1e-6
    max_variance: float | int = 1e-2

    def __post_init__(self) -> None:
        for name, kinds in (("axes", get_args(Axes)), ("family", get_args(LeafKind))):
            if getattr(self, name) not in kinds:
                raise ValueError(
                    f"{name} must be one of {', '.join(kinds)}, got {getattr(self, name)!r}"
                )

    @staticmethod
    def clusters_for(num_images: int) -> int:
        """The paper's 100 clusters, or fewer: one for each 100 images, and one at least."""
        return max(1, min(_MOST_CLUSTERS, num_images // _IMAGES_EACH))

    def delta_for(self, width: int) -> float | int | Sequence[float | int]:
        """Δ for images of some width."""
        return max(1.0, width / 4) if self.delta is None else self.delta

    def graph(self, shape: tuple[int, int, int]) -> RegionGraph:
        """The structure for images of height, width and channels."""
        height, width, channels = shape
        axes = [1] if self.axes == "vertical" else [0, 1]
        return poon_domingos((height, width), self.delta_for(width), axes, channels)

    def leaves(self) -> ExponentialFamily:
        """The family of all pixels, which are bytes."""
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
        seed: int = 0,
        precision: Precision = "highest",
        device: torch.device | str | None = None,
    ) -> ClusteredEinet:
        """A mixture of so many Einets over bytes, yet to be trained."""
        return ClusteredEinet(
            self.graph(shape),
            self.leaves(),
            self.num_sums,
            as_int("num_clusters", num_clusters, minimum=1),
            seed=seed,
            precision=precision,
            device=device,
        )
