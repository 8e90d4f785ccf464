"""The mixing layer on a GPU: element-wise mixtures of the simple sums of one region (appendix B).

Region r has the children ``children[ends[r]:ends[r + 1]]``, and ``weight[edge, k]`` belongs to
one of them. A child has this one parent, so its flow is written, not added; summed over the batch
it is the count n of its weight (eq. 6).
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.torch import Nodes
from einet.kernels.triton.products import TINY, log_of
from einet.kernels.update import RELATIVE_FLOOR

__all__ = ["backward", "forward", "statistics", "step"]

# Cells of a tile, outputs times samples.
_TILE = 4096


def _tiles(outputs: int, batch: int) -> dict:
    K = triton.next_power_of_2(outputs)
    block = min(triton.next_power_of_2(batch), 256, max(16, _TILE // K))
    return {"K": K, "B_BLOCK": block, "num_warps": 4 if K * block > 512 else 1}


def forward(
    weight: Float[Tensor, "edges K"],
    nodes: Nodes,
    children: Int[Tensor, " edges"],
    ends: Int[Tensor, " regions_1"],
    out: Nodes,
) -> None:
    """``out = (v, m)`` of the mixtures."""
    batch, outputs = nodes.v.shape[-1], weight.shape[1]
    how = _tiles(outputs, batch)
    _forward[(ends.shape[0] - 1, triton.cdiv(batch, how["B_BLOCK"]))](
        weight, nodes.v, nodes.m, children, ends, out.v, out.m, out.peak,
        batch, nodes.v.stride(0), nodes.v.stride(1), out.v.stride(0), out.v.stride(1), outputs,
        **how,
    )  # fmt: skip


@triton.jit
def _scale(m, children, first, last, B, b, inside):
    """The largest log-scale of a region's children; 0 where all of them are impossible."""
    largest = tl.full([b.shape[0]], float("-inf"), tl.float64)
    for edge in range(first, last):
        node = tl.load(children + edge)
        scale = tl.load(m + node * B + b, mask=inside, other=float("-inf"))
        largest = tl.maximum(largest, scale)
    return largest, tl.where(largest == float("-inf"), 0.0, largest)


