"""The einsum layer backwards on a GPU: flows from sums to their children.

With :math:`u = \\partial \\log P / \\partial S`, one product :math:`h_{ij} = \\sum_k W_{kij} u_k`
serves both children: the flows are :math:`v_i \\sum_j v'_j h_{ij}` to the left and
:math:`v'_j \\sum_i v_i h_{ij}` to the right. A child that several sums share gets its flows added
up in a fixed order.
"""

# pyright: reportArgumentType=false, reportCallIssue=false

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.torch import Nodes
from einet.kernels.triton.einsum import Edges
from einet.kernels.triton.products import PRECISIONS, dot, padded

__all__ = ["add_flows", "backward"]


def backward(
    weight: Float[Tensor, "L K_out IJ"],
    nodes: Nodes,
    edges: Edges,
    sums: Nodes,
    flow: Float[Tensor, "L K_out batch"],
    child_flow: Float[Tensor, "rows K batch"],
    rows: tuple[Tensor, Tensor],
    add: tuple[Tensor, Tensor],
    precision: str,
) -> Float[Tensor, "L blocks K_out"]:
    """Flows into the children; ``flow`` becomes u = ∂log P/∂S, and its sums over b are returned.

    Args:
        weight, nodes, edges: The layer's weights, and where its children are.
        sums: The values it computed.
        flow: The flows into its own nodes; overwritten.
        child_flow: Where flows into the children go: ``rows`` names one row for each left and
            right child, and ``add`` says where to add to what is there (1) or to write (0).
        precision: The precision mode.
    """
    num, outputs, _ = weight.shape
    batch = nodes.v.shape[-1]
    how = _backward_tiles(outputs, edges.num_right, precision)
    blocks = triton.cdiv(batch, how["B_BLOCK"])
    totals = weight.new_empty(num, blocks, outputs)
    _backward[(num * blocks,)](
        weight, nodes.v, edges.left, edges.right_or_left, sums.v, sums.peak, flow, totals,
        child_flow, rows[0], rows[1], add[0], add[1],
        batch, nodes.v.stride(0), nodes.v.stride(1), sums.v.stride(0), sums.v.stride(1),
        flow.stride(0), flow.stride(1), child_flow.stride(0), child_flow.stride(1),
        edges.num_left, edges.num_right, outputs,
        UNARY=edges.right is None, PRECISION=PRECISIONS[precision], **how,
    )  # fmt: skip
    return totals


def _backward_tiles(outputs: int, right: int, precision: str) -> dict:
    K, J = padded(outputs), padded(right)
    J_BLOCK, K_BLOCK = min(J, 64), min(K, 64)
    how = {"J_BLOCK": J_BLOCK, "K_BLOCK": K_BLOCK, "ONE": K <= 64 and J <= 64}
    stages = 4 if right % 16 == 0 else 1
    if J_BLOCK <= 16:
        return {**how, "B_BLOCK": 64, "num_warps": 2, "STAGES": 3, "BY_ROW": True}
    if J_BLOCK == 64 and K_BLOCK == 64 and precision == "medium":
        return {**how, "B_BLOCK": 128, "num_warps": 8, "STAGES": stages, "BY_ROW": True}
    return {**how, "B_BLOCK": 64, "num_warps": 4, "STAGES": 3, "BY_ROW": False}


