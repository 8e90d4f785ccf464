"""The einsum layer forwards on a GPU.

With :math:`T_{ik} = \\sum_j W_{kij} v'_j` the sums are :math:`S_k = \\sum_i v_i T_{ik}` (eq. 5): a
product of weights with *one* child's values on tensor cores, then a multiplication in registers.
An outer product never exists, not even there.

The kernels of this package address nodes in the ``[node, K, batch]`` buffers by number. They use no
atomics, so that results are the same every time.
"""

# pyright: reportArgumentType=false, reportCallIssue=false

from dataclasses import dataclass

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.products import PRECISIONS, TINY, dot, log_of, padded

__all__ = ["EinsumEdges", "forward", "is_narrow", "narrow_tiles"]


@dataclass
class EinsumEdges:
    """The two children of each of L sums: I entries on the left, J on the right.

    ``right`` is None where the second factor is the constant 1 (J = 1). Nodes with numbers below
    ``num_leaf_nodes`` are leaves.
    """

    left: Int[Tensor, " L"]
    right: Int[Tensor, " L"] | None
    num_left: int
    num_right: int
    num_leaf_nodes: int = 0

    @property
    def right_or_left(self) -> Tensor:
        return self.left if self.right is None else self.right


def forward(
    weight: Float[Tensor, "L K_out IJ"],
    nodes: Nodes,
    edges: EinsumEdges,
    out: Nodes,
    precision: str,
) -> None:
    """``out = (v, m)`` of the sums over outer products of their children's values."""
    num, outputs, _ = weight.shape
    batch = nodes.v.shape[-1]
    if is_narrow(outputs, edges):
        kernel, tiles = _forward_narrow, narrow_tiles(edges)
    else:
        kernel, tiles = _forward, _forward_tiles(num, outputs, edges.num_right, batch, precision)
    kernel[(num * triton.cdiv(batch, tiles["B_BLOCK"]),)](
        weight, nodes.v, nodes.m, edges.left, edges.right_or_left, out.v, out.m, out.peak,
        batch, nodes.v.stride(0), nodes.v.stride(1), out.v.stride(0), out.v.stride(1),
        edges.num_left, edges.num_right, outputs,
        UNARY=edges.right is None, PRECISION=PRECISIONS[precision], **tiles,
    )  # fmt: skip


def _forward_tiles(num: int, outputs: int, right: int, batch: int, precision: str) -> dict:
    """Sizes of tiles, as measured on an H200."""
    K, J = padded(outputs), padded(right)
    tiles = {"K": K, "J_BLOCK": min(J, 64 if K <= 128 else 32)}
    if K <= 16 and J <= 64:
        if num * batch >= 1 << 19:
            return {**tiles, "B_BLOCK": 256, "num_warps": 4, "STAGES": 3}
        return {**tiles, "B_BLOCK": 64, "num_warps": 2, "STAGES": 3}
    if K <= 32:
        block = 128 if num * batch >= 1 << 17 else 64
        return {**tiles, "B_BLOCK": block, "num_warps": 4, "STAGES": 3}
    if K <= 64:
        block = 128 if precision == "medium" else 64
        return {**tiles, "B_BLOCK": block, "num_warps": 4, "STAGES": 3}
    if K <= 128:
        # A program has a multiprocessor for itself: few of them are better cut smaller.
        block = 64 if num * triton.cdiv(batch, 64) >= 256 else 32
        return {**tiles, "B_BLOCK": block, "num_warps": 8, "STAGES": 3}
    return {**tiles, "B_BLOCK": 32, "num_warps": 8, "STAGES": 1}


