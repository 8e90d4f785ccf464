"""Linear sums of a whole tree on a GPU where nodes have many entries: one launch up, one down.

As in :mod:`~einet.kernels.triton.tree`, programs take tasks from a list in which everything comes
after what it needs. With many entries a sum is a product of large matrices, and what counts is that
tensor cores never wait. So their operands are prepared by whoever makes them: products of children
and gradients are kept cut into bf16 numbers (:func:`~einet.kernels.triton.products.cut`), three of
which hold all bits of float32. Tensor cores take them as they lie in memory, in either direction;
only weights are cut where they are used.

A *product task* multiplies the children of one sum for some entries and samples, a *sum task* makes
some entries of the sum. Products of a group of entries are divided by a power of two, such that the
largest of each sample is in [1, 2). A sum of several groups multiplies what each of them adds.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.linear import highest, power, product, scaled
from einet.kernels.triton.products import PLANES, TINY, cut, dot_of_planes
from einet.kernels.triton.tree_parts import (
    TreeEdges,
    Weights,
    new_counters,
    programs,
    signal,
    wait,
)
from einet.kernels.triton.wide_parts import (
    SAMPLES,
    Gradients,
    WideProducts,
    backward_order,
    forward_order,
)

__all__ = ["backward", "forward"]

_NEVER = tl.constexpr(-(1 << 30))
_LOG_2 = tl.constexpr(0.6931471805599453)
# With more entries there are tasks enough for larger tiles.
_FEW = 512
# Gradients stay below the largest float32.
_HUGE = tl.constexpr(1e38)


# -- upwards ---------------------------------------------------------------------------------------


def forward(
    weights: Weights, nodes: Nodes, edges: TreeEdges, products: WideProducts, precision: str
) -> None:
    """``v`` and ``m`` of all sums, and the ``products`` that they are sums of."""
    batch, samples = nodes.v.shape[-1], products.p.shape[-1]
    tiles = _tiles(weights.num_outputs, samples)
    each = tiles.pop("EACH")
    blocks = samples // tiles["B_BLOCK"]
    parts = triton.cdiv(weights.num_outputs, tiles["K_BLOCK"])
    makers = products.groups * (tiles["B_BLOCK"] // tiles["P_BLOCK"])
    number = programs(nodes.v, len(edges) * blocks * (parts + makers), each)
    order = forward_order(edges, makers, parts, max(1, number // blocks))
    counters = new_counters(nodes.v, 2 * len(edges), blocks)
    _forward[(number,)](
        weights.base, weights.offsets, nodes.v, nodes.m, edges.children, edges.ends, order,
        products.p, products.exponents, products.factors, counters, batch, products.p.stride(0),
        samples, nodes.v.stride(0), nodes.v.stride(1), edges.first_sum, len(edges),
        order.shape[0] * blocks, weights.num_inputs, weights.num_outputs,
        AT_ONCE=edges.at_once, PLANES=PLANES[precision], GROUP=products.group,
        ALIGNED=weights.aligned, **tiles,
    )  # fmt: skip


def _tiles(outputs: int, samples: int) -> dict:
    """Sizes of tiles, and how many programs share a multiprocessor: the fastest on an H200.

    While one program waits for tensor cores or memory, others go on: several small ones are faster
    than one of larger tiles, although they read their operands more often.
    """
    tiles = {"K_BLOCK": 64, "I_BLOCK": 32, "P_BLOCK": 32, "STAGES": 3, "num_warps": 4}
    if outputs > _FEW and samples % (2 * SAMPLES) == 0:
        return tiles | {"B_BLOCK": 2 * SAMPLES, "EACH": 2, "maxnreg": 255}
    return tiles | {"B_BLOCK": SAMPLES, "EACH": 3, "maxnreg": 168}


@triton.jit
def _forward(
    weight, offsets, v, m, children, ends, order, products, exponents, factors, counters,
    B, plane, B_PAD, v_node, v_k, first_sum, num_sums, tasks,
    num_inputs: tl.constexpr, num_outputs: tl.constexpr,
    AT_ONCE: tl.constexpr, PLANES: tl.constexpr, GROUP: tl.constexpr, ALIGNED: tl.constexpr,
    K_BLOCK: tl.constexpr, I_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr, P_BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    blocks = B_PAD // B_BLOCK
    groups: tl.constexpr = (num_inputs + GROUP - 1) // GROUP
    parts: tl.constexpr = (num_outputs + K_BLOCK - 1) // K_BLOCK
    pieces: tl.constexpr = B_BLOCK // P_BLOCK
    makers: tl.constexpr = groups * pieces
    made = counters + 1
    done = made + num_sums * blocks
    task = tl.atomic_add(counters, 1)
    while task < tasks:
        entry = tl.load(order + task // blocks)
        block = task % blocks
        row = (entry // (makers + parts)).to(tl.int64)
        what = entry % (makers + parts)
        first, last = tl.load(ends + row), tl.load(ends + row + 1)
        products_at = products + row * (groups * GROUP) * B_PAD
        exponents_at = exponents + row * groups * B_PAD
        if what < makers:
            for edge in range(first, last):
                below = tl.load(children + edge) - first_sum
                if below >= 0:
                    wait(done + below * blocks + block, parts)
            start = block * B_BLOCK + (what % pieces) * P_BLOCK
            _multiply(v, children, first, last, products_at, exponents_at, what // pieces, start,
                      B, plane, B_PAD, v_node, v_k,
                      num_inputs, AT_ONCE, PLANES, GROUP, P_BLOCK)  # fmt: skip
            signal(made + row * blocks + block)
        else:
            begin = tl.load(offsets + row)
            if ALIGNED:
                begin = tl.multiple_of(begin, 16)
            wait(made + row * blocks + block, makers)
            start, part = block * B_BLOCK, what - makers
            largest = _add(weight + begin, v + (row + first_sum) * v_node, products_at,
                           exponents_at, part, start, B, plane, B_PAD, v_k,
                           num_inputs, num_outputs, PLANES, GROUP,
                           K_BLOCK, I_BLOCK, B_BLOCK, STAGES)  # fmt: skip
            if part == 0:
                # One sample for each thread of a warp, rather than those of its part of the sums.
                b = start + tl.arange(0, B_BLOCK)
                top = tl.reshape(largest, [B_BLOCK])
                scale = top.to(tl.float64) * _LOG_2
                # Where every product is 0, so is every value: no scale makes it more.
                scale = tl.where(top > _NEVER, scale, float("-inf"))
                for edge in range(first, last):
                    scale += tl.load(m + tl.load(children + edge) * B + b, mask=b < B, other=0.0)
                tl.store(m + (row + first_sum) * B + b, scale, mask=b < B)
                if groups > 1:
                    for group in tl.static_range(groups):
                        own = tl.load(exponents_at + group * B_PAD + b)
                        at = factors + (row * groups + group) * B_PAD + b
                        tl.store(at, power(own - top).to(tl.bfloat16))
            signal(done + row * blocks + block)
        task = tl.atomic_add(counters, 1)


@triton.jit
def _multiply(
    v, children, first, last, products, exponents, group, start, B, plane, B_PAD, v_node, v_k,
    num_inputs: tl.constexpr, AT_ONCE: tl.constexpr, PLANES: tl.constexpr, GROUP: tl.constexpr,
    P_BLOCK: tl.constexpr,
):  # fmt: skip
    """The products of one group of entries for some samples."""
    i = group * GROUP + tl.arange(0, GROUP)[:, None]
    b = start + tl.arange(0, P_BLOCK)[None, :]
    here = (i < num_inputs) & (b < B)
    p, e = product(v, children, first, last, i, b, here, v_node, v_k, AT_ONCE)
    largest = highest(p, e)
    _store(products + (i * B_PAD + b), plane, scaled(p, e, largest), PLANES)
    tl.store(exponents + group * B_PAD + b, largest)


@triton.jit
def _add(
    weight, v, products, exponents, part, first_sample, B, plane, B_PAD, v_k,
    num_inputs: tl.constexpr, num_outputs: tl.constexpr, PLANES: tl.constexpr, GROUP: tl.constexpr,
    K_BLOCK: tl.constexpr, I_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Some entries of a sum for a block of samples, and the exponents of their products."""
    groups: tl.constexpr = (num_inputs + GROUP - 1) // GROUP
    k = part * K_BLOCK + tl.arange(0, K_BLOCK)[:, None]
    b = first_sample + tl.arange(0, B_BLOCK)[None, :]
    largest = _largest(exponents, b, B_PAD, groups)
    factor = tl.full([1, B_BLOCK], 1.0, tl.float32)
    sums = tl.zeros([K_BLOCK, B_BLOCK], tl.float32)
    for start in tl.range(0, num_inputs, I_BLOCK, num_stages=STAGES):
        i = start + tl.arange(0, I_BLOCK)
        w = _weights(weight + k * num_inputs + i[None, :], k, i[None, :], num_inputs, num_outputs,
                     K_BLOCK, I_BLOCK)  # fmt: skip
        q1, q2, q3 = _load(products + (i[:, None] * B_PAD + b), plane, PLANES)
        w1, w2, w3 = cut(w)
        more = dot_of_planes(w1, w2, w3, q1, q2, q3, PLANES)
        if groups > 1:
            if start % GROUP == 0:
                own = tl.load(exponents + (start // GROUP) * B_PAD + b)
                factor = power(own - largest)
            more *= factor
        sums += more
    tl.store(v + (k * v_k + b), sums, mask=(k < num_outputs) & (b < B))
    return largest


@triton.jit
def _largest(exponents, b, B_PAD, groups: tl.constexpr):
    """The exponent of the largest product of all groups, for each sample."""
    largest = tl.load(exponents + b)
    for group in tl.static_range(1, groups):
        largest = tl.maximum(largest, tl.load(exponents + group * B_PAD + b))
    return largest


@triton.jit
def _weights(
    at, k, i, num_inputs: tl.constexpr, num_outputs: tl.constexpr,
    K_BLOCK: tl.constexpr, I_BLOCK: tl.constexpr,
):  # fmt: skip
    """A tile of weights, with zeros where there are none."""
    if (num_inputs % I_BLOCK == 0) and (num_outputs % K_BLOCK == 0):
        w = tl.load(at)
    else:
        w = tl.load(at, mask=(k < num_outputs) & (i < num_inputs), other=0.0)
    return w


@triton.jit
def _load(at, plane, PLANES: tl.constexpr):
    """The numbers that a tile is cut into."""
    near = tl.load(at)
    middle, last = near, near
    if PLANES >= 2:
        middle = tl.load(at + plane)
    if PLANES == 3:
        last = tl.load(at + 2 * plane)
    return near, middle, last


@triton.jit
def _store(at, plane, x, PLANES: tl.constexpr):
    """Write the numbers that a tile is cut into."""
    near, middle, last = cut(x)
    tl.store(at, near)
    if PLANES >= 2:
        tl.store(at + plane, middle)
    if PLANES == 3:
        tl.store(at + 2 * plane, last)


# -- downwards -------------------------------------------------------------------------------------


def backward(
    weights: Weights,
    nodes: Nodes,
    edges: TreeEdges,
    products: WideProducts,
    gradients: Gradients,
    flow: Float[Tensor, "nodes K batch"],
    precision: str,
) -> None:
    """Gradients of all sums below the topmost ones, and flows into leaves.

    Args:
        weights, nodes, edges, products: As :func:`forward` had and left them.
        gradients: Those of the topmost sums, and room for all others.
        flow: Where those into leaves go.
        precision: The precision mode.
    """
    batch, samples = nodes.v.shape[-1], products.p.shape[-1]
    tiles = _tiles_down()
    each = tiles.pop("EACH")
    blocks = samples // tiles["B_BLOCK"]
    parts = triton.cdiv(weights.num_inputs, tiles["I_BLOCK"])
    number = programs(nodes.v, len(edges) * blocks * parts, each)
    order = backward_order(edges, parts, max(1, number // blocks))
    counters = new_counters(nodes.v, len(edges), blocks)
    _backward[(number,)](
        weights.base, weights.offsets, nodes.v, edges.children, edges.ends, edges.parents, order,
        products.p, products.factors, gradients.u, gradients.totals, flow, counters, batch,
        products.p.stride(0), gradients.u.stride(0), samples,
        nodes.v.stride(0), nodes.v.stride(1), flow.stride(0), flow.stride(1),
        edges.first_sum, edges.num_leaf_nodes, order.shape[0] * blocks,
        weights.num_inputs, weights.num_outputs,
        PLANES=PLANES[precision], GROUP=products.group, ALIGNED=weights.aligned, **tiles,
    )  # fmt: skip


def _tiles_down() -> dict:
    return {"I_BLOCK": 64, "K_BLOCK": 32, "B_BLOCK": SAMPLES, "STAGES": 3, "EACH": 3,
            "num_warps": 4, "maxnreg": 168}  # fmt: skip


@triton.jit
def _backward(
    weight, offsets, v, children, ends, parents, order, products, factors, gradients, totals,
    flows, counters, B, p_plane, u_plane, B_PAD, v_node, v_k, f_node, f_k,
    first_sum, num_leaf_nodes, tasks,
    num_inputs: tl.constexpr, num_outputs: tl.constexpr,
    PLANES: tl.constexpr, GROUP: tl.constexpr, ALIGNED: tl.constexpr,
    I_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    blocks = B_PAD // B_BLOCK
    groups: tl.constexpr = (num_inputs + GROUP - 1) // GROUP
    parts: tl.constexpr = (num_inputs + I_BLOCK - 1) // I_BLOCK
    size = (groups * GROUP) * B_PAD
    done = counters + 1
    task = tl.atomic_add(counters, 1)
    while task < tasks:
        entry = tl.load(order + task // blocks)
        block = task % blocks
        row, part = (entry // parts).to(tl.int64), entry % parts
        first, last = tl.load(ends + row), tl.load(ends + row + 1)
        parent = tl.load(parents + row)
        at = tl.load(offsets + row)
        if ALIGNED:
            at = tl.multiple_of(at, 16)
        if parent >= 0:
            wait(done + parent * blocks + block, parts)
        b = block * B_BLOCK + tl.arange(0, B_BLOCK)[None, :]
        i = part * I_BLOCK + tl.arange(0, I_BLOCK)[:, None]
        weight_at = weight + at + i
        u_at = gradients + row * size
        flow = tl.zeros([I_BLOCK, B_BLOCK], tl.float32)
        for start in tl.range(0, num_outputs, K_BLOCK, num_stages=STAGES):
            k = start + tl.arange(0, K_BLOCK)
            w = _weights(weight_at + k[None, :] * num_inputs, k[None, :], i, num_inputs,
                         num_outputs, K_BLOCK, I_BLOCK)  # fmt: skip
            u1, u2, u3 = _load(u_at + (k[:, None] * B_PAD + b), u_plane, PLANES)
            w1, w2, w3 = cut(w)
            flow += dot_of_planes(w1, w2, w3, u1, u2, u3, PLANES)
        p_at = products + row * size + (i * B_PAD + b)
        p1, p2, p3 = _load(p_at, p_plane, PLANES)
        p = p1.to(tl.float32)
        if PLANES >= 2:
            p += p2.to(tl.float32)
        if PLANES == 3:
            p += p3.to(tl.float32)
        if groups > 1:
            group = row * groups + part * I_BLOCK // GROUP
            p *= tl.load(factors + group * B_PAD + b).to(tl.float32)
        flow *= p
        here = (i < num_inputs) & (b < B)
        for edge in range(first, last):
            node = tl.load(children + edge)
            if node < num_leaf_nodes:
                tl.store((flows + node * f_node) + (i * f_k + b), flow, mask=here)
            else:
                value = tl.load((v + node * v_node) + (i * v_k + b), mask=here, other=0.0)
                # 0 where the value is, which has no gradient then.
                inverse = tl.where(value > 0, 1.0 / tl.maximum(value, TINY), 0.0)
                each = tl.minimum(flow * inverse, _HUGE)
                below = (node - first_sum).to(tl.int64)
                _store(gradients + below * size + (i * B_PAD + b), u_plane, each, PLANES)
                total = tl.sum(tl.where(inverse > 0, flow, 0.0), 1)
                entry_at = part * I_BLOCK + tl.arange(0, I_BLOCK)
                tl.store(totals + (below * blocks + block) * (groups * GROUP) + entry_at, total)
        signal(done + row * blocks + block)
        task = tl.atomic_add(counters, 1)
