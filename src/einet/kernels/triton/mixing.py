"""The mixing layer on a GPU: element-wise mixtures of the simple sums of one region (appendix B).

Region r has the children ``children[ends[r]:ends[r + 1]]``, and ``weight[edge, k]`` belongs to
one of them. A child has this one parent, so its gradient ∂log P/∂v is written, not added; times
its value and summed over the batch it is the count n of its weight (eq. 6).
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.products import TINY, log_of
from einet.kernels.update import RELATIVE_FLOOR

__all__ = ["backward", "forward", "statistics", "step"]

# Cells of a tile, outputs times samples, and times children where those fit in too.
_TILE = 4096


def _tiles(outputs: int, batch: int) -> dict:
    K = triton.next_power_of_2(outputs)
    block = min(triton.next_power_of_2(batch), 256, max(_fewest(K), _TILE // K))
    return {"K": K, "B_BLOCK": block, "num_warps": 4 if K * block > 512 else 1}


def _fewest(K: int) -> int:
    """The fewest samples of a tile: enough for whole pieces of memory, if registers allow it."""
    return max(1, min(16, 16384 // K))


def _tiles_of_children(outputs: int, batch: int, most: int) -> dict:
    """Tiles with a third axis, of some children: their loads need not wait for each other."""
    K = triton.next_power_of_2(outputs)
    C = min(triton.next_power_of_2(most), max(1, 256 // K), 16)
    block = min(triton.next_power_of_2(batch), max(_fewest(K), min(64, _TILE // (C * K))))
    return {"K": K, "C": C, "B_BLOCK": block, "num_warps": 4 if C * K * block > 1024 else 1}


def forward(
    weight: Float[Tensor, "edges K"],
    nodes: Nodes,
    children: Int[Tensor, " edges"],
    ends: Int[Tensor, " regions_1"],
    out: Nodes,
    most: int,
) -> None:
    """``out = (v, m)`` of the mixtures; no region has more than ``most`` children."""
    batch, outputs = nodes.v.shape[-1], weight.shape[1]
    tiles = _tiles_of_children(outputs, batch, most)
    _forward[(ends.shape[0] - 1, triton.cdiv(batch, tiles["B_BLOCK"]))](
        weight, nodes.v, nodes.m, children, ends, out.v, out.m, out.peak,
        batch, nodes.v.stride(0), nodes.v.stride(1), out.v.stride(0), out.v.stride(1), outputs,
        **tiles,
    )  # fmt: skip


@triton.jit
def _scale(m, children, first, last, B, b, inside, C: tl.constexpr):
    """The largest log-scale of a region's children, and 0 where all of them are impossible."""
    largest = tl.full(b.shape, float("-inf"), tl.float64)
    for start in range(first, last, C):
        edge = start + tl.arange(0, C)[:, None, None]
        node = tl.load(children + edge, mask=edge < last, other=0)
        scale = tl.load(m + node * B + b, mask=(edge < last) & inside, other=float("-inf"))
        largest = tl.maximum(largest, tl.max(scale, 0, keep_dims=True))
    return largest, tl.where(largest == float("-inf"), 0.0, largest)


@triton.jit
def _relative(m, node, here, shift, b, B):
    """exp(m − M) of some children."""
    scale = tl.load(m + node * B + b, mask=here, other=float("-inf"))
    return tl.exp(scale - shift).to(tl.float32)


