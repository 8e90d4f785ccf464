"""Leaf kernels by name, and what the leaves do with those in torch.

Two kernels in torch serve all families: a matrix product over the stacked statistics of a leaf's
variables, and a table look-up for categorical ones. Gaussians take the product where it loses no
digits, and differences first where it would. On the fused path Gaussians and Bernoullis have their
own kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from einet.families import ExponentialFamily
from einet.kernels.leaf_kernel import Evidence, FusedLeafKernel, LeafKernel, Pieces
from einet.kernels.memory import NodeRows
from einet.kernels.torch.leaf_centred import CentredKernel
from einet.kernels.torch.leaf_product import ProductKernel
from einet.kernels.torch.leaf_table import TableKernel

__all__ = [
    "CENTRED",
    "PRODUCT",
    "TABLE",
    "add_centred",
    "add_statistics",
    "centred_values",
    "evidence_of",
    "fused_kernel",
    "log_values",
    "register_leaf_kernel",
    "torch_kernel",
]

#: θ·T(x) as a matrix product: any family.
PRODUCT = ProductKernel()
#: −(x − μ)²/2σ²: Gaussians.
CENTRED = CentredKernel()
#: θ at an integer x: families whose T(x) is a one-hot vector.
TABLE = TableKernel()

_torch: dict[str, LeafKernel] = {}
_fused: dict[str, Callable[[], FusedLeafKernel]] = {}


def register_leaf_kernel(
    name: str,
    kernel: LeafKernel = PRODUCT,
    fused: Callable[[], FusedLeafKernel] | None = None,
) -> None:
    """Make a leaf kernel known by the name that families have in their attribute ``kernel``.

    Args:
        name: The name.
        kernel: The kernel in torch.
        fused: What gives the fused one, asked once and only where it is needed, as Triton may not
            be installed. Without it, such leaves are computed by the fused product.
    """
    if name in _torch:
        raise ValueError(f"name must be new, but there is a leaf kernel {name!r} already")
    _torch[name] = kernel
    if fused is not None:
        _fused[name] = fused


def torch_kernel(name: str) -> LeafKernel:
    """The kernel of that name in torch."""
    if name not in _torch:
        raise ValueError(
            f"a family's kernel must be one of {', '.join(map(repr, _torch))}, got {name!r}; "
            "others are made known by register_leaf_kernel"
        )
    return _torch[name]


@cache
def fused_kernel(name: str) -> FusedLeafKernel:
    """The fused kernel of that name, or the product where it has none."""
    torch_kernel(name)
    return _fused.get(name, _fused["product"])()


def _of_triton(module: str) -> Callable[[], FusedLeafKernel]:
    return lambda: import_module(f"einet.kernels.triton.{module}").KERNEL


register_leaf_kernel("product", PRODUCT, _of_triton("leaf_product"))
register_leaf_kernel("table", TABLE, _of_triton("leaf_table"))
register_leaf_kernel("centred", CENTRED, _of_triton("leaf_gaussian"))
register_leaf_kernel("binary", PRODUCT, _of_triton("leaf_binary"))


# -- what the leaves do with kernels in torch ------------------------------------------------------


def evidence_of(
    family: ExponentialFamily,
    x: Float[Tensor, "batch V"],
    observed: Bool[Tensor, "batch V"] | None,
) -> Evidence:
    """Values of a family's variables as its kernel needs them, a filler where one is missing."""
    kernel = torch_kernel(family.kernel)
    log_h = family.log_h(x)
    first = log_h[:1]
    fixed = torch.equal(log_h, first.expand_as(log_h)) and bool((first != -torch.inf).all())
    present = None if observed is None else observed.T.to(torch.float64).contiguous()
    cells = kernel.cells(family, x, present)
    if fixed:
        varying, constant = None, first[0]
    else:
        varying, constant = log_h.T.contiguous(), torch.zeros_like(first[0])
        if observed is not None:
            varying = torch.where(observed.T, varying, 0.0)
    return Evidence(kernel, x.shape[0], cells, varying, constant, present)


def log_values(
    theta: Float[Tensor, "K pairs S"],
    A: Float[Tensor, "K pairs"],
    columns: Int[Tensor, "n s"],
    evidence: Evidence,
    if_missing: Float[Tensor, "K pairs"] | None = None,
    kernel: LeafKernel | None = None,
) -> Pieces:
    """Log densities of all leaves of a block, one piece (leaves, samples, values) at a time.

    The values of a piece are the caller's to change, until the next piece is asked for.

    A missing cell counts as ``if_missing``: 0 by default, which integrates it out. The evidence's
    own ``kernel`` is used unless another is named that can read it.
    """
    offset = evidence.constant[columns.reshape(-1)] - A
    pieces = (kernel or evidence.kernel).log_values(theta, offset, columns, evidence)
    return _with_missing(pieces, columns, evidence, if_missing)


def centred_values(
    stored: Float[Tensor, "K pairs P"],
    columns: Int[Tensor, "n s"],
    evidence: Evidence,
    if_missing: Float[Tensor, "K pairs"] | None = None,
) -> Pieces | None:
    """The same by stored parameters (μ, σ²); None where a product of θ and T(x) is as good."""
    kernel = evidence.kernel
    assert isinstance(kernel, CentredKernel)
    mild = kernel.is_mild(stored[..., 0], stored[..., 1], columns, evidence)
    evidence.mild[columns.data_ptr()] = mild
    if mild:
        return None
    pieces = kernel.by_differences(stored.double(), columns, evidence)
    return _with_missing(pieces, columns, evidence, if_missing)


def _with_missing(
    pieces: Pieces, columns: Tensor, evidence: Evidence, if_missing: Tensor | None
) -> Pieces:
    n, s = columns.shape
    for part, piece, log_value in pieces:
        if if_missing is not None and evidence.observed is not None:
            missing = 1 - evidence.observed[:, piece][columns[part]]
            log_value = log_value + if_missing.view(-1, n, s).transpose(0, 1)[part] @ missing
        yield part, piece, log_value


def add_statistics(
    flow: Float[Tensor, "leaf_nodes K batch"],
    leaves: NodeRows,
    columns: Int[Tensor, "n s"],
    evidence: Evidence,
    total: Float[Tensor, "K pairs"],
    weighted: Float[Tensor, "K pairs S"],
) -> None:
    """Add Σ p_L to ``total`` and Σ p_L T(x) to ``weighted``; a missing cell adds to neither."""
    evidence.kernel.add_statistics(flow, leaves, columns, evidence, total, weighted)


def add_centred(
    flow: Float[Tensor, "leaf_nodes K batch"],
    leaves: NodeRows,
    columns: Int[Tensor, "n s"],
    evidence: Evidence,
    total: Float[Tensor, "K pairs"],
    sums: Float[Tensor, "K pairs S"],
    origin: Float[Tensor, "K pairs"],
    stored: Float[Tensor, "K pairs P"],
    from_means: bool = False,
) -> None:
    """The same with T(x) counted from an origin, for leaves whose kernel is centred.

    ``from_means`` says that the origin is the means of ``stored``, by which values were computed.
    """
    kernel = evidence.kernel
    assert isinstance(kernel, CentredKernel)
    mild = evidence.mild.get(columns.data_ptr()) if from_means else None
    if mild is None:
        mild = kernel.is_mild(origin, stored[..., 1], columns, evidence)
    kernel.add_centred(flow, leaves, columns, evidence, total, sums, origin, mild)
