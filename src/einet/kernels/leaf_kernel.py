"""The contract of leaf kernels: how leaves of a family are evaluated, and their statistics.

A family names its kernel, and :mod:`einet.kernels.leaf` finds it. A new kernel is one file: a final
:class:`LeafKernel` in torch, where no other serves, and a :class:`FusedLeafKernel`, where one pays.
Without the latter its leaves take the product of the fused kernels, which serves all families.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from einet.families import ExponentialFamily
from einet.kernels.memory import NodeRows

__all__ = [
    "Added",
    "Evidence",
    "FusedEvidence",
    "FusedLeafKernel",
    "LeafKernel",
    "Out",
    "Pairs",
    "Pieces",
]

#: Log values ``[leaves, K, samples]`` of some leaves for some samples at a time: both, and these.
Pieces = Iterator[tuple[slice, slice, Tensor]]


# -- in torch --------------------------------------------------------------------------------------


@dataclass
class Evidence:
    """A batch as the leaves of one family see it; variables first, samples last.

    ``cells`` is what the kernel makes of the values. ``log_h`` is given as ``constant`` (one number
    a variable) where it does not depend on x, which saves a row of every product; ``observed`` is
    None where nothing is missing.
    """

    kernel: LeafKernel
    batch: int
    cells: Float[Tensor, "V S batch"] | Int[Tensor, "V batch"]
    log_h: Float[Tensor, "V batch"] | None
    constant: Float[Tensor, " V"]
    observed: Float[Tensor, "V batch"] | None
    #: The largest absolute value of each variable, where a kernel has asked for it.
    reach: Float[Tensor, " V"] | None = None
    #: What a kernel has found out about blocks of leaves and these rows, by where columns lie.
    mild: dict[int, bool] = field(default_factory=dict)


class LeafKernel(ABC):
    """Leaves in torch, on any device.

    Kernels work through leaves and samples in blocks, so that neither a ``batch × pairs × K``
    tensor nor the gathered values of all leaves ever exist. Parameters are θ and A of each (leaf,
    variable) pair, in float64.
    """

    #: Whether stored parameters are (μ, σ²) and statistics may be counted from an origin of each
    #: density: see :class:`~einet.kernels.torch.leaf_centred.CentredKernel`.
    centred: ClassVar[bool] = False

    @abstractmethod
    def cells(
        self,
        family: ExponentialFamily,
        x: Float[Tensor, "batch V"],
        observed: Float[Tensor, "V batch"] | None,
    ) -> Tensor:
        """What the kernel reads of the values; the family's filler stands where one is missing."""

    @abstractmethod
    def numbers(self, family: ExponentialFamily) -> int:
        """How many numbers of 8 bytes :meth:`cells` keeps for each value, for budgets of memory."""

    @abstractmethod
    def log_values(
        self,
        theta: Float[Tensor, "K pairs S"],
        offset: Float[Tensor, "K pairs"],
        columns: Int[Tensor, "n s"],
        evidence: Evidence,
    ) -> Pieces:
        """θ·T(x) + offset + log h(x), summed over a leaf's scope; a missing cell adds nothing.

        The values of a piece are the caller's to change, until the next piece is asked for.
        """

    @abstractmethod
    def add_statistics(
        self,
        flow: Float[Tensor, "leaf_nodes K batch"],
        leaves: NodeRows,
        columns: Int[Tensor, "n s"],
        evidence: Evidence,
        total: Float[Tensor, "K pairs"],
        weighted: Float[Tensor, "K pairs S"],
    ) -> None:
        """Add Σ p_L to ``total`` and Σ p_L T(x) to ``weighted``; a missing cell adds to neither."""


# -- fused -----------------------------------------------------------------------------------------


@dataclass
class FusedEvidence:
    """The same for the fused kernels, which read one tensor of ``cells``: each says of which.

    ``log_h`` and ``holes`` are for kernels that need them.
    """

    kernel: FusedLeafKernel
    batch: int
    cells: Float[Tensor, "V ... batch"] | Int[Tensor, "V batch_or_words"]
    log_h: Float[Tensor, "V batch"] | None = None
    holes: Int[Tensor, "V blocks"] | None = None


@dataclass
class Pairs:
    """The (leaf, variable) pairs of one block: ``n`` leaves with ``s`` variables each.

    ``columns[leaf, position]`` is a variable's number within its family, by which the
    hyper-parameters ``hyper[name][V]`` are found. ``origin[K, pairs]`` is what statistics of
    centred kernels are counted from, in float64; None is 0.
    """

    leaves: Tensor
    columns: Tensor
    stored: Tensor
    hyper: dict[str, Tensor]
    origin: Tensor | None = None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """n, s, K and the number of pairs."""
        n, s = self.columns.shape
        return n, s, self.stored.shape[0], n * s


@dataclass
class Added:
    """What a prior adds to the statistics of every density: ``count`` times a row of ``centres``.

    ``centres[V, S + 1]`` is float64: φ₀ of each variable and a 1, or zeros where there is no prior.
    """

    count: Tensor
    centres: Tensor


@dataclass
class Out:
    """Where log values go: scaled into ``v`` and ``m``, or added to ``total`` if there is one.

    ``total`` is float64: the values of leaves whose variables belong to several families. With
    ``any_scale`` the largest entry of a leaf need not be 1: whoever reads ``v`` minds no scale.
    """

    v: Tensor
    m: Tensor
    total: Tensor | None = None
    any_scale: bool = False

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What ``store_values`` of the fused kernels wants to know."""
        total = self.m if self.total is None else self.total
        node, entry = (0, 0) if self.total is None else total.stride()[:2]
        return (self.v, *self.v.stride()[:2], self.m, self.m.stride(0), total, node, entry)


class FusedLeafKernel(ABC):
    """Leaves on the fused path, in float32: no method is called for an empty batch.

    Nothing may wait for the device, so that all of it can be captured in a CUDA graph.
    """

    #: Whether it works by T, log h, θ and A of the family. If not, it reads stored parameters and
    #: hyper-parameters itself, and ``natural`` is given only where gradients are asked for.
    by_family: ClassVar[bool] = False

    @abstractmethod
    def evidence(
        self,
        family: ExponentialFamily,
        hyper: dict[str, Tensor],
        variables: Tensor,
        x: Tensor,
        observed: Tensor | None,
    ) -> FusedEvidence:
        """The columns ``variables`` of ``x``; NaN is missing, too.

        Only where the kernel is :attr:`by_family` are the hyper-parameters of ``family`` float64
        and beside ``x``; those in ``hyper`` are as they are kept.
        """

    @abstractmethod
    def values(
        self,
        pairs: Pairs,
        evidence: FusedEvidence,
        natural: tuple[Tensor, Tensor] | None,
        out: Out,
    ) -> None:
        """Log densities of a block into ``out``; by θ and A in place of its own where given."""

    @abstractmethod
    def add_statistics(
        self, pairs: Pairs, evidence: FusedEvidence, flow: Tensor, total: Tensor, weighted: Tensor
    ) -> None:
        """Add Σ p_L and Σ p_L T(x) of a block to float64 sums, counted from its origin."""

    def can_step(self, pairs: Pairs) -> bool:
        """Whether :meth:`step` serves this block; else its M-step is done by statistics."""
        return False

    def step(
        self,
        pairs: Pairs,
        evidence: FusedEvidence,
        flow: Tensor,
        step_size: Tensor,
        added: Added | None,
    ) -> None:
        """A whole step of stochastic EM, in place."""
        raise NotImplementedError(f"{type(self).__name__} has no step of its own")