@triton.jit
def _backward(
    weight, v, left, right, sum_v, sum_peak, flow, totals,
    child_flow, left_row, right_row, left_add, right_add,
    B, v_node, v_k, sum_node, sum_k, flow_node, flow_k, child_node, child_k,
    num_left, num_right, num_outputs,
    UNARY: tl.constexpr, PRECISION: tl.constexpr, ONE: tl.constexpr, BY_ROW: tl.constexpr,
    K_BLOCK: tl.constexpr, J_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """With BY_ROW samples are the rows of all tiles, otherwise their columns.

    ONE says that one block holds all outputs and all entries of the right child.
    """
    blocks = tl.cdiv(B, B_BLOCK)
    row = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    b = block * B_BLOCK + tl.arange(0, B_BLOCK)
    inside = b < B
    row64 = row.to(tl.int64)
    v_left_at = v + tl.load(left + row) * v_node + b
    v_right_at = v + tl.load(right + row) * v_node
    to_left = child_flow + tl.load(left_row + row) * child_node + b
    to_right = child_flow + tl.load(right_row + row) * child_node
    weight += row64 * num_outputs * num_left * num_right
    peak = tl.load(sum_peak + row64 * B + b, mask=inside, other=0.0)
    sum_v += row64 * sum_node
    flow += row64 * flow_node
    totals += (row64 * blocks + block) * num_outputs
    u = _upper(sum_v, flow, totals, peak, b, inside, 0, sum_k, flow_k, num_outputs, K_BLOCK, BY_ROW)
    if not ONE:
        for k_start in range(K_BLOCK, num_outputs, K_BLOCK):
            _upper(
                sum_v, flow, totals, peak, b, inside, k_start, sum_k, flow_k, num_outputs,
                K_BLOCK, BY_ROW,
            )  # fmt: skip
        tl.debug_barrier()
    add_left = tl.load(left_add + row) != 0
    add_right = (tl.load(right_add + row) != 0) & (not UNARY)
    for j_start in range(0, num_right, J_BLOCK):
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
            if ONE:
                h = _below(
                    weight + i * num_right,
                    u,
                    j,
                    0,
                    num_left,
                    num_right,
                    num_outputs,
                    PRECISION,
                    K_BLOCK,
                    BY_ROW,
                )
            else:
                h = tl.zeros_like(total)
                for k_start in range(0, num_outputs, K_BLOCK):
                    k = k_start + tl.arange(0, K_BLOCK)
                    if BY_ROW:
                        u_at = flow + k[None, :] * flow_k + b[:, None]
                        u_here = (k[None, :] < num_outputs) & inside[:, None]
                    else:
                        u_at = flow + k[:, None] * flow_k + b[None, :]
                        u_here = (k[:, None] < num_outputs) & inside[None, :]
                    some = tl.load(u_at, mask=u_here, other=0.0)
                    h += _below(
                        weight + i * num_right, some, j, k_start, num_left, num_right,
                        num_outputs, PRECISION, K_BLOCK, BY_ROW,
                    )  # fmt: skip
            h *= v_right
            if BY_ROW:
                total += h * v_left[:, None]
                share = tl.sum(h, 1) * v_left
            else:
                total += h * v_left[None, :]
                share = tl.sum(h, 0) * v_left
            before = inside & (add_left | (j_start > 0))
            share += tl.load(to_left + i * child_k, mask=before, other=0.0)
            tl.store(to_left + i * child_k, share, mask=inside)
        if not UNARY:
            if BY_ROW:
                right_at = to_right + j[None, :] * child_k + b[:, None]
            else:
                right_at = to_right + j[:, None] * child_k + b[None, :]
            total += tl.load(right_at, mask=j_here & add_right, other=0.0)
            tl.store(right_at, total, mask=j_here)
        if not ONE:
            tl.debug_barrier()


@triton.jit
def _upper(
    sum_v, flow, totals, peak, b, inside, k_start, sum_k, flow_k, num_outputs,
    K_BLOCK: tl.constexpr, BY_ROW: tl.constexpr,
):  # fmt: skip
    """u of some outputs, written over their flows; zero where the sums are."""
    k = k_start + tl.arange(0, K_BLOCK)
    if BY_ROW:
        here = (k[None, :] < num_outputs) & inside[:, None]
        sum_at = k[None, :] * sum_k + b[:, None]
        flow_at = flow + k[None, :] * flow_k + b[:, None]
        sums = tl.load(sum_v + sum_at, mask=here, other=0.0) * peak[:, None]
    else:
        here = (k[:, None] < num_outputs) & inside[None, :]
        sum_at = k[:, None] * sum_k + b[None, :]
        flow_at = flow + k[:, None] * flow_k + b[None, :]
        sums = tl.load(sum_v + sum_at, mask=here, other=0.0) * peak[None, :]
    f = tl.load(flow_at, mask=here, other=0.0)
    tl.store(totals + k, tl.sum(f, 0 if BY_ROW else 1), mask=k < num_outputs)
    u = tl.where(sums > 0, f / tl.where(sums > 0, sums, 1.0), 0.0)
    tl.store(flow_at, u, mask=here)
    return u


@triton.jit
def _below(
    weight, u, j, k_start, num_left, num_right, num_outputs,
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


def add_flows(
    parts: Float[Tensor, "edges K batch"],
    order: Int[Tensor, " edges"],
    ends: Int[Tensor, " children_1"],
    children: Int[Tensor, " children"],
    add: Int[Tensor, " children"],
    entries: int,
    flow: Float[Tensor, "nodes K batch"],
) -> None:
    """Sum the flows of each child's edges, in a fixed order, where children are shared.

    The edges of child c are ``order[ends[c]:ends[c + 1]]``.
    """
    batch = flow.shape[-1]
    block = 256
    grid = (children.shape[0], entries, triton.cdiv(batch, block))
    _add_flows[grid](
        parts, order, ends, children, add, flow, batch,
        parts.stride(0), parts.stride(1), flow.stride(0), flow.stride(1), B_BLOCK=block,
    )  # fmt: skip


@triton.jit
def _add_flows(
    parts, order, ends, children, add, flow, B, part_row, part_k, flow_node, flow_k,
    B_BLOCK: tl.constexpr,
):  # fmt: skip
    child = tl.program_id(0)
    k = tl.program_id(1)
    b = tl.program_id(2) * B_BLOCK + tl.arange(0, B_BLOCK)
    inside = b < B
    at = flow + tl.load(children + child) * flow_node + k * flow_k + b
    total = tl.load(at, mask=inside & (tl.load(add + child) != 0), other=0.0)
    for edge in range(tl.load(ends + child), tl.load(ends + child + 1)):
        row = tl.load(order + edge)
        total += tl.load(parts + row * part_row + k * part_k + b, mask=inside, other=0.0)
    tl.store(at, total, mask=inside)