@triton.jit
def _forward(
    weight, v, m, left, right, out_v, out_m, out_peak,
    B, v_node, v_k, out_node, out_k,
    num_left: tl.constexpr, num_right: tl.constexpr, num_outputs: tl.constexpr,
    UNARY: tl.constexpr, PRECISION: tl.constexpr,
    K: tl.constexpr, J_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(B, B_BLOCK)
    row = tl.program_id(0) // blocks
    b = (tl.program_id(0) % blocks) * B_BLOCK + tl.arange(0, B_BLOCK)
    inside = b < B
    row64 = row.to(tl.int64)
    a_node, b_node = tl.load(left + row), tl.load(right + row)
    k = tl.arange(0, K)
    weight += row64 * num_outputs * num_left * num_right
    sums = tl.zeros([K, B_BLOCK], tl.float32)
    for j_start in range(0, num_right, J_BLOCK):
        j = j_start + tl.arange(0, J_BLOCK)
        j_here = (j[:, None] < num_right) & inside[None, :]
        if UNARY:
            v_right = tl.where(j_here, 1.0, 0.0)
        else:
            right_at = v + b_node * v_node + j[:, None] * v_k + b[None, :]
            v_right = tl.load(right_at, mask=j_here, other=0.0)
        w_at = weight + k[:, None] * (num_left * num_right) + j[None, :]
        w_here = (k[:, None] < num_outputs) & (j[None, :] < num_right)
        for i in tl.range(0, num_left, num_stages=STAGES):
            v_left = tl.load(v + a_node * v_node + i * v_k + b, mask=inside, other=0.0)
            w = tl.load(w_at + i * num_right, mask=w_here, other=0.0)
            # From zero each time: long sums within tensor cores are cut off, not rounded.
            term = dot(w, v_right, tl.zeros([K, B_BLOCK], tl.float32), PRECISION)
            sums += term * v_left[None, :]
    scale = tl.load(m + a_node * B + b, mask=inside, other=0.0)
    if not UNARY:
        scale += tl.load(m + b_node * B + b, mask=inside, other=0.0)
    peak = tl.max(sums, 0)
    value = sums / tl.maximum(peak, TINY)[None, :]
    out_at = out_v + row64 * out_node + k[:, None] * out_k + b[None, :]
    tl.store(out_at, value, mask=(k[:, None] < num_outputs) & inside[None, :])
    tl.store(out_peak + row64 * B + b, peak, mask=inside)
    tl.store(out_m + row64 * B + b, scale + log_of(peak), mask=inside)


# -- few outputs, as at the root ------------------------------------------------------------------


def is_narrow(outputs: int, edges: EinsumEdges) -> bool:
    """Whether a tile holds the entries of a child better than the outputs."""
    return 4 * outputs <= edges.num_left and max(edges.num_left, edges.num_right) <= 128


def narrow_tiles(edges: EinsumEdges) -> dict:
    return {
        "LEFT": padded(edges.num_left),
        "RIGHT": padded(edges.num_right),
        "B_BLOCK": 16 if edges.num_left > 16 else 32,
        "num_warps": 8 if edges.num_left > 64 else 4 if edges.num_left > 32 else 2,
    }


@triton.jit
def _forward_narrow(
    weight, v, m, left, right, out_v, out_m, out_peak,
    B, v_node, v_k, out_node, out_k,
    num_left: tl.constexpr, num_right: tl.constexpr, num_outputs: tl.constexpr,
    UNARY: tl.constexpr, PRECISION: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    """One product for each output, with the left child's entries as rows."""
    blocks = tl.cdiv(B, B_BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    b = (tl.program_id(0) % blocks) * B_BLOCK + tl.arange(0, B_BLOCK)[None, :]
    inside = b < B
    a_node, b_node = tl.load(left + row), tl.load(right + row)
    i, j = tl.arange(0, LEFT)[:, None], tl.arange(0, RIGHT)[:, None]
    v_left = tl.load(v + a_node * v_node + i * v_k + b, mask=(i < num_left) & inside, other=0.0)
    v_right = tl.where((j < num_right) & inside, 1.0, 0.0)
    if not UNARY:
        right_at = v + b_node * v_node + j * v_k + b
        v_right = tl.load(right_at, mask=(j < num_right) & inside, other=0.0)
    j = tl.arange(0, RIGHT)[None, :]
    w_at = weight + row * (num_outputs * num_left * num_right) + i * num_right + j
    w_here = (i < num_left) & (j < num_right)
    out_at = out_v + row * out_node + b
    peak = tl.zeros([1, B_BLOCK], tl.float32)
    value = tl.zeros([1, B_BLOCK], tl.float32)
    for k in range(num_outputs):
        w = tl.load(w_at + k * (num_left * num_right), mask=w_here, other=0.0)
        term = dot(w, v_right, tl.zeros([LEFT, B_BLOCK], tl.float32), PRECISION)
        value = tl.sum(term * v_left, 0, keep_dims=True)
        peak = tl.maximum(peak, value)
        if num_outputs > 1:
            tl.store(out_at + k * out_k, value, mask=inside)
    if num_outputs > 1:
        tl.debug_barrier()
        for k in range(num_outputs):
            value = tl.load(out_at + k * out_k, mask=inside, other=0.0)
            tl.store(out_at + k * out_k, value / tl.maximum(peak, TINY), mask=inside)
    else:
        tl.store(out_at, value / tl.maximum(peak, TINY), mask=inside)
    scale = tl.load(m + a_node * B + b, mask=inside, other=0.0)
    if not UNARY:
        scale += tl.load(m + b_node * B + b, mask=inside, other=0.0)
    tl.store(out_peak + row * B + b, peak, mask=inside)
    tl.store(out_m + row * B + b, scale + log_of(peak), mask=inside)
