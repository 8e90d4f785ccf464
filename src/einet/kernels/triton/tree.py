"""Linear sums of a whole tree on a GPU: one launch upwards and one downwards.

Layers of hidden trees have a handful of sums each, and there are dozens of them. Launched one by
one, each waits for the last program of the layer below, with most of the GPU idle. Here the work is
ordered by what it needs instead: a *task* is one sum for a block of samples, and programs take one
task after the other from a list in which every sum comes after its children. A program that needs
what another has not finished yet waits for it. As tasks are handed out in the order of the list,
what a program waits for has always been begun, however few programs there are: none waits forever.

Counters of what is done decide only when something is computed, never what: every number is made by
one program, in a fixed order.

Values are kept as ``(v, m)`` with v·exp(m) as everywhere (:mod:`einet.kernels.nodes`), but are not
divided by their maximum: products of children carry an exponent for each entry, which takes care of
all scales. Weights being bounded below, the largest of K sums is never tiny. The products are kept
for the way down and for the statistics of weights (``Products`` in ``tree_parts.py``).
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.linear import highest, product, scaled
from einet.kernels.triton.products import PRECISIONS, TINY, dot, padded
from einet.kernels.triton.tree_parts import (
    Products,
    TreeEdges,
    Weights,
    new_counters,
    programs,
    rescaled,
    signal,
    wait,
)

__all__ = ["backward", "empty_products", "forward"]

_NEVER = tl.constexpr(-(1 << 30))
_LOG_2 = tl.constexpr(0.6931471805599453)
# Gradients stay below the largest float32.
_HUGE = tl.constexpr(1e38)


# -- upwards ---------------------------------------------------------------------------------------


def empty_products(weights: Weights, edges: TreeEdges, nodes: Nodes) -> Products:
    """Room for the products of all sums, as :func:`forward` makes them."""
    inputs, batch = weights.num_inputs, nodes.v.shape[-1]
    group = _forward_tiles(weights.num_outputs, inputs)["GROUP"]
    return Products.empty(len(edges), inputs, batch, group, nodes.v)


def forward(
    weights: Weights,
    nodes: Nodes,
    edges: TreeEdges,
    products: Products,
    precision: str,
) -> None:
    """``v`` and ``m`` of all sums, and the ``products`` that they are sums of."""
    batch = nodes.v.shape[-1]
    tiles = _forward_tiles(weights.num_outputs, weights.num_inputs)
    each = tiles.pop("EACH")
    blocks = triton.cdiv(batch, tiles["B_BLOCK"])
    parts = triton.cdiv(weights.num_outputs, tiles["K_BLOCK"])
    tasks = len(edges) * blocks * parts
    counters = new_counters(nodes.v, len(edges), blocks)
    _forward[(programs(nodes.v, tasks, each),)](
        weights.base, weights.offsets, nodes.v, nodes.m, edges.children, edges.ends, edges.order,
        products.p, products.exponents, counters, batch,
        nodes.v.stride(0), nodes.v.stride(1), edges.first_sum, tasks,
        weights.num_inputs, weights.num_outputs, AT_ONCE=edges.at_once, ALIGNED=weights.aligned,
        PRECISION=PRECISIONS[precision], **tiles,
    )  # fmt: skip


def _forward_tiles(outputs: int, inputs: int) -> dict:
    """Sizes of tiles, and how many programs share a multiprocessor."""
    K, I = padded(outputs), padded(inputs)  # noqa: E741 - the letters of the formula
    tiles = {"K_BLOCK": min(K, 256), "I_BLOCK": min(I, 32), "GROUP": min(I, 256), "STAGES": 3}
    if max(K, I) <= 64:
        return tiles | {"I_BLOCK": I, "B_BLOCK": 32, "EACH": 4, "num_warps": 4}
    if max(K, I) <= 128:
        return tiles | {"B_BLOCK": 32, "EACH": 2, "num_warps": 4}
    return tiles | {"B_BLOCK": 32, "EACH": 1, "num_warps": 8}


@triton.jit
def _forward(
    weight, offsets, v, m, children, ends, order, products, exponents, counters,
    B, v_node, v_k, first_sum, tasks,
    num_inputs: tl.constexpr, num_outputs: tl.constexpr,
    AT_ONCE: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr, GROUP: tl.constexpr,
    K_BLOCK: tl.constexpr, I_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(B, B_BLOCK)
    parts: tl.constexpr = (num_outputs + K_BLOCK - 1) // K_BLOCK
    groups: tl.constexpr = (num_inputs + GROUP - 1) // GROUP
    done = counters + 1
    task = tl.atomic_add(counters, 1)
    while task < tasks:
        row = tl.load(order + task // (blocks * parts)).to(tl.int64)
        block, part = (task // parts) % blocks, task % parts
        k = part * K_BLOCK + tl.arange(0, K_BLOCK)[:, None]
        begin_at = tl.load(offsets + row)
        if ALIGNED:
            begin_at = tl.multiple_of(begin_at, 16)
        weight_at = weight + begin_at + k * num_inputs
        if num_inputs <= I_BLOCK:
            # Weights are there already, and can be on their way while others are waited for.
            entry = tl.arange(0, I_BLOCK)[None, :]
            w_here = (k < num_outputs) & (entry < num_inputs)
            w = tl.load(weight_at + entry, mask=w_here, other=0.0)
        first, last = tl.load(ends + row), tl.load(ends + row + 1)
        for edge in range(first, last):
            below = tl.load(children + edge) - first_sum
            if below >= 0:
                wait(done + below * blocks + block, parts)
        b = block * B_BLOCK + tl.arange(0, B_BLOCK)[None, :]
        inside = b < B
        products_at = products + row * num_inputs * B
        largest = tl.full([1, B_BLOCK], _NEVER, tl.int32)
        for start in tl.static_range(0, num_inputs, GROUP):
            i = start + tl.arange(0, GROUP)[:, None]
            here = (i < num_inputs) & inside
            p, e = product(v, children, first, last, i, b, here, v_node, v_k, AT_ONCE)
            largest = tl.maximum(largest, highest(p, e))
            p = scaled(p, e, largest)
            tl.store(products_at + (i * B + b), p, mask=here)
            group = row * groups + start // GROUP
            tl.store(exponents + group * B + b, largest, mask=inside)
        sums = tl.zeros([K_BLOCK, B_BLOCK], tl.float32)
        if num_inputs <= I_BLOCK:
            sums = dot(w, p, sums, PRECISION)
        else:
            # Other threads have written some of what this one reads next.
            tl.debug_barrier()
            for begin in tl.range(0, num_inputs, I_BLOCK, num_stages=STAGES):
                j = begin + tl.arange(0, I_BLOCK)[:, None]
                j_here = (j < num_inputs) & inside
                q = tl.load(products_at + (j * B + b), mask=j_here, other=0.0)
                q = rescaled(q, exponents, row, j, b, j_here, B, num_inputs, GROUP)
                across = begin + tl.arange(0, I_BLOCK)[None, :]
                across_here = (k < num_outputs) & (across < num_inputs)
                some = tl.load(weight_at + across, mask=across_here, other=0.0)
                # From zero each time: long sums within tensor cores are cut off, not rounded.
                sums += dot(some, q, tl.zeros([K_BLOCK, B_BLOCK], tl.float32), PRECISION)
        out_at = v + (row + first_sum) * v_node + (k * v_k + b)
        tl.store(out_at, sums, mask=(k < num_outputs) & inside)
        if part == 0:
            # One sample for each thread of a warp, rather than those of its part of the sums.
            at = block * B_BLOCK + tl.arange(0, B_BLOCK)
            scale = tl.reshape(largest, [B_BLOCK]).to(tl.float64) * _LOG_2
            # Where every product is 0, so is every value: no scale makes it more.
            scale = tl.where(tl.reshape(largest, [B_BLOCK]) > _NEVER, scale, float("-inf"))
            for edge in range(first, last):
                scale += tl.load(m + tl.load(children + edge) * B + at, mask=at < B, other=0.0)
            tl.store(m + (row + first_sum) * B + at, scale, mask=at < B)
        signal(done + row * blocks + block)
        task = tl.atomic_add(counters, 1)


# -- downwards -------------------------------------------------------------------------------------


def backward(
    weights: Weights,
    nodes: Nodes,
    edges: TreeEdges,
    products: Products,
    gradient: Float[Tensor, "nodes K batch"],
    precision: str,
) -> None:
    """Gradients of the values of all children; flows in their place for leaves.

    ``gradient`` holds ∂log P/∂v of those sums whose parent is none of these.
    """
    batch = nodes.v.shape[-1]
    tiles = _backward_tiles(weights.num_outputs, weights.num_inputs)
    each = tiles.pop("EACH")
    blocks = triton.cdiv(batch, tiles["B_BLOCK"])
    parts = triton.cdiv(weights.num_inputs, tiles["I_BLOCK"])
    tasks = len(edges) * blocks * parts
    counters = new_counters(nodes.v, len(edges), blocks)
    _backward[(programs(nodes.v, tasks, each),)](
        weights.base, weights.offsets, nodes.v, edges.children, edges.ends, edges.parents,
        edges.order, products.p, products.exponents, gradient, counters, batch,
        nodes.v.stride(0), nodes.v.stride(1),
        gradient.stride(0), gradient.stride(1), edges.first_sum, edges.num_leaf_nodes,
        len(edges), tasks,
        weights.num_inputs, weights.num_outputs, products.group, ALIGNED=weights.aligned,
        PRECISION=PRECISIONS[precision], **tiles,
    )  # fmt: skip


def _backward_tiles(outputs: int, inputs: int) -> dict:
    K, I = padded(outputs), padded(inputs)  # noqa: E741
    tiles = {"I_BLOCK": min(I, 256), "K_BLOCK": min(K, 32), "STAGES": 3}
    if max(K, I) <= 64:
        return tiles | {"K_BLOCK": K, "B_BLOCK": 32, "EACH": 4, "num_warps": 4}
    return tiles | {"I_BLOCK": min(I, 128), "B_BLOCK": 32, "EACH": 2, "num_warps": 4}


@triton.jit
def _backward(
    weight, offsets, v, children, ends, parents, order, products, exponents, gradient, counters,
    B, v_node, v_k, g_node, g_k, first_sum, num_leaf_nodes, num_sums, tasks,
    num_inputs: tl.constexpr, num_outputs: tl.constexpr, GROUP: tl.constexpr,
    ALIGNED: tl.constexpr, PRECISION: tl.constexpr,
    I_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(B, B_BLOCK)
    parts: tl.constexpr = (num_inputs + I_BLOCK - 1) // I_BLOCK
    done = counters + 1
    task = tl.atomic_add(counters, 1)
    while task < tasks:
        # The other way round: every sum after its parent.
        row = tl.load(order + (num_sums - 1 - task // (blocks * parts))).to(tl.int64)
        block, part = (task // parts) % blocks, task % parts
        first, last = tl.load(ends + row), tl.load(ends + row + 1)
        parent = tl.load(parents + row)
        if parent >= 0:
            wait(done + parent * blocks + block, parts)
        b = block * B_BLOCK + tl.arange(0, B_BLOCK)[None, :]
        inside = b < B
        i = part * I_BLOCK + tl.arange(0, I_BLOCK)[:, None]
        here = (i < num_inputs) & inside
        begin_at = tl.load(offsets + row)
        if ALIGNED:
            begin_at = tl.multiple_of(begin_at, 16)
        weight_at = weight + begin_at
        g_at = gradient + (row + first_sum) * g_node
        flow = tl.zeros([I_BLOCK, B_BLOCK], tl.float32)
        for start in tl.range(0, num_outputs, K_BLOCK, num_stages=STAGES):
            k = start + tl.arange(0, K_BLOCK)
            u_here = (k[:, None] < num_outputs) & inside
            u = tl.load(g_at + (k[:, None] * g_k + b), mask=u_here, other=0.0)
            w_here = (k[None, :] < num_outputs) & (i < num_inputs)
            w = tl.load(weight_at + (k[None, :] * num_inputs + i), mask=w_here, other=0.0)
            flow += dot(w, u, tl.zeros([I_BLOCK, B_BLOCK], tl.float32), PRECISION)
        at = products + row * num_inputs * B + (i.to(tl.int64) * B + b)
        p = tl.load(at, mask=here, other=0.0)
        flow *= rescaled(p, exponents, row, i, b, here, B, num_inputs, GROUP)
        for edge in range(first, last):
            node = tl.load(children + edge)
            each = flow
            if node >= num_leaf_nodes:
                value = tl.load((v + node * v_node) + (i * v_k + b), mask=here, other=0.0)
                each = tl.where(value > 0, tl.minimum(flow / tl.maximum(value, TINY), _HUGE), 0.0)
            tl.store((gradient + node * g_node) + (i * g_k + b), each, mask=here)
        signal(done + row * blocks + block)
        task = tl.atomic_add(counters, 1)
