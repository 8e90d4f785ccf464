"""Statistics of the weights of a tree of wide sums, and their step of EM, on a GPU.

Products and gradients lie in memory as tensor cores take them (:mod:`.wide_parts`), so that the
statistics :math:`\\sum_b u_k p_i` (n/w of eq. 6) are products of matrices and nothing else. What
those of an output add up to is its flow, which the way down has added up. Several programs make new
weights of an output; whoever comes last divides them by their sum.
"""

# pyright: reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from einet.kernels.triton.products import PLANES, TINY, dot_of_planes, times
from einet.kernels.triton.tree_parts import Weights, new_counters
from einet.kernels.triton.tree_weights import changed
from einet.kernels.triton.wide_parts import Gradients, WideProducts
from einet.kernels.update import RELATIVE_FLOOR

__all__ = ["statistics", "step"]


def statistics(products: WideProducts, gradients: Gradients, into: Weights, precision: str) -> None:
    """Add ∂log P/∂W = Σ_b u_k p_i (n/w of eq. 6) to tensors shaped like the weights."""
    _reduce(into, products, gradients, precision, None, None)


def step(
    weights: Weights,
    products: WideProducts,
    gradients: Gradients,
    step_size: Float[Tensor, ""],
    precision: str,
    pseudo: Float[Tensor, ""] | None = None,
) -> None:
    """Move the weights by a step of stochastic EM, in place (see kernels.update.step_)."""
    _reduce(weights, products, gradients, precision, step_size, pseudo)


def _reduce(
    weights: Weights,
    products: WideProducts,
    gradients: Gradients,
    precision: str,
    step_size: Tensor | None,
    pseudo: Tensor | None,
) -> None:
    K, I = weights.num_outputs, weights.num_inputs  # noqa: E741 - the letters of the formula
    tiles = _tiles()
    sums, samples = products.p.shape[1], products.p.shape[-1]
    across_k, across_i = triton.cdiv(K, tiles["K_BLOCK"]), triton.cdiv(I, tiles["I_BLOCK"])
    none = gradients.totals
    normalize = step_size is not None and across_i > 1
    rows, counters = none, none
    if normalize:
        rows = none.new_empty(sums * across_k * across_i * tiles["K_BLOCK"])
        counters = new_counters(none, sums, across_k)
    _statistics[(sums * across_k * across_i,)](
        weights.base, weights.offsets, products.p, products.factors, gradients.u,
        gradients.totals, rows, counters,
        none if step_size is None else step_size, none if pseudo is None else pseudo,
        products.p.stride(0), gradients.u.stride(0), samples, gradients.totals.shape[1],
        products.p.shape[2], gradients.u.shape[2], I, K, RELATIVE_FLOOR / I,
        STEP=step_size is not None, PRIOR=pseudo is not None, ALIGNED=weights.aligned,
        NORMALIZE=normalize, PLANES=PLANES[precision], GROUP=products.group, **tiles,
    )  # fmt: skip


def _tiles() -> dict:
    """Sizes of tiles, the fastest of those timed on an H200."""
    return {"K_BLOCK": 64, "I_BLOCK": 128, "B_BLOCK": 32, "num_warps": 4, "num_stages": 3}


