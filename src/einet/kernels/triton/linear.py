"""The linear layer on a GPU: sums over element-wise products of any number of children.

Row l has the children ``children[ends[l]:ends[l + 1]]`` and the sums
:math:`S_k = \\sum_i W_{ki} \\prod_c v_{ci}`. Every kernel makes the products anew, in registers,
with an exponent for each entry (see :mod:`einet.kernels.torch.linear`): multiplying takes no
logarithm and no look at other entries, and nothing is lost on the way. Peaks and gradients refer to
products divided by a power of two such that the largest entry is in [1, 2). Forwards, sums are
scaled down as often as a block of entries holds a larger one; backwards, the exponent of the
largest is known.

Backwards, :math:`p_i \\sum_k W_{ki} u_k` is the flow into entry i of every child: what leaves get.
Divided by the child's value it is the gradient that sums get. An entry of value 0 gets none, and
needs none: the counts of its weights, n of eq. (6), are 0 as all their products are.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from dataclasses import dataclass

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.products import PRECISIONS, TINY, dot, log_of, padded

__all__ = [
    "LinearEdges",
    "backward",
    "forward",
    "highest",
    "multiplied",
    "power",
    "product",
    "scaled",
    "times",
    "upper",
]

# The exponent of a product that is 0 throughout: below all others, and its differences fit 32 bits.
_NEVER = tl.constexpr(-(1 << 30))
_LOG_2 = tl.constexpr(0.6931471805599453)
# Gradients stay below the largest float32.
_HUGE = tl.constexpr(1e38)
# Sums of more outputs are made in parts and not divided by their maximum, which no part knows. As
# weights are bounded below, the largest is never tiny.
_MOST_DIVIDED = 256


@dataclass
class LinearEdges:
    """The children of each of L sums, row by row, with I entries each.

    Nodes with numbers below ``num_leaf_nodes`` are leaves. Values of ``at_once`` children are
    loaded side by side: as many as most sums have, and no more than 4.
    """

    children: Int[Tensor, " edges"]
    ends: Int[Tensor, " L_1"]
    num_inputs: int
    num_leaf_nodes: int = 0
    at_once: int = 4


# -- products --------------------------------------------------------------------------------------


@triton.jit
def product(v, children, first, last, i, b, here, v_node, v_k, AT_ONCE: tl.constexpr):
    """Products as p·2^e, entry by entry, with p in [1, 2) or 0."""
    p = tl.where(here, 1.0, 0.0)
    e = tl.zeros(p.shape, tl.int32)
    return multiplied(p, e, v, children, first, last, i, b, here, v_node, v_k, AT_ONCE)


@triton.jit
def multiplied(p, e, v, children, first, last, i, b, here, v_node, v_k, AT_ONCE: tl.constexpr):
    """The same with further children."""
    # One entry's place within any node: offsets of 32 bits are for all children the same.
    place = i * v_k + b
    for start in range(first, last, AT_ONCE):
        # Loads do not wait for products, so that those of several children are on their way.
        for offset in tl.static_range(AT_ONCE):
            more = start + offset < last
            node = tl.load(children + start + offset, mask=more, other=0)
            value = tl.load((v + node * v_node) + place, mask=here & more, other=0.0)
            p, e = times(p, e, tl.where(more, value, 1.0))
    return p, e


@triton.jit
def times(p, e, value):
    """The same with one more factor."""
    p *= value
    bits = p.to(tl.int32, bitcast=True)
    power = bits >> 23
    p = ((bits & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)
    return tl.where(power > 0, p, 0.0), e + (power - 127)


@triton.jit
def highest(p, e):
    """The largest exponent among the entries."""
    return tl.max(tl.where(p > 0, e, _NEVER), 0, keep_dims=True)


@triton.jit
def scaled(p, e, largest):
    """Products divided by 2^largest."""
    return p * power(e - largest)


@triton.jit
def power(e):
    """2^e for e ≤ 0; 0 where that is not a normal number."""
    return ((tl.minimum(tl.maximum(e, -127), 0) + 127) << 23).to(tl.float32, bitcast=True)


# -- forwards --------------------------------------------------------------------------------------


def forward(
    weight: Float[Tensor, "L K_out I"],
    nodes: Nodes,
    edges: LinearEdges,
    out: Nodes,
    largest: Int[Tensor, "L batch"],
    precision: str,
) -> None:
    """``out = (v, m)`` of the sums over products of their children's values.

    The exponents of the ``largest`` products are what a backward pass asks for.
    """
    num, outputs, inputs = weight.shape
    batch = nodes.v.shape[-1]
    tiles = _forward_tiles(num, outputs, inputs, batch)
    parts = triton.cdiv(outputs, tiles["K"])
    _forward[(num * triton.cdiv(batch, tiles["B_BLOCK"]) * parts,)](
        weight, nodes.v, nodes.m, edges.children, edges.ends, out.v, out.m, out.peak, largest,
        batch, nodes.v.stride(0), nodes.v.stride(1), out.v.stride(0), out.v.stride(1),
        inputs, outputs, AT_ONCE=edges.at_once, PRECISION=PRECISIONS[precision], **tiles,
    )  # fmt: skip


def _forward_tiles(num: int, outputs: int, inputs: int, batch: int) -> dict:
    """Sizes of tiles, the fastest of those timed on an H200.

    Trees have few sums in a layer, so that small blocks of samples keep more of the GPU busy.
    """
    K, I = padded(outputs), padded(inputs)  # noqa: E741 - the letters of the formula
    few = num * triton.cdiv(batch, 64) < 256
    if max(K, I) <= 32:
        return {"K": K, "I_BLOCK": I, "B_BLOCK": 32 if few else 64, "num_warps": 2}
    if max(K, I) <= 64:
        return {"K": K, "I_BLOCK": I, "B_BLOCK": 32 if few else 64, "num_warps": 4}
    if K <= 128 and num * triton.cdiv(batch, 32) >= 256:
        return {"K": K, "I_BLOCK": min(I, 32), "B_BLOCK": 32, "num_warps": 4}
    return {"K": min(K, _MOST_DIVIDED), "I_BLOCK": min(I, 64), "B_BLOCK": 32, "num_warps": 8}


@triton.jit
def _forward(
    weight, v, m, children, ends, out_v, out_m, out_peak, out_largest,
    B, v_node, v_k, out_node, out_k, num_inputs: tl.constexpr, num_outputs: tl.constexpr,
    AT_ONCE: tl.constexpr, PRECISION: tl.constexpr,
    K: tl.constexpr, I_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(B, B_BLOCK)
    parts: tl.constexpr = (num_outputs + K - 1) // K
    part, program = tl.program_id(0) % parts, tl.program_id(0) // parts
    row = (program // blocks).to(tl.int64)
    b = (program % blocks) * B_BLOCK + tl.arange(0, B_BLOCK)[None, :]
    inside = b < B
    first, last = tl.load(ends + row), tl.load(ends + row + 1)
    k = part * K + tl.arange(0, K)[:, None]
    weight += row * (num_outputs * num_inputs)
    sums = tl.zeros([K, B_BLOCK], tl.float32)
    largest = tl.full([1, B_BLOCK], _NEVER, tl.int32)
    for start in range(0, num_inputs, I_BLOCK):
        i = start + tl.arange(0, I_BLOCK)[:, None]
        here = (i < num_inputs) & inside
        p, e = product(v, children, first, last, i, b, here, v_node, v_k, AT_ONCE)
        before = largest
        largest = tl.maximum(before, highest(p, e))
        across = start + tl.arange(0, I_BLOCK)[None, :]
        w_here = (k < num_outputs) & (across < num_inputs)
        w = tl.load(weight + (k * num_inputs + across), mask=w_here, other=0.0)
        # From zero each time: long sums within tensor cores are cut off, not rounded.
        zero = tl.zeros([K, B_BLOCK], tl.float32)
        more = dot(w, scaled(p, e, largest), zero, PRECISION)
        sums = sums * power(before - largest) + more if num_inputs > I_BLOCK else more
    if parts == 1:
        peak = tl.max(sums, 0, keep_dims=True)
        sums = sums / tl.maximum(peak, TINY)
    else:
        # No program sees all sums of a node.
        peak = tl.where(largest > _NEVER, 1.0, 0.0)
    out_at = (out_v + row * out_node) + (k * out_k + b)
    tl.store(out_at, sums, mask=(k < num_outputs) & inside)
    if part > 0:
        return
    tl.store(out_peak + row * B + b, peak, mask=inside)
    tl.store(out_largest + row * B + b, largest, mask=inside)
    # One sample for each thread of a warp, rather than those of its part of the sums.
    at = (program % blocks) * B_BLOCK + tl.arange(0, B_BLOCK)
    scale = tl.zeros([B_BLOCK], tl.float64)
    for edge in range(first, last):
        scale += tl.load(m + tl.load(children + edge) * B + at, mask=at < B, other=0.0)
    scale += tl.reshape(largest, [B_BLOCK]).to(tl.float64) * _LOG_2
    scale += log_of(tl.reshape(peak, [B_BLOCK]))
    tl.store(out_m + row * B + at, scale, mask=at < B)


# -- backwards -------------------------------------------------------------------------------------


def backward(
    weight: Float[Tensor, "L K_out I"],
    nodes: Nodes,
    edges: LinearEdges,
    gradient: Float[Tensor, "L K_out batch"],
    peak: Float[Tensor, "L batch"],
    largest: Int[Tensor, "L batch"],
    into: Float[Tensor, "rows K batch"],
    rows: Int[Tensor, " edges"],
    add: Int[Tensor, " edges"],
    precision: str,
) -> None:
    """Gradients of the children's values; flows in their place for leaves.

    Args:
        weight, nodes, edges: The layer's weights, and where its children are.
        gradient: ∂log P/∂v of its own nodes.
        peak: What their values were divided by.
        largest: The exponents of their largest products.
        into: Where those of the children go: ``rows`` names one row for each edge, and ``add``
            says where to add to what is there (1) or to write (0).
        precision: The precision mode.
    """
    num, outputs, inputs = weight.shape
    batch = nodes.v.shape[-1]
    tiles = _backward_tiles(num, outputs, inputs, batch)
    programs = num * triton.cdiv(batch, tiles["B_BLOCK"]) * triton.cdiv(inputs, tiles["I_BLOCK"])
    _backward[(programs,)](
        weight, nodes.v, edges.children, edges.ends, gradient, peak, largest, into, rows, add,
        edges.num_leaf_nodes, batch, nodes.v.stride(0), nodes.v.stride(1),
        gradient.stride(0), gradient.stride(1), into.stride(0), into.stride(1),
        inputs, outputs, AT_ONCE=edges.at_once, PRECISION=PRECISIONS[precision], **tiles,
    )  # fmt: skip


def _backward_tiles(num: int, outputs: int, inputs: int, batch: int) -> dict:
    """Sizes of tiles, the fastest of those timed on an H200; all outputs at once up to 128."""
    I, K = padded(inputs), padded(outputs)  # noqa: E741
    if K > 128:
        return {"I_BLOCK": min(I, 128), "K_BLOCK": 32, "B_BLOCK": 16, "num_warps": 4}
    I = min(I, 64)  # noqa: E741
    parts = num * triton.cdiv(inputs, I)
    if max(I, K) > 32:
        block = 16 if parts * triton.cdiv(batch, 32) < 512 else 32
        return {"I_BLOCK": I, "K_BLOCK": K, "B_BLOCK": block, "num_warps": 4}
    few = parts * triton.cdiv(batch, 64) < 256
    return {"I_BLOCK": I, "K_BLOCK": K, "B_BLOCK": 32 if few else 64, "num_warps": 2 if few else 4}


@triton.jit
def _backward(
    weight, v, children, ends, gradient, sum_peak, largest, into, rows, add, num_leaf_nodes,
    B, v_node, v_k, g_node, g_k, into_node, into_k,
    num_inputs: tl.constexpr, num_outputs: tl.constexpr,
    AT_ONCE: tl.constexpr, PRECISION: tl.constexpr,
    I_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    parts, blocks = tl.cdiv(num_inputs, I_BLOCK), tl.cdiv(B, B_BLOCK)
    start = (tl.program_id(0) % parts) * I_BLOCK
    program = tl.program_id(0) // parts
    row = (program // blocks).to(tl.int64)
    b = (program % blocks) * B_BLOCK + tl.arange(0, B_BLOCK)[None, :]
    inside = b < B
    first, last = tl.load(ends + row), tl.load(ends + row + 1)
    i = start + tl.arange(0, I_BLOCK)[:, None]
    here = (i < num_inputs) & inside
    weight += row * (num_outputs * num_inputs)
    flow = tl.zeros([I_BLOCK, B_BLOCK], tl.float32)
    for k_start in range(0, num_outputs, K_BLOCK):
        k = k_start + tl.arange(0, K_BLOCK)
        u = upper(gradient + row * g_node, sum_peak + row * B, k[:, None], b, inside, g_k,
                   num_outputs)  # fmt: skip
        w_here = (k[None, :] < num_outputs) & (i < num_inputs)
        w = tl.load(weight + (k[None, :] * num_inputs + i), mask=w_here, other=0.0)
        flow += dot(w, u, tl.zeros([I_BLOCK, B_BLOCK], tl.float32), PRECISION)
    p, e = product(v, children, first, last, i, b, here, v_node, v_k, AT_ONCE)
    flow *= scaled(p, e, tl.load(largest + row * B + b, mask=inside, other=0))
    for edge in range(first, last):
        node = tl.load(children + edge)
        value = tl.load((v + node * v_node) + (i * v_k + b), mask=here, other=0.0)
        each = tl.where(value > 0, tl.minimum(flow / tl.maximum(value, TINY), _HUGE), 0.0)
        each = tl.where(node < num_leaf_nodes, flow, each)
        at = (into + tl.load(rows + edge) * into_node) + (i * into_k + b)
        each += tl.load(at, mask=here & (tl.load(add + edge) != 0), other=0.0)
        tl.store(at, each, mask=here)


@triton.jit
def upper(gradient, sum_peak, k, b, inside, g_k, num_outputs: tl.constexpr):
    """u = ∂log P/∂S of some outputs, zero where the sums are."""
    g = tl.load(gradient + (k * g_k + b), mask=(k < num_outputs) & inside, other=0.0)
    peak = tl.load(sum_peak + b, mask=inside, other=0.0)
    return g * tl.where(peak > 0, 1.0 / tl.maximum(peak, TINY), 0.0)