@triton.jit
def _forward(
    weight, v, m, children, ends, out_v, out_m, out_peak,
    B, v_node, v_k, out_node, out_k, num_outputs,
    K: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    region = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * B_BLOCK + tl.arange(0, B_BLOCK)
    k = tl.arange(0, K)
    inside = b < B
    here = (k[:, None] < num_outputs) & inside[None, :]
    first, last = tl.load(ends + region), tl.load(ends + region + 1)
    largest, shift = _scale(m, children, first, last, B, b, inside)
    sums = tl.zeros([K, B_BLOCK], tl.float32)
    for edge in range(first, last):
        node = tl.load(children + edge)
        scale = tl.load(m + node * B + b, mask=inside, other=float("-inf"))
        relative = tl.exp(scale - shift).to(tl.float32)
        w = tl.load(weight + edge * num_outputs + k, mask=k < num_outputs, other=0.0)
        value = tl.load(v + node * v_node + k[:, None] * v_k + b[None, :], mask=here, other=0.0)
        sums += w[:, None] * value * relative[None, :]
    peak = tl.max(sums, 0)
    out_at = out_v + region * out_node + k[:, None] * out_k + b[None, :]
    tl.store(out_at, sums / tl.maximum(peak, TINY)[None, :], mask=here)
    tl.store(out_peak + region * B + b, peak, mask=inside)
    tl.store(out_m + region * B + b, largest + log_of(peak), mask=inside)


def backward(
    weight: Float[Tensor, "edges K"],
    nodes: Nodes,
    children: Int[Tensor, " edges"],
    ends: Int[Tensor, " regions_1"],
    sums: Nodes,
    flow: Float[Tensor, "regions K batch"],
    child_flow: Float[Tensor, "nodes K_max batch"],
) -> None:
    """Write the flows into all children."""
    batch, outputs = nodes.v.shape[-1], weight.shape[1]
    how = _tiles(outputs, batch)
    _backward[(ends.shape[0] - 1, triton.cdiv(batch, how["B_BLOCK"]))](
        weight, nodes.v, nodes.m, children, ends, sums.v, sums.peak, flow, child_flow,
        batch, nodes.v.stride(0), nodes.v.stride(1), sums.v.stride(0), sums.v.stride(1),
        flow.stride(0), flow.stride(1), child_flow.stride(0), child_flow.stride(1), outputs,
        **how,
    )  # fmt: skip


@triton.jit
def _backward(
    weight, v, m, children, ends, sum_v, sum_peak, flow, child_flow,
    B, v_node, v_k, sum_node, sum_k, flow_node, flow_k, child_node, child_k, num_outputs,
    K: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    region = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * B_BLOCK + tl.arange(0, B_BLOCK)
    k = tl.arange(0, K)
    inside = b < B
    here = (k[:, None] < num_outputs) & inside[None, :]
    first, last = tl.load(ends + region), tl.load(ends + region + 1)
    _, shift = _scale(m, children, first, last, B, b, inside)
    peak = tl.load(sum_peak + region * B + b, mask=inside, other=0.0)
    sum_at = sum_v + region * sum_node + k[:, None] * sum_k + b[None, :]
    sums = tl.load(sum_at, mask=here, other=0.0) * peak[None, :]
    flow_at = flow + region * flow_node + k[:, None] * flow_k + b[None, :]
    u = tl.load(flow_at, mask=here, other=0.0) / tl.where(sums > 0, sums, 1.0)
    u = tl.where(sums > 0, u, 0.0)
    for edge in range(first, last):
        node = tl.load(children + edge)
        scale = tl.load(m + node * B + b, mask=inside, other=float("-inf"))
        relative = tl.exp(scale - shift).to(tl.float32)
        w = tl.load(weight + edge * num_outputs + k, mask=k < num_outputs, other=0.0)
        value = tl.load(v + node * v_node + k[:, None] * v_k + b[None, :], mask=here, other=0.0)
        share = w[:, None] * value * relative[None, :] * u
        child_at = child_flow + node * child_node + k[:, None] * child_k + b[None, :]
        tl.store(child_at, share, mask=here)


# -- statistics and the M-step ------------------------------------------------------------------


def statistics(
    weight: Float[Tensor, "edges K"],
    children: Int[Tensor, " edges"],
    child_flow: Float[Tensor, "nodes K_max batch"],
    into: Float[Tensor, "edges K"],
) -> None:
    """Add ∂log P/∂w to a tensor shaped like the weights."""
    _sum_flows(children, child_flow, weight, into, True)


def step(
    weight: Float[Tensor, "edges K"],
    children: Int[Tensor, " edges"],
    ends: Int[Tensor, " regions_1"],
    child_flow: Float[Tensor, "nodes K_max batch"],
    step_size: Float[Tensor, ""],
) -> None:
    """Move the weights by a step of stochastic EM, in place (see kernels.update.step_)."""
    counts = weight.new_empty(weight.shape)
    _sum_flows(children, child_flow, weight, counts, False)
    outputs = weight.shape[1]
    grid = (ends.shape[0] - 1,)
    _step[grid](
        weight, counts, ends, step_size, outputs, RELATIVE_FLOOR, K=triton.next_power_of_2(outputs)
    )


def _sum_flows(
    children: Tensor, child_flow: Tensor, weight: Tensor, into: Tensor, relative: bool
) -> None:
    batch, outputs = child_flow.shape[-1], weight.shape[1]
    _counts[(children.shape[0],)](
        children, child_flow, weight, into, batch, child_flow.stride(0), child_flow.stride(1),
        outputs, RELATIVE=relative, **_tiles(outputs, batch),
    )  # fmt: skip


@triton.jit
def _counts(
    children, child_flow, weight, into, B, child_node, child_k, num_outputs,
    RELATIVE: tl.constexpr, K: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    edge = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, K)
    at = child_flow + tl.load(children + edge) * child_node + k[:, None] * child_k
    total = tl.zeros([K, B_BLOCK], tl.float32)
    for start in range(0, B, B_BLOCK):
        b = start + tl.arange(0, B_BLOCK)
        here = (k[:, None] < num_outputs) & (b[None, :] < B)
        total += tl.load(at + b[None, :], mask=here, other=0.0)
    count = tl.sum(total, 1)
    here = k < num_outputs
    if RELATIVE:
        w = tl.load(weight + edge * num_outputs + k, mask=here, other=1.0)
        count = tl.load(into + edge * num_outputs + k, mask=here, other=0.0) + count / w
    tl.store(into + edge * num_outputs + k, count, mask=here)


@triton.jit
def _step(weight, counts, ends, step_size, num_outputs, relative_floor, K: tl.constexpr):
    region = tl.program_id(0)
    k = tl.arange(0, K)
    here = k < num_outputs
    first, last = tl.load(ends + region), tl.load(ends + region + 1)
    size = tl.load(step_size).to(tl.float32)
    floor = relative_floor / (last - first).to(tl.float32)
    total = tl.zeros([K], tl.float32)
    for edge in range(first, last):
        total += tl.load(counts + edge * num_outputs + k, mask=here, other=0.0)
    raised = tl.zeros([K], tl.float32)
    for edge in range(first, last):
        n = tl.load(counts + edge * num_outputs + k, mask=here, other=0.0)
        raised += tl.maximum(n, total * floor)
    raised = tl.maximum(raised, TINY)
    for edge in range(first, last):
        n = tl.load(counts + edge * num_outputs + k, mask=here, other=0.0)
        w = tl.load(weight + edge * num_outputs + k, mask=here, other=0.0)
        target = tl.maximum(n, total * floor) / raised
        new = tl.where(total > 0, w + size * (target - w), w)
        tl.store(weight + edge * num_outputs + k, new, mask=here)