@triton.jit
def _statistics(
    weight, offsets, products, factors, gradients, totals, rows, counters, step_size, pseudo,
    p_plane, u_plane, B_PAD, blocks, p_entries, u_entries,
    num_inputs: tl.constexpr, num_outputs: tl.constexpr, floor,
    STEP: tl.constexpr, PRIOR: tl.constexpr, ALIGNED: tl.constexpr,
    NORMALIZE: tl.constexpr, PLANES: tl.constexpr, GROUP: tl.constexpr,
    K_BLOCK: tl.constexpr, I_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    across_i: tl.constexpr = (num_inputs + I_BLOCK - 1) // I_BLOCK
    across_k: tl.constexpr = (num_outputs + K_BLOCK - 1) // K_BLOCK
    groups: tl.constexpr = (num_inputs + GROUP - 1) // GROUP
    program = tl.program_id(0)
    first_i = (program % across_i) * I_BLOCK
    i = first_i + tl.arange(0, I_BLOCK)
    program = program // across_i
    first_k = (program % across_k) * K_BLOCK
    k = first_k + tl.arange(0, K_BLOCK)
    row = (program // across_k).to(tl.int64)
    u_at = gradients + (row * u_entries + k[:, None]) * B_PAD
    p_at = products + (row * p_entries + i[:, None]) * B_PAD
    factors_at = factors + (row * groups + first_i // GROUP) * B_PAD
    begin = tl.load(offsets + row)
    if ALIGNED:
        begin = tl.multiple_of(begin, 16)
    counts = tl.zeros([K_BLOCK, I_BLOCK], tl.float32)
    for start in range(0, B_PAD, B_BLOCK):
        b = start + tl.arange(0, B_BLOCK)[None, :]
        u1 = tl.load(u_at + b)
        p1 = tl.load(p_at + b)
        u2, u3, p2, p3 = u1, u1, p1, p1
        if PLANES >= 2:
            u2 = tl.load(u_at + b + u_plane)
            p2 = tl.load(p_at + b + p_plane)
        if PLANES == 3:
            u3 = tl.load(u_at + b + 2 * u_plane)
            p3 = tl.load(p_at + b + 2 * p_plane)
        if groups > 1:
            # The groups were divided by powers of two of their own.
            factor = tl.load(factors_at + b)
            u1, u2, u3 = times(u1, factor), times(u2, factor), times(u3, factor)
        counts += dot_of_planes(u1, u2, u3, tl.trans(p1), tl.trans(p2), tl.trans(p3), PLANES)
    own = (k[:, None] < num_outputs) & (i[None, :] < num_inputs)
    at = weight + begin + (k[:, None] * num_inputs + i[None, :])
    w = tl.load(at, mask=own, other=0.0)
    flow = tl.zeros([K_BLOCK], tl.float32)
    if STEP:
        for block in range(blocks):
            flow += tl.load(totals + (row * blocks + block) * u_entries + k)
    w = changed(w, counts, flow[:, None], own, step_size, pseudo, num_inputs, floor, across_i == 1,
                STEP, PRIOR)  # fmt: skip
    tl.store(at, w, mask=own)
    if NORMALIZE:
        tile = row * across_k + first_k // K_BLOCK
        rows += tile * (across_i * K_BLOCK) + tl.arange(0, K_BLOCK)
        tl.store(rows + (first_i // I_BLOCK) * K_BLOCK, tl.sum(tl.where(own, w, 0.0), 1))
        tl.debug_barrier()
        # Whoever comes last divides: most of these weights are in the cache still.
        if tl.atomic_add(counters + tile, 1, sem="acq_rel") == across_i - 1:
            _divide(weight + begin, rows, k, num_inputs, num_outputs, across_i, K_BLOCK, I_BLOCK)


@triton.jit
def _divide(
    weight, rows, k, num_inputs: tl.constexpr, num_outputs: tl.constexpr, across_i: tl.constexpr,
    K_BLOCK: tl.constexpr, I_BLOCK: tl.constexpr,
):  # fmt: skip
    """Divide rows of weights by what they add up to: rounding must not add up over steps."""
    total = tl.zeros([K_BLOCK], tl.float32)
    for part in range(across_i):
        total += tl.load(rows + part * K_BLOCK)
    factor = 1.0 / tl.maximum(total, TINY)[:, None]
    for start in range(0, num_inputs, I_BLOCK):
        i = start + tl.arange(0, I_BLOCK)[None, :]
        own = (k[:, None] < num_outputs) & (i < num_inputs)
        at = weight + (k[:, None] * num_inputs + i)
        tl.store(at, tl.load(at, mask=own, other=0.0) * factor, mask=own)
