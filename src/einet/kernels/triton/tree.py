"""Linear sums of a whole tree on a GPU: one launch upwards and one downwards.

Layers of hidden trees have a handful of sums each, and there are dozens of them. Launched one by
one, each waits for the last program of the layer below, with most of the GPU idle. Here the work is
ordered by what it needs instead, for each block of samples on its own (:class:`Walk`).

*Upwards*, a program begins with a sum that has none below it, and goes on to the sum above. Where
that has other children among the sums, whoever is done last goes on, and others begin elsewhere:
no program ever waits. *Downwards*, a program follows a path of sums, to the child below which most
is left; the other children are paths of their own, and begin when the sum above them is done. As
paths are handed out in an order in which every one comes after what it waits for, that has always
been begun, however few programs there are: none waits forever.

Counters of what is done decide only when something is computed, never what: every number is made by
one program, in a fixed order.

Values are kept as ``(v, m)`` with v·exp(m) as everywhere (:mod:`einet.kernels.nodes`), but are not
divided by their maximum: products of children carry an exponent for each entry, which takes care of
all scales. Weights being bounded below, the largest of K sums is never tiny. The products are kept
for the way down and for the statistics of weights. On the way down each sum leaves the *flow* into
an entry of its children, which is the same for all of them: leaves take it as it is, and a sum
divides it by its own value, which gives u = ∂log P/∂v.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.linear import highest, multiplied, scaled, times
from einet.kernels.triton.products import PRECISIONS, TINY, dot, padded
from einet.kernels.triton.tree_parts import (
    RECORD,
    Flows,
    Products,
    Walk,
    Weights,
    new_counters,
    programs,
    signal,
    wait,
)

__all__ = ["backward", "forward", "gradient"]

_NEVER = tl.constexpr(-(1 << 30))
_LOG_2 = tl.constexpr(0.6931471805599453)
# Gradients stay below the largest float32.
_HUGE = tl.constexpr(1e38)
_RECORD = tl.constexpr(RECORD)


def _tiles(entries: int) -> dict:
    """Sizes of tiles, and how many programs share a multiprocessor: the fastest on an H200."""
    size = padded(entries)
    if size < 64:
        return {"K_BLOCK": size, "B_BLOCK": 32, "EACH": 4, "num_warps": 4}
    return {"K_BLOCK": size, "B_BLOCK": 16, "EACH": 3, "num_warps": 4, "maxnreg": 168}


# -- upwards ---------------------------------------------------------------------------------------


def forward(
    weights: Weights, nodes: Nodes, walk: Walk, products: Products | None, precision: str
) -> None:
    """``v`` and ``m`` of all sums, and the ``products`` that they are sums of, where asked for."""
    batch = nodes.v.shape[-1]
    tiles = _tiles(weights.num_inputs)
    each = tiles.pop("EACH")
    blocks = triton.cdiv(batch, tiles["B_BLOCK"])
    tasks = len(walk.starts) * blocks
    counters = new_counters(nodes.v, len(walk), blocks)
    _forward[(programs(nodes.v, tasks, each),)](
        weights.base, weights.offsets, nodes.v, nodes.m, walk.children, walk.records, walk.starts,
        nodes.v if products is None else products.p, counters, batch,
        nodes.v.stride(0), nodes.v.stride(1), walk.first_sum, tasks,
        weights.num_inputs, KEEP=products is not None, ALIGNED=weights.aligned,
        PRECISION=PRECISIONS[precision], **tiles,
    )  # fmt: skip


@triton.jit
def _forward(
    weight, offsets, v, m, children, records, starts, products, counters,
    B, v_node, v_k, first_sum, tasks,
    K: tl.constexpr, KEEP: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr,
    K_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(B, B_BLOCK)
    arrived = counters + 1
    k, across = tl.arange(0, K_BLOCK)[:, None], tl.arange(0, K_BLOCK)[None, :]
    task = tl.atomic_add(counters, 1)
    while task < tasks:
        row = tl.load(starts + task // blocks)
        block = task % blocks
        b = block * B_BLOCK + tl.arange(0, B_BLOCK)[None, :]
        # One sample for each thread of a warp, rather than those of its part of a tile.
        at = block * B_BLOCK + tl.arange(0, B_BLOCK)
        here = (k < K) & (b < B)
        place = k * v_k + b
        sums = tl.zeros([K_BLOCK, B_BLOCK], tl.float32)
        scale = tl.zeros([B_BLOCK], tl.float64)
        first, inner, last, above, siblings, one, two, begin = _record(records, offsets, row)
        x = _value(v, one, v_node, place, here)
        y = _value(v, two, v_node, place, here)
        while row >= 0:
            # What the sum above needs of this is on its way while this one is computed.
            next_of = _record(records, offsets, tl.maximum(above, 0))
            if ALIGNED:
                begin = tl.multiple_of(begin, 16)
            w = tl.load(weight + begin + (k * K + across), mask=(k < K) & (across < K), other=0.0)
            outer = _scale(m, one, at, B) + _scale(m, two, at, B)
            p, e = times(tl.where(here, 1.0, 0.0), tl.zeros([K_BLOCK, B_BLOCK], tl.int32), x)
            p, e = times(p, e, y)
            x = _value(v, next_of[5], v_node, place, here)
            y = _value(v, next_of[6], v_node, place, here)
            if inner - first > 2:
                p, e = multiplied(p, e, v, children, first + 2, inner, k, b, here, v_node, v_k, 4)
                for edge in range(first + 2, inner):
                    outer += _scale(m, tl.load(children + edge), at, B)
            if last - inner == 1:
                # What this program has made just now.
                p, e = times(p, e, sums)
            else:
                p, e = multiplied(p, e, v, children, inner, last, k, b, here, v_node, v_k, 2)
                scale = tl.zeros([B_BLOCK], tl.float64)
                for edge in range(inner, last):
                    scale += _scale(m, tl.load(children + edge), at, B)
            largest = highest(p, e)
            p = scaled(p, e, largest)
            if KEEP:
                tl.store(products + row * K * B + (k * B + b), p, mask=here)
            sums = dot(w, p, tl.zeros([K_BLOCK, B_BLOCK], tl.float32), PRECISION)
            node = row + first_sum
            tl.store(v + node * v_node + place, sums, mask=here)
            top = tl.reshape(largest, [B_BLOCK])
            scale += outer
            # Where every product is 0, so is every value: no scale makes it more.
            scale = tl.where(top > _NEVER, scale + top.to(tl.float64) * _LOG_2, float("-inf"))
            tl.store(m + node * B + at, scale, mask=at < B)
            row = above
            if (above >= 0) & (siblings > 1):
                tl.debug_barrier()
                before = tl.atomic_add(arrived + above * blocks + block, 1, sem="acq_rel")
                row = tl.where(before == siblings - 1, above, -1)
            first, inner, last, above, siblings, one, two, begin = next_of
        task = tl.atomic_add(counters, 1)


@triton.jit
def _record(records, offsets, row):
    """What is known of a sum: where its children are, who is above, where its weights begin."""
    record = records + row * _RECORD
    first, inner, last = tl.load(record), tl.load(record + 1), tl.load(record + 2)
    above, siblings = tl.load(record + 3), tl.load(record + 5)
    one, two = tl.load(record + 6), tl.load(record + 7)
    return first, inner, last, above, siblings, one, two, tl.load(offsets + row)


@triton.jit
def _value(v, node, v_node, place, here):
    """The values of a node; 1 for none."""
    return tl.load(v + node * v_node + place, mask=here & (node >= 0), other=1.0)


@triton.jit
def _scale(m, node, at, B):
    """The log-scale of a node; 0 for none."""
    return tl.load(m + node * B + at, mask=(at < B) & (node >= 0), other=0.0)


# -- downwards -------------------------------------------------------------------------------------


def backward(
    weights: Weights,
    nodes: Nodes,
    walk: Walk,
    products: Products,
    flows: Flows,
    precision: str,
    below: Float[Tensor, "nodes K batch"] | None = None,
) -> None:
    """Flows of all sums; also to what lies ``below``, in its own rows, where that is given.

    There, flows are for leaves, and other nodes get gradients of their values.
    """
    batch = nodes.v.shape[-1]
    tiles = _tiles_down(weights.num_inputs)
    each = tiles.pop("EACH")
    blocks = triton.cdiv(batch, tiles["B_BLOCK"])
    tasks = len(walk.heads) * blocks
    counters = new_counters(nodes.v, len(walk), blocks)
    others = flows.f if below is None else below
    _backward[(programs(nodes.v, tasks, each),)](
        weights.base, weights.offsets, nodes.v, walk.children, walk.records, walk.heads,
        products.p, flows.f, flows.above, others, counters, batch,
        nodes.v.stride(0), nodes.v.stride(1), flows.f.stride(0), flows.f.stride(1),
        others.stride(0), others.stride(1), walk.first_sum, walk.num_leaf_nodes, tasks,
        weights.num_inputs, BELOW=below is not None, ALIGNED=weights.aligned,
        PRECISION=PRECISIONS[precision], **tiles,
    )  # fmt: skip


def _tiles_down(entries: int) -> dict:
    size = padded(entries)
    each = 4 if size < 64 else 2
    return {"K_BLOCK": size, "B_BLOCK": 32, "EACH": each, "num_warps": 4}


@triton.jit
def _backward(
    weight, offsets, v, children, records, heads, products, flows, tops, below, counters,
    B, v_node, v_k, f_node, f_k, g_node, g_k, first_sum, num_leaf_nodes, tasks,
    K: tl.constexpr, BELOW: tl.constexpr, ALIGNED: tl.constexpr, PRECISION: tl.constexpr,
    K_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(B, B_BLOCK)
    done = counters + 1
    k, across = tl.arange(0, K_BLOCK)[:, None], tl.arange(0, K_BLOCK)[None, :]
    task = tl.atomic_add(counters, 1)
    while task < tasks:
        row = tl.load(heads + task // blocks)
        block = task % blocks
        b = block * B_BLOCK + tl.arange(0, B_BLOCK)[None, :]
        here = (k < K) & (b < B)
        above = tl.load(records + row * _RECORD + 3)
        if above >= 0:
            wait(done + above * blocks + block, 1)
            flow = tl.load(flows + above * f_node + (k * f_k + b), mask=here, other=0.0)
        else:
            value = tl.load(v + (row + first_sum) * v_node + (k * v_k + b), mask=here, other=0.0)
            # Of the topmost sums gradients are known.
            flow = tl.load(tops + (-1 - above) * K * B + (k * B + b), mask=here, other=0.0) * value
        begin = tl.load(offsets + row)
        first, inner = tl.load(records + row * _RECORD), tl.load(records + row * _RECORD + 1)
        last, onward = tl.load(records + row * _RECORD + 2), tl.load(records + row * _RECORD + 4)
        value = tl.load(v + (row + first_sum) * v_node + (k * v_k + b), mask=here, other=0.0)
        p = tl.load(products + row * K * B + (k * B + b), mask=here, other=0.0)
        while row >= 0:
            if ALIGNED:
                begin = tl.multiple_of(begin, 16)
            # Entries below are rows here, and those of the sum columns.
            w = tl.load(weight + begin + (across * K + k), mask=(k < K) & (across < K), other=0.0)
            u = gradient(flow, value)
            # What the next sum needs is on its way while this one is computed.
            after = tl.maximum(onward, 0)
            begin = tl.load(offsets + after)
            next_first = tl.load(records + after * _RECORD)
            next_inner = tl.load(records + after * _RECORD + 1)
            next_last = tl.load(records + after * _RECORD + 2)
            next_onward = tl.load(records + after * _RECORD + 4)
            at = v + (after + first_sum) * v_node + (k * v_k + b)
            value = tl.load(at, mask=here & (onward >= 0), other=0.0)
            at = products + after * K * B + (k * B + b)
            next_p = tl.load(at, mask=here & (onward >= 0), other=0.0)
            flow = dot(w, u, tl.zeros([K_BLOCK, B_BLOCK], tl.float32), PRECISION) * p
            tl.store(flows + row * f_node + (k * f_k + b), flow, mask=here)
            if BELOW:
                for edge in range(first, inner):
                    node = tl.load(children + edge)
                    each = flow
                    if node >= num_leaf_nodes:
                        of_node = v + node * v_node + (k * v_k + b)
                        each = gradient(flow, tl.load(of_node, mask=here, other=0.0))
                    tl.store(below + node * g_node + (k * g_k + b), each, mask=here)
            if last - inner > 1:
                signal(done + row * blocks + block)
            row = onward
            first, inner, last, onward, p = next_first, next_inner, next_last, next_onward, next_p
        task = tl.atomic_add(counters, 1)


@triton.jit
def gradient(flow, value):
    """u = ∂log P/∂v of a sum, given the flow u·v; 0 where the value is."""
    return tl.where(value > 0, tl.minimum(flow / tl.maximum(value, TINY), _HUGE), 0.0)
