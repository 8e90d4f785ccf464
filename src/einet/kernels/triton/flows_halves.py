"""The einsum layer backwards for 65 to 128 outputs: see ``flows.py`` for what is computed.

All of u = ∂log P/∂S does not fit the registers of a program next to the weights, and reading it
anew for each entry of the left child takes longer than the products. So it is kept in two halves,
each an operand that tensor cores find in shared memory.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from einet.kernels.triton.products import TINY, dot, padded

__all__ = ["backward_halves", "halves_tiles"]

# Half of the outputs that are served.
_HALF = 64


def halves_tiles(outputs: int, right: int, like: Tensor) -> dict | None:
    """Sizes of tiles, as measured on an H200; None for layers, and GPUs, that are not served."""
    stages = _stages(_shared_memory(like.device))
    if not _HALF < outputs <= 2 * _HALF or not 32 < right <= 2 * _HALF or stages == 0:
        return None
    tiles = {"HALF": _HALF, "J_BLOCK": padded(right), "B_BLOCK": 64, "STAGES": stages}
    return tiles | {"num_warps": tiles["J_BLOCK"] // 16}


def _stages(room: int) -> int:
    """How many tiles of weights are on their way at a time in so many bytes of shared memory."""
    return 3 if room >= 200 << 10 else 2 if room >= 132 << 10 else 0


@cache
def _shared_memory(device: torch.device) -> int:
    if device.type != "cuda":
        return 1 << 20
    active: Any = triton.runtime.driver.active
    return active.utils.get_device_properties(device.index)["max_shared_mem"]


@triton.jit
def backward_halves(
    weight, v, left, right, sum_v, sum_peak, gradient, totals,
    into, left_row, right_row, left_add, right_add, num_leaf_nodes,
    B, v_node, v_k, sum_node, sum_k, g_node, g_k, into_node, into_k,
    num_left: tl.constexpr, num_right: tl.constexpr, num_outputs: tl.constexpr,
    UNARY: tl.constexpr, PRECISION: tl.constexpr,
    HALF: tl.constexpr, J_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One sum for a block of samples; the arguments are those of ``flows._backward``."""
    tl.static_assert(not UNARY, "a constant has one entry, and takes another kernel")
    blocks = tl.cdiv(B, B_BLOCK)
    row = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    b = block * B_BLOCK + tl.arange(0, B_BLOCK)
    inside = b < B
    row64 = row.to(tl.int64)
    a_node, b_node = tl.load(left + row), tl.load(right + row)
    peak = tl.load(sum_peak + row64 * B + b, mask=inside, other=0.0)
    factor = tl.where(peak > 0, 1.0 / tl.maximum(peak, TINY), 0.0)
    sum_v += row64 * sum_node + b[None, :]
    gradient += row64 * g_node + b[None, :]
    totals += (row64 * blocks + block) * num_outputs
    k = tl.arange(0, HALF)
    first = _half(sum_v, gradient, totals, factor, inside, k, sum_k, g_k, num_outputs)
    second = _half(sum_v, gradient, totals, factor, inside, k + HALF, sum_k, g_k, num_outputs)
    v_left_at = v + a_node * v_node + b
    to_left = into + tl.load(left_row + row) * into_node + b
    to_right = into + tl.load(right_row + row) * into_node
    weight += row64 * (num_outputs * num_left * num_right)
    add_left = tl.load(left_add + row) != 0
    add_right = tl.load(right_add + row) != 0
    options: tl.constexpr = num_left * num_right
    for j_start in tl.static_range(0, num_right, J_BLOCK):
        j = j_start + tl.arange(0, J_BLOCK)
        j_here = (j[:, None] < num_right) & inside[None, :]
        right_at = v + b_node * v_node + j[:, None] * v_k + b[None, :]
        v_right = tl.load(right_at, mask=j_here, other=0.0)
        total = tl.zeros([J_BLOCK, B_BLOCK], tl.float32)
        w_at = weight + k[None, :] * options + j[:, None]
        w_here = (k[None, :] < num_outputs) & (j[:, None] < num_right)
        more_here = (k[None, :] + HALF < num_outputs) & (j[:, None] < num_right)
        for i in tl.range(0, num_left, num_stages=STAGES):
            v_left = tl.load(v_left_at + i * v_k, mask=inside, other=0.0)
            w = tl.load(w_at + i * num_right, mask=w_here, other=0.0)
            h = dot(w, first, tl.zeros([J_BLOCK, B_BLOCK], tl.float32), PRECISION)
            w = tl.load(w_at + (i * num_right + HALF * options), mask=more_here, other=0.0)
            h = dot(w, second, h, PRECISION)
            total += h * v_left[None, :]
            share = tl.sum(h * v_right, 0)
            share *= tl.where(a_node < num_leaf_nodes, v_left, 1.0)
            before = inside & (add_left | (j_start > 0))
            share += tl.load(to_left + i * into_k, mask=before, other=0.0)
            tl.store(to_left + i * into_k, share, mask=inside)
        at = to_right + j[:, None] * into_k + b[None, :]
        total *= tl.where(b_node < num_leaf_nodes, v_right, 1.0)
        total += tl.load(at, mask=j_here & add_right, other=0.0)
        tl.store(at, total, mask=j_here)
        if num_right > J_BLOCK:
            # The next block adds to what this one has written for the left child.
            tl.debug_barrier()


@triton.jit
def _half(sum_v, gradient, totals, factor, inside, k, sum_k, g_k, num_outputs: tl.constexpr):
    """u of some outputs, 0 where the sums are; their flows over these samples are written."""
    here = (k[:, None] < num_outputs) & inside[None, :]
    value = tl.load(sum_v + k[:, None] * sum_k, mask=here, other=0.0)
    g = tl.load(gradient + k[:, None] * g_k, mask=here, other=0.0)
    tl.store(totals + k, tl.sum(g * value, 1), mask=k < num_outputs)
    return g * factor[None, :]