@triton.jit
def _forward(
    weight, v, m, children, ends, out_v, out_m, out_peak,
    B, v_node, v_k, out_node, out_k, num_outputs,
    C: tl.constexpr, K: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    region = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * B_BLOCK + tl.arange(0, B_BLOCK)[None, None, :]
    k = tl.arange(0, K)[None, :, None]
    inside = b < B
    first, last = tl.load(ends + region), tl.load(ends + region + 1)
    largest, shift = _scale(m, children, first, last, B, b, inside, C)
    sums = tl.zeros([1, K, B_BLOCK], tl.float32)
    for start in range(first, last, C):
        edge = start + tl.arange(0, C)[:, None, None]
        node = tl.load(children + edge, mask=edge < last, other=0)
        relative = _relative(m, node, (edge < last) & inside, shift, b, B)
        here = (edge < last) & (k < num_outputs) & inside
        w = tl.load(weight + edge * num_outputs + k, mask=here, other=0.0)
        value = tl.load(v + node * v_node + k * v_k + b, mask=here, other=0.0)
        sums += tl.sum(w * value * relative, 0, keep_dims=True)
    peak = tl.max(sums, 1, keep_dims=True)
    out_at = out_v + region * out_node + k * out_k + b
    tl.store(out_at, sums / tl.maximum(peak, TINY), mask=(k < num_outputs) & inside)
    tl.store(out_peak + region * B + b, peak, mask=inside)
    tl.store(out_m + region * B + b, largest + log_of(peak), mask=inside)


def backward(
    weight: Float[Tensor, "edges K"],
    nodes: Nodes,
    children: Int[Tensor, " edges"],
    ends: Int[Tensor, " regions_1"],
    sums: Nodes,
    gradient: Float[Tensor, "regions K batch"],
    into: Float[Tensor, "nodes K_max batch"],
    most: int,
) -> None:
    """Write the gradients of all children's values; no region has more than ``most``."""
    batch, outputs = nodes.v.shape[-1], weight.shape[1]
    tiles = _tiles_of_children(outputs, batch, most)
    _backward[(ends.shape[0] - 1, triton.cdiv(batch, tiles["B_BLOCK"]))](
        weight, nodes.m, children, ends, sums.peak, gradient, into,
        batch, gradient.stride(0), gradient.stride(1), into.stride(0), into.stride(1), outputs,
        **tiles,
    )  # fmt: skip


@triton.jit
def _backward(
    weight, m, children, ends, sum_peak, gradient, into,
    B, g_node, g_k, into_node, into_k, num_outputs,
    C: tl.constexpr, K: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    region = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * B_BLOCK + tl.arange(0, B_BLOCK)[None, None, :]
    k = tl.arange(0, K)[None, :, None]
    inside = b < B
    own = (k < num_outputs) & inside
    first, last = tl.load(ends + region), tl.load(ends + region + 1)
    _, shift = _scale(m, children, first, last, B, b, inside, C)
    peak = tl.load(sum_peak + region * B + b, mask=inside, other=0.0)
    u = tl.load(gradient + region * g_node + k * g_k + b, mask=own, other=0.0)
    u *= tl.where(peak > 0, 1.0 / tl.maximum(peak, TINY), 0.0)
    for start in range(first, last, C):
        edge = start + tl.arange(0, C)[:, None, None]
        node = tl.load(children + edge, mask=edge < last, other=0)
        relative = _relative(m, node, (edge < last) & inside, shift, b, B)
        here = (edge < last) & own
        w = tl.load(weight + edge * num_outputs + k, mask=here, other=0.0)
        tl.store(into + node * into_node + k * into_k + b, w * relative * u, mask=here)


# -- statistics and the M-step ------------------------------------------------------------------


def statistics(
    weight: Float[Tensor, "edges K"],
    nodes: Nodes,
    children: Int[Tensor, " edges"],
    gradient: Float[Tensor, "nodes K_max batch"],
    into: Float[Tensor, "edges K"],
) -> None:
    """Add ∂log P/∂w to a tensor shaped like the weights, given the children's gradients."""
    _sum_flows(nodes, children, gradient, weight, into, True)


def step(
    weight: Float[Tensor, "edges K"],
    nodes: Nodes,
    children: Int[Tensor, " edges"],
    ends: Int[Tensor, " regions_1"],
    gradient: Float[Tensor, "nodes K_max batch"],
    step_size: Float[Tensor, ""],
    pseudo: Float[Tensor, ""] | None = None,
) -> None:
    """Move the weights by a step of stochastic EM, in place (see kernels.update.step_)."""
    counts = weight.new_empty(weight.shape)
    _sum_flows(nodes, children, gradient, weight, counts, False)
    outputs = weight.shape[1]
    grid = (ends.shape[0] - 1,)
    _step[grid](
        weight, counts, ends, step_size, step_size if pseudo is None else pseudo,
        outputs, RELATIVE_FLOOR, PRIOR=pseudo is not None, K=triton.next_power_of_2(outputs),
    )  # fmt: skip


def _sum_flows(
    nodes: Nodes, children: Tensor, gradient: Tensor, weight: Tensor, into: Tensor, relative: bool
) -> None:
    batch, outputs = gradient.shape[-1], weight.shape[1]
    _counts[(children.shape[0],)](
        nodes.v, children, gradient, weight, into, batch, nodes.v.stride(0), nodes.v.stride(1),
        gradient.stride(0), gradient.stride(1), outputs, RELATIVE=relative,
        **_tiles(outputs, batch),
    )  # fmt: skip


@triton.jit
def _counts(
    v, children, gradient, weight, into, B, v_node, v_k, g_node, g_k, num_outputs,
    RELATIVE: tl.constexpr, K: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    edge = tl.program_id(0).to(tl.int64)
    node = tl.load(children + edge)
    k = tl.arange(0, K)
    v_at = v + node * v_node + k[:, None] * v_k
    g_at = gradient + node * g_node + k[:, None] * g_k
    total = tl.zeros([K, B_BLOCK], tl.float32)
    for start in range(0, B, B_BLOCK):
        b = start + tl.arange(0, B_BLOCK)
        here = (k[:, None] < num_outputs) & (b[None, :] < B)
        value = tl.load(v_at + b[None, :], mask=here, other=0.0)
        total += value * tl.load(g_at + b[None, :], mask=here, other=0.0)
    count = tl.sum(total, 1)
    here = k < num_outputs
    if RELATIVE:
        w = tl.load(weight + edge * num_outputs + k, mask=here, other=1.0)
        count = tl.load(into + edge * num_outputs + k, mask=here, other=0.0) + count / w
    tl.store(into + edge * num_outputs + k, count, mask=here)


@triton.jit
def _step(
    weight, counts, ends, step_size, pseudo, num_outputs, relative_floor,
    PRIOR: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    region = tl.program_id(0)
    k = tl.arange(0, K)
    here = k < num_outputs
    first, last = tl.load(ends + region), tl.load(ends + region + 1)
    size = tl.load(step_size).to(tl.float32)
    floor = relative_floor / (last - first).to(tl.float32)
    each = 0.0
    if PRIOR:
        each = tl.load(pseudo).to(tl.float32) / (last - first).to(tl.float32)
    total = tl.zeros([K], tl.float32)
    for edge in range(first, last):
        total += tl.load(counts + edge * num_outputs + k, mask=here, other=0.0) + each
    raised = tl.zeros([K], tl.float32)
    for edge in range(first, last):
        n = tl.load(counts + edge * num_outputs + k, mask=here, other=0.0) + each
        raised += tl.maximum(n, total * floor)
    raised = tl.maximum(raised, TINY)
    for edge in range(first, last):
        n = tl.load(counts + edge * num_outputs + k, mask=here, other=0.0) + each
        w = tl.load(weight + edge * num_outputs + k, mask=here, other=0.0)
        target = tl.maximum(n, total * floor) / raised
        new = tl.where(total > 0, (1 - size) * w + size * target, w)
        tl.store(weight + edge * num_outputs + k, new, mask=here)
