"""The einsum layer backwards on a GPU: gradients of the log-likelihood from sums to their children.

With :math:`u = \\partial \\log P / \\partial S`, one product :math:`h_{ij} = \\sum_k W_{kij} u_k`
serves both children: the gradients of their values are :math:`\\sum_j v'_j h_{ij}` on the left and
:math:`\\sum_i v_i h_{ij}` on the right. Those of a sum's values v = S / peak, divided by the peak,
are u of that sum. Leaves get flows in their place, gradient times value: p_L of eq. (6). A child
that several sums share gets its gradients added up in a fixed order.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.einsum import EinsumEdges, is_narrow, narrow_tiles
from einet.kernels.triton.flows_halves import backward_halves, halves_tiles
from einet.kernels.triton.products import PRECISIONS, TINY, dot, padded, split

__all__ = ["add_up", "backward"]


def backward(
    weight: Float[Tensor, "L K_out IJ"],
    nodes: Nodes,
    edges: EinsumEdges,
    sums: Nodes,
    gradient: Float[Tensor, "L K_out batch"],
    into: Float[Tensor, "rows K batch"],
    rows: tuple[Tensor, Tensor],
    add: tuple[Tensor, Tensor],
    precision: str,
) -> Float[Tensor, "L blocks K_out"]:
    """Gradients (or flows) of the children; the flows of the sums, added up over b, are returned.

    Args:
        weight, nodes, edges: The layer's weights, and where its children are.
        sums: The values it computed.
        gradient: ∂log P/∂v of its own nodes.
        into: Where those of the children go: ``rows`` names one row for each left and right child,
            and ``add`` says where to add to what is there (1) or to write (0).
        precision: The precision mode.
    """
    num, outputs, _ = weight.shape
    batch = nodes.v.shape[-1]
    halves = halves_tiles(outputs, edges.num_right, weight)
    if is_narrow(outputs, edges):
        kernel, tiles = _backward_narrow, narrow_tiles(edges)
    elif halves is not None:
        kernel, tiles = backward_halves, halves
    else:
        kernel, tiles = _backward, _backward_tiles(num, outputs, edges.num_right, batch, precision)
        if tiles["TURNED"]:
            weight = _turned(weight)
    blocks = triton.cdiv(batch, tiles["B_BLOCK"])
    totals = weight.new_empty(num, blocks, outputs)
    kernel[(num * blocks,)](
        weight, nodes.v, edges.left, edges.right_or_left, sums.v, sums.peak, gradient, totals,
        into, rows[0], rows[1], add[0], add[1], edges.num_leaf_nodes,
        batch, nodes.v.stride(0), nodes.v.stride(1), sums.v.stride(0), sums.v.stride(1),
        gradient.stride(0), gradient.stride(1), into.stride(0), into.stride(1),
        edges.num_left, edges.num_right, outputs,
        UNARY=edges.right is None, PRECISION=PRECISIONS[precision], **tiles,
    )  # fmt: skip
    return totals


def _backward_tiles(num: int, outputs: int, right: int, batch: int, precision: str) -> dict:
    """Sizes of tiles, as measured on an H200.

    Tensor cores take tf32 weights as they are only where the outputs, over which the product sums,
    lie side by side. If weights need not be split, it pays to turn them round first.
    """
    J_BLOCK, K_BLOCK = min(padded(right), 64), min(padded(outputs), 64)
    tiles = {"J_BLOCK": J_BLOCK, "K_BLOCK": K_BLOCK, "STAGES": 3}
    tiles |= {"ONE": outputs <= 64 and right <= 64, "BY_ROW": False, "TURNED": False}
    if J_BLOCK <= 16:
        return {**tiles, "B_BLOCK": 64, "num_warps": 2, "BY_ROW": True}
    if J_BLOCK == 64 and K_BLOCK == 64:
        if precision == "medium":
            return {**tiles, "B_BLOCK": 64, "num_warps": 4, "BY_ROW": True}
        if precision == "high" and tiles["ONE"]:
            return {**tiles, "B_BLOCK": 64, "num_warps": 4, "BY_ROW": True, "TURNED": True}
        few = num * triton.cdiv(batch, 64) < 256
        if precision == "high" or (few and right % 16 == 0):
            return {**tiles, "B_BLOCK": 32, "num_warps": 4}
    return {**tiles, "B_BLOCK": 64, "num_warps": 4}


@triton.jit
def _backward(
    weight, v, left, right, sum_v, sum_peak, gradient, totals,
    into, left_row, right_row, left_add, right_add, num_leaf_nodes,
    B, v_node, v_k, sum_node, sum_k, g_node, g_k, into_node, into_k,
    num_left: tl.constexpr, num_right: tl.constexpr, num_outputs: tl.constexpr,
    UNARY: tl.constexpr, PRECISION: tl.constexpr,
    ONE: tl.constexpr, BY_ROW: tl.constexpr, TURNED: tl.constexpr,
    K_BLOCK: tl.constexpr, J_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """With BY_ROW samples are the rows of all tiles, otherwise their columns.

    ONE says that one block holds all outputs and all entries of the right child, TURNED that
    weights come as ``[L, IJ, K_out]``, rounded to tf32.
    """
    blocks = tl.cdiv(B, B_BLOCK)
    row = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    b = block * B_BLOCK + tl.arange(0, B_BLOCK)
    inside = b < B
    row64 = row.to(tl.int64)
    a_node, b_node = tl.load(left + row), tl.load(right + row)
    v_left_at = v + a_node * v_node + b
    v_right_at = v + b_node * v_node
    to_left = into + tl.load(left_row + row) * into_node + b
    to_right = into + tl.load(right_row + row) * into_node
    weight += row64 * (num_outputs * num_left * num_right)
    peak = tl.load(sum_peak + row64 * B + b, mask=inside, other=0.0)
    factor = tl.where(peak > 0, 1.0 / tl.maximum(peak, TINY), 0.0)
    sum_v += row64 * sum_node
    gradient += row64 * g_node
    totals += (row64 * blocks + block) * num_outputs
    for start in range(0, num_outputs, K_BLOCK):
        _total(sum_v, gradient, totals, b, inside, start, sum_k, g_k, num_outputs, K_BLOCK, BY_ROW)
    u = _upper(gradient, factor, b, inside, 0, g_k, num_outputs, K_BLOCK, BY_ROW)
    if TURNED:
        u, _ = split(u)
    add_left = tl.load(left_add + row) != 0
    add_right = tl.load(right_add + row) != 0
    for j_start in tl.static_range(0, num_right, J_BLOCK):
        j = j_start + tl.arange(0, J_BLOCK)
        if BY_ROW:
            j_here = (j[None, :] < num_right) & inside[:, None]
            j_at = j[None, :] * v_k + b[:, None]
            total = tl.zeros([B_BLOCK, J_BLOCK], tl.float32)
        else:
            j_here = (j[:, None] < num_right) & inside[None, :]
            j_at = j[:, None] * v_k + b[None, :]
            total = tl.zeros([J_BLOCK, B_BLOCK], tl.float32)
        if UNARY:
            v_right = tl.where(j_here, 1.0, 0.0)
        else:
            v_right = tl.load(v_right_at + j_at, mask=j_here, other=0.0)
        for i in tl.range(0, num_left, num_stages=STAGES):
            v_left = tl.load(v_left_at + i * v_k, mask=inside, other=0.0)
            w_at = weight + i * num_right
            if TURNED:
                k = tl.arange(0, K_BLOCK)[:, None]
                turned_at = weight + (i * num_right + j[None, :]) * num_outputs + k
                here = (k < num_outputs) & (j[None, :] < num_right)
                w = tl.load(turned_at, mask=here, other=0.0)
                h = dot(u, w, tl.zeros([B_BLOCK, J_BLOCK], tl.float32), 3)
            elif ONE:
                h = _below(
                    w_at, u, j, 0, num_left, num_right, num_outputs, PRECISION, K_BLOCK, BY_ROW
                )
            else:
                h = tl.zeros_like(total)
                for start in range(0, num_outputs, K_BLOCK):
                    some = _upper(
                        gradient, factor, b, inside, start, g_k, num_outputs, K_BLOCK, BY_ROW
                    )
                    h += _below(
                        w_at, some, j, start, num_left, num_right, num_outputs, PRECISION,
                        K_BLOCK, BY_ROW,
                    )  # fmt: skip
            if BY_ROW:
                total += h * v_left[:, None]
                share = tl.sum(h * v_right, 1)
            else:
                total += h * v_left[None, :]
                share = tl.sum(h * v_right, 0)
            share *= tl.where(a_node < num_leaf_nodes, v_left, 1.0)
            before = inside & (add_left | (j_start > 0))
            share += tl.load(to_left + i * into_k, mask=before, other=0.0)
            tl.store(to_left + i * into_k, share, mask=inside)
        if not UNARY:
            if BY_ROW:
                right_at = to_right + j[None, :] * into_k + b[:, None]
            else:
                right_at = to_right + j[:, None] * into_k + b[None, :]
            total *= tl.where(b_node < num_leaf_nodes, v_right, 1.0)
            total += tl.load(right_at, mask=j_here & add_right, other=0.0)
            tl.store(right_at, total, mask=j_here)
        if not ONE:
            tl.debug_barrier()


@triton.jit
def _backward_narrow(
    weight, v, left, right, sum_v, sum_peak, gradient, totals,
    into, left_row, right_row, left_add, right_add, num_leaf_nodes,
    B, v_node, v_k, sum_node, sum_k, g_node, g_k, into_node, into_k,
    num_left: tl.constexpr, num_right: tl.constexpr, num_outputs: tl.constexpr,
    UNARY: tl.constexpr, PRECISION: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    """For few outputs, as at the root: two products for each, W v' and Wᵀ v."""
    blocks = tl.cdiv(B, B_BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    b = block * B_BLOCK + tl.arange(0, B_BLOCK)[None, :]
    inside = b < B
    i, j = tl.arange(0, LEFT)[:, None], tl.arange(0, RIGHT)[:, None]
    i_here, j_here = (i < num_left) & inside, (j < num_right) & inside
    a_node, b_node = tl.load(left + row), tl.load(right + row)
    v_left = tl.load(v + a_node * v_node + i * v_k + b, mask=i_here, other=0.0)
    v_right = tl.where(j_here, 1.0, 0.0)
    if not UNARY:
        v_right = tl.load(v + b_node * v_node + j * v_k + b, mask=j_here, other=0.0)
    weight += row * (num_outputs * num_left * num_right)
    across, along = tl.arange(0, RIGHT)[None, :], tl.arange(0, LEFT)[None, :]
    w_at = weight + i * num_right + across
    w_here = (i < num_left) & (across < num_right)
    turned_at = weight + along * num_right + j
    turned_here = (along < num_left) & (j < num_right)
    peak = tl.load(sum_peak + row * B + b, mask=inside, other=0.0)
    factor = tl.where(peak > 0, 1.0 / tl.maximum(peak, TINY), 0.0)
    to_left = tl.zeros([LEFT, B_BLOCK], tl.float32)
    to_right = tl.zeros([RIGHT, B_BLOCK], tl.float32)
    for k in range(num_outputs):
        value = tl.load(sum_v + row * sum_node + k * sum_k + b, mask=inside, other=0.0)
        g = tl.load(gradient + row * g_node + k * g_k + b, mask=inside, other=0.0)
        u = g * factor
        tl.store(totals + (row * blocks + block) * num_outputs + k, tl.sum(tl.sum(g * value, 1), 0))
        w = tl.load(w_at + k * (num_left * num_right), mask=w_here, other=0.0)
        to_left += u * dot(w, v_right, tl.zeros([LEFT, B_BLOCK], tl.float32), PRECISION)
        if not UNARY:
            w = tl.load(turned_at + k * (num_left * num_right), mask=turned_here, other=0.0)
            to_right += u * dot(w, v_left, tl.zeros([RIGHT, B_BLOCK], tl.float32), PRECISION)
    left_at = into + tl.load(left_row + row) * into_node + i * into_k + b
    before = i_here & (tl.load(left_add + row) != 0)
    to_left *= tl.where(a_node < num_leaf_nodes, v_left, 1.0)
    to_left += tl.load(left_at, mask=before, other=0.0)
    tl.store(left_at, to_left, mask=i_here)
    if not UNARY:
        right_at = into + tl.load(right_row + row) * into_node + j * into_k + b
        before = j_here & (tl.load(right_add + row) != 0)
        to_right *= tl.where(b_node < num_leaf_nodes, v_right, 1.0)
        to_right += tl.load(right_at, mask=before, other=0.0)
        tl.store(right_at, to_right, mask=j_here)


@triton.jit
def _total(
    sum_v, gradient, totals, b, inside, start, sum_k, g_k,
    num_outputs: tl.constexpr, K_BLOCK: tl.constexpr, BY_ROW: tl.constexpr,
):  # fmt: skip
    """The flows of some outputs, summed over this block of samples."""
    k = start + tl.arange(0, K_BLOCK)
    if BY_ROW:
        here = (k[None, :] < num_outputs) & inside[:, None]
        value = tl.load(sum_v + k[None, :] * sum_k + b[:, None], mask=here, other=0.0)
        g = tl.load(gradient + k[None, :] * g_k + b[:, None], mask=here, other=0.0)
        tl.store(totals + k, tl.sum(g * value, 0), mask=k < num_outputs)
    else:
        here = (k[:, None] < num_outputs) & inside[None, :]
        value = tl.load(sum_v + k[:, None] * sum_k + b[None, :], mask=here, other=0.0)
        g = tl.load(gradient + k[:, None] * g_k + b[None, :], mask=here, other=0.0)
        tl.store(totals + k, tl.sum(g * value, 1), mask=k < num_outputs)


@triton.jit
def _upper(
    gradient, factor, b, inside, start, g_k,
    num_outputs: tl.constexpr, K_BLOCK: tl.constexpr, BY_ROW: tl.constexpr,
):  # fmt: skip
    """u of some outputs, zero where the sums are."""
    k = start + tl.arange(0, K_BLOCK)
    if BY_ROW:
        here = (k[None, :] < num_outputs) & inside[:, None]
        g = tl.load(gradient + k[None, :] * g_k + b[:, None], mask=here, other=0.0)
        u = g * factor[:, None]
    else:
        here = (k[:, None] < num_outputs) & inside[None, :]
        g = tl.load(gradient + k[:, None] * g_k + b[None, :], mask=here, other=0.0)
        u = g * factor[None, :]
    return u


@triton.jit
def _below(
    weight, u, j, k_start,
    num_left: tl.constexpr, num_right: tl.constexpr, num_outputs: tl.constexpr,
    PRECISION: tl.constexpr, K_BLOCK: tl.constexpr, BY_ROW: tl.constexpr,
):  # fmt: skip
    """h = Σ_k W u for one entry of the left child."""
    k = k_start + tl.arange(0, K_BLOCK)
    if BY_ROW:
        w_at = weight + k[:, None] * (num_left * num_right) + j[None, :]
        here = (k[:, None] < num_outputs) & (j[None, :] < num_right)
        w = tl.load(w_at, mask=here, other=0.0)
        h = dot(u, w, tl.zeros([u.shape[0], w.shape[1]], tl.float32), PRECISION)
    else:
        w_at = weight + k[None, :] * (num_left * num_right) + j[:, None]
        here = (k[None, :] < num_outputs) & (j[:, None] < num_right)
        w = tl.load(w_at, mask=here, other=0.0)
        h = dot(w, u, tl.zeros([w.shape[0], u.shape[1]], tl.float32), PRECISION)
    return h


def _turned(weight: Float[Tensor, "L K_out IJ"]) -> Float[Tensor, "L IJ K_out"]:
    """The weights rounded to tf32, with outputs last."""
    num, outputs, options = weight.shape
    turned = weight.new_empty(num, options, outputs)
    _turn[(num, triton.cdiv(options, 64))](
        weight, turned, options, outputs, K=padded(outputs), BLOCK=64, num_warps=8
    )
    return turned


@triton.jit
def _turn(weight, turned, length, num_outputs, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    k = tl.arange(0, K)[:, None]
    here = (k < num_outputs) & (at < length)
    w = tl.load(weight + (row * num_outputs + k) * length + at, mask=here, other=0.0)
    near, _ = split(w)
    tl.store(turned + (row * length + at) * num_outputs + k, near, mask=here)


def add_up(
    parts: Float[Tensor, "edges K batch"],
    order: Int[Tensor, " edges"],
    ends: Int[Tensor, " children_1"],
    children: Int[Tensor, " children"],
    add: Int[Tensor, " children"],
    entries: int,
    into: Float[Tensor, "nodes K batch"],
) -> None:
    """Sum the gradients of each child's edges, in a fixed order, where children are shared.

    The edges of child c are ``order[ends[c]:ends[c + 1]]``.
    """
    batch = into.shape[-1]
    block = 256
    grid = (children.shape[0], entries, triton.cdiv(batch, block))
    _add_up[grid](
        parts, order, ends, children, add, into, batch,
        parts.stride(0), parts.stride(1), into.stride(0), into.stride(1), B_BLOCK=block,
    )  # fmt: skip


@triton.jit
def _add_up(
    parts, order, ends, children, add, into, B, part_row, part_k, into_node, into_k,
    B_BLOCK: tl.constexpr,
):  # fmt: skip
    child = tl.program_id(0)
    k = tl.program_id(1)
    b = tl.program_id(2) * B_BLOCK + tl.arange(0, B_BLOCK)
    inside = b < B
    at = into + tl.load(children + child) * into_node + k * into_k + b
    total = tl.load(at, mask=inside & (tl.load(add + child) != 0), other=0.0)
    for edge in range(tl.load(ends + child), tl.load(ends + child + 1)):
        row = tl.load(order + edge)
        total += tl.load(parts + row * part_row + k * part_k + b, mask=inside, other=0.0)
    tl.store(at, total, mask=inside)
