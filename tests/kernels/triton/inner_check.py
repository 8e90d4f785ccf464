"""Random inner layers in float32, and by formulas in float64 what their kernels are to give."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.einsum import EinsumEdges
from tests.kernels.triton.leaf_check import DEVICES, INF, NAN, interpreted

__all__ = [
    "DEVICES",
    "ERROR",
    "INF",
    "NAN",
    "EinsumCase",
    "around",
    "close",
    "on_devices",
    "on_precisions",
    "on_sizes",
    "poisoned",
    "random_nodes",
    "random_weights",
]

#: The largest relative error of results at each precision: float32, tf32 and bf16.
ERROR = {"highest": 1e-5, "high": 1e-3, "medium": 1e-2}

on_devices = pytest.mark.parametrize("device", DEVICES)
#: Every device with every precision it has: Triton's interpreter cannot multiply bf16.
on_precisions = pytest.mark.parametrize(
    ("device", "precision"),
    [
        pytest.param("cpu", "highest", marks=interpreted),
        pytest.param("cpu", "high", marks=interpreted),
        *(pytest.param("cuda", precision, marks=pytest.mark.gpu) for precision in ERROR),
    ],
)

Size = tuple[int, ...]
# K, I, J, batch and L. The interpreter takes its time: every block of every kernel, few of each.
_ON_CPU: list[Size] = [
    (1, 1, 1, 1), (3, 3, 3, 7), (10, 10, 10, 33), (16, 16, 16, 7), (40, 40, 40, 7, 2),
    (64, 64, 64, 1, 1),
    # Different numbers of entries on the left, on the right and above.
    (3, 10, 4, 33), (10, 3, 16, 7), (16, 5, 1, 7), (7, 40, 30, 1, 2),
    # Few outputs, as at the root.
    (1, 4, 3, 33), (1, 40, 16, 7, 2), (2, 16, 10, 33), (5, 64, 40, 1, 1),
    # More entries than one block holds.
    (100, 3, 5, 1), (5, 3, 100, 7, 2), (3, 200, 5, 1, 1), (200, 4, 70, 1, 1), (1, 100, 2, 7, 2),
    # Outputs in two halves.
    (70, 3, 40, 7, 2), (100, 2, 128, 1, 1),
]  # fmt: skip
_UNARY_ON_CPU: list[Size] = [(3, 10, 1, 33), (1, 16, 1, 7), (40, 3, 1, 1), (70, 100, 1, 1, 1)]
_EVERY_K = (1, 3, 10, 16, 40, 64)
_ON_GPU: list[Size] = [
    *((K, K, K, batch) for K, batch in itertools.product(_EVERY_K, (1, 7, 100, 500))),
    *((*size[:3], 100) for size in _ON_CPU if len(set(size[:3])) > 1),
    (100, 100, 100, 7), (128, 128, 128, 500, 3), (200, 200, 200, 100), (256, 256, 256, 33),
    (256, 3, 256, 500),
]  # fmt: skip
_UNARY_ON_GPU: list[Size] = [(*size[:3], batch) for size in _UNARY_ON_CPU for batch in (1, 500)]
# Many sums, for which tiles are cut differently.
_MANY: list[Size] = [(10, 10, 10, 500, 1100), (32, 32, 32, 500, 300)]


def _parameters() -> list[Any]:
    cases: list[Any] = []
    for sizes, unary in ((_ON_CPU, False), (_UNARY_ON_CPU, True)):
        cases += [pytest.param("cpu", size, unary, marks=interpreted) for size in sizes]
    for sizes, unary in ((_ON_GPU, False), (_UNARY_ON_GPU, True), (_MANY, False)):
        cases += [pytest.param("cuda", size, unary, marks=pytest.mark.gpu) for size in sizes]
    return cases


#: Tests of all shapes that matter: ``device``, ``(K, I, J, batch)`` and ``unary``.
on_sizes = pytest.mark.parametrize(("device", "size", "unary"), _parameters(), ids=str)


def close(found: Tensor, exact: Tensor, precision: str = "highest", atol: float = 1e-30) -> None:
    """Equal up to a relative error, however small: all numbers are positive, nothing cancels."""
    torch.testing.assert_close(found.double(), exact.double(), rtol=ERROR[precision], atol=atol)


def poisoned(*shape: int, device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.full(shape, NAN, device=device, dtype=dtype)


def random_nodes(
    num: int, entries: int, batch: int, device: str, generator: torch.Generator, width: int = 0
) -> Nodes:
    """Scaled values, with NaN beyond their entries; tiny ones and impossible nodes among them.

    Samples 1, 4, 7, … have entries of 1e-30 beside one of 1; sample 2 has no possible node at all,
    sample 3 every other one.
    """
    v = torch.rand(num, entries, batch, generator=generator) ** 3 + 1e-4
    v[:, 1:, 1::3] *= 1e-30
    v /= v.amax(1, keepdim=True)
    m = 100 * torch.randn(num, batch, generator=generator, dtype=torch.float64)
    v[:, :, 2:3], m[:, 2:3] = 0.0, -INF
    v[::2, :, 3:4], m[::2, 3:4] = 0.0, -INF
    wide = poisoned(num, max(entries, width), batch, device=device)
    wide[:, :entries] = v.to(device)
    return Nodes(wide, m.to(device), poisoned(num, batch, device=device))


def random_weights(*shape: int, generator: torch.Generator) -> Tensor:
    """Weights that add up to 1 over the last axis, of very different sizes."""
    weight = torch.rand(shape, generator=generator, dtype=torch.float64) ** 3 + 1e-6
    return (weight / weight.sum(-1, keepdim=True)).float()


class EinsumCase:
    """L sums over pairs of random nodes, and what float64 makes of them.

    Gradients of the sums' values are random: 0 for impossible ones, and for the first output of the
    last sum. The first half of the nodes are leaves.
    """

    def __init__(self, size: Size, unary: bool, device: str, seed: int = 0) -> None:
        K, I, J, batch, L = (*size, 3)[:5]  # noqa: E741 - the letters of equation (5)
        self.size, self.L, self.device = (K, I, J, batch), L, device
        generator = torch.Generator().manual_seed(seed)
        self.entries, self.num = max(I, J), 2 * L + 1
        # Buffers are as wide as the widest node of a circuit: wider than these.
        width = self.entries + 3
        self.nodes = random_nodes(self.num, self.entries, batch, device, generator, width)
        order = torch.randperm(self.num, generator=generator).to(device)
        left, right = order[:L], order[L : 2 * L]
        # A child may have many parents, and be now on the left and now on the right.
        left[-1], right[0] = order[2 * L], order[2 * L]
        self.edges = EinsumEdges(left, None if unary else right, I, J, self.num // 2)
        self.weight = random_weights(L, K, I * J, generator=generator).to(device)
        self.W = self.weight.double().view(L, K, I, J)
        self.evaluate()
        gradient = 2 * torch.rand(L, K, batch, generator=generator).to(device)
        self.gradient = torch.where(self.peak.unsqueeze(1) > 0, gradient, 0.0)
        self.gradient[-1, 0] = 0.0
        self.differentiate()

    def evaluate(self) -> None:
        """Values of the sums."""
        v, m, edges = self.nodes.v.double(), self.nodes.m, self.edges
        self.left = v[edges.left, : edges.num_left]
        self.m = m[edges.left]
        if edges.right is None:
            self.right = torch.ones_like(self.left[:, :1])
        else:
            self.right = v[edges.right, : edges.num_right]
            self.m = self.m + m[edges.right]
        S = torch.einsum("lkij,lib,ljb->lkb", self.W, self.left, self.right)
        self.peak = S.amax(1)
        self.v = torch.where(S > 0, S / self.peak.unsqueeze(1), 0.0)
        self.m = self.m + self.peak.log()

    def differentiate(self) -> None:
        """What follows from the gradients of the sums' values."""
        peak = self.peak.unsqueeze(1)
        #: The gradients of the sums themselves, and the flow into each.
        self.u = torch.where(peak > 0, self.gradient.double() / peak, 0.0)
        self.flow = self.gradient.double() * self.v
        self.statistics = torch.einsum("lkb,lib,ljb->lkij", self.u, self.left, self.right)
        self.statistics = self.statistics.reshape(self.weight.shape)

    def room(self) -> Nodes:
        """Where the sums' values go: a part of a wider buffer, all of it NaN."""
        L, (K, _, _, batch), device = self.L, self.size, self.device
        return Nodes(
            poisoned(L + 2, K + 2, batch, device=device)[1:-1, :K],
            poisoned(L + 2, batch, device=device, dtype=torch.float64)[1:-1],
            poisoned(L + 2, batch, device=device)[1:-1],
        )

    def sums(self) -> Nodes:
        """The values of the sums, correctly rounded."""
        out = self.room()
        out.v.copy_(self.v)
        out.m.copy_(self.m)
        out.peak.copy_(self.peak)
        return out

    def wide(self, tensor: Tensor) -> Tensor:
        """The same numbers ``[L, K, batch]`` as a part of a wider buffer."""
        out = self.room().v
        out.copy_(tensor)
        return out

    def of_children(self) -> list[Tensor]:
        """The gradients of the left and right children's values; flows in place of a leaf's."""
        h = torch.einsum("lkij,lkb->lijb", self.W, self.u)
        found = [torch.einsum("lijb,ljb->lib", h, self.right)]
        if self.edges.right is not None:
            found.append(torch.einsum("lijb,lib->ljb", h, self.left))
        factors = self.factors()
        return [gradient * factor for gradient, factor in zip(found, factors, strict=True)]

    def factors(self) -> list[Tensor]:
        """The values of children that are leaves, 1 for all others."""
        nodes = [(self.edges.left, self.left)]
        if self.edges.right is not None:
            nodes.append((self.edges.right, self.right))
        leaves = self.edges.num_leaf_nodes
        return [torch.where(node[:, None, None] < leaves, v, 1.0) for node, v in nodes]


def around(view: Tensor) -> Tensor:
    """What a buffer holds around a view made by :meth:`EinsumCase.room`."""
    whole = view._base
    assert whole is not None
    rest = whole.clone()
    rest.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(math.nan)
    return rest
