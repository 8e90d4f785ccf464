"""Statistics of the weights of a whole tree of linear sums, and their step of EM, on a GPU.

Once all gradients are known, no sum waits for another: one launch serves all of them. A program
makes the statistics :math:`\\sum_b u_k p_i` (n/w of eq. 6) of some outputs k and some entries i of
a sum, and turns them into new weights at once: what those of an output add up to is its flow.
"""

# pyright: reportArgumentType=false, reportCallIssue=false

import triton
import triton.language as tl
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.products import PRECISIONS, TINY, dot, padded
from einet.kernels.triton.tree import gradient
from einet.kernels.triton.tree_parts import RECORD, Flows, Products, Walk, Weights
from einet.kernels.update import RELATIVE_FLOOR

__all__ = ["changed", "normalize", "statistics", "step"]

_RECORD = tl.constexpr(RECORD)


def statistics(
    nodes: Nodes, walk: Walk, products: Products, flows: Flows, into: Weights, precision: str
) -> None:
    """Add ∂log P/∂W = Σ_b u_k p_i (n/w of eq. 6) to tensors shaped like the weights."""
    _reduce(into, nodes, walk, products, flows, precision, None, None)


def step(
    weights: Weights,
    nodes: Nodes,
    walk: Walk,
    products: Products,
    flows: Flows,
    step_size: Tensor,
    precision: str,
    pseudo: Tensor | None = None,
) -> None:
    """Move the weights by a step of stochastic EM, in place (see kernels.update.step_)."""
    _reduce(weights, nodes, walk, products, flows, precision, step_size, pseudo)


def _reduce(
    weights: Weights,
    nodes: Nodes,
    walk: Walk,
    products: Products,
    flows: Flows,
    precision: str,
    step_size: Tensor | None,
    pseudo: Tensor | None,
) -> None:
    K, v, f = weights.num_inputs, nodes.v, flows.f
    sizes = f if step_size is None else step_size, f if pseudo is None else pseudo
    _statistics[(len(walk),)](
        weights.base, weights.offsets, v, products.p, f, flows.above, walk.records, *sizes,
        v.shape[-1], v.stride(0), v.stride(1), f.stride(0), f.stride(1), walk.first_sum,
        RELATIVE_FLOOR / K, K, ALIGNED=weights.aligned, STEP=step_size is not None,
        PRIOR=pseudo is not None, PRECISION=PRECISIONS[precision],
        K_BLOCK=padded(K), B_BLOCK=64, num_warps=4, num_stages=2,
    )  # fmt: skip


@triton.jit
def _statistics(
    weight, offsets, v, products, flows, tops, records, step_size, pseudo,
    B, v_node, v_k, f_node, f_k, first_sum, floor,
    K: tl.constexpr, ALIGNED: tl.constexpr, STEP: tl.constexpr, PRIOR: tl.constexpr,
    PRECISION: tl.constexpr, K_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, K_BLOCK)[:, None]
    v_at = v + (row + first_sum) * v_node + k * v_k
    p_at = products + row * K * B + k * B
    above = tl.load(records + row * _RECORD + 3)
    f_at = flows + above * f_node + k * f_k
    if above < 0:
        f_at = tops + (-1 - above) * K * B + k * B
    counts = tl.zeros([K_BLOCK, K_BLOCK], tl.float32)
    total = tl.zeros([K_BLOCK, B_BLOCK], tl.float32)
    for start in range(0, B, B_BLOCK):
        b = start + tl.arange(0, B_BLOCK)[None, :]
        here = (k < K) & (b < B)
        flow = tl.load(f_at + b, mask=here, other=0.0)
        value = tl.load(v_at + b, mask=here, other=0.0)
        if above < 0:
            # Of the topmost sums gradients are known.
            flow *= value
        p = tl.load(p_at + b, mask=here, other=0.0)
        counts = dot(gradient(flow, value), tl.trans(p), counts, PRECISION)
        if STEP:
            total += tl.where(value > 0, flow, 0.0)
    across = tl.arange(0, K_BLOCK)[None, :]
    own = (k < K) & (across < K)
    begin = tl.load(offsets + row)
    if ALIGNED:
        begin = tl.multiple_of(begin, 16)
    at = weight + begin + (k * K + across)
    w = tl.load(at, mask=own, other=0.0)
    # The counts of a sum add up to its flow.
    w = changed(w, counts, tl.sum(total, 1)[:, None], own, step_size, pseudo, K, floor, True,
                STEP, PRIOR)  # fmt: skip
    tl.store(at, w, mask=own)


@triton.jit
def changed(
    w, counts, flow, own, step_size, pseudo, num_inputs: tl.constexpr, floor,
    ALL: tl.constexpr, STEP: tl.constexpr, PRIOR: tl.constexpr,
):  # fmt: skip
    """Weights after a step of EM, or statistics with new ones added; with ALL, of whole sums."""
    if STEP:
        counts *= w
        if PRIOR:
            added = tl.load(pseudo).to(tl.float32)
            flow += added
            counts += added / num_inputs
        target = tl.maximum(counts / tl.maximum(flow, TINY), floor)
        size = tl.load(step_size).to(tl.float32)
        new = (1 - size) * w + size * target
        if ALL:
            # Rounding is divided out, so that it does not add up over steps.
            new = tl.where(own, new, 0.0)
            new /= tl.maximum(tl.sum(new, 1)[:, None], TINY)
        w = tl.where(flow > 0, new, w)
    else:
        w += counts
    return w


def normalize(weights: Weights, sums: int) -> None:
    """Divide every sum's weights by what they add up to: rounding must not add up over steps."""
    K, I = weights.num_outputs, weights.num_inputs  # noqa: E741
    _normalize[(sums, triton.cdiv(K, 4))](
        weights.base, weights.offsets, I, K, ROWS=4, ENTRIES=min(1024, padded(I)), num_warps=4
    )


@triton.jit
def _normalize(
    weight, offsets, num_inputs: tl.constexpr, num_outputs, ROWS: tl.constexpr,
    ENTRIES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    k = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    weight += tl.load(offsets + row) + k * num_inputs
    total = tl.zeros([ROWS, ENTRIES], tl.float32)
    for start in range(0, num_inputs, ENTRIES):
        i = start + tl.arange(0, ENTRIES)[None, :]
        total += tl.load(weight + i, mask=(k < num_outputs) & (i < num_inputs), other=0.0)
    factor = 1.0 / tl.maximum(tl.sum(total, 1)[:, None], TINY)
    for start in range(0, num_inputs, ENTRIES):
        i = start + tl.arange(0, ENTRIES)[None, :]
        own = (k < num_outputs) & (i < num_inputs)
        tl.store(weight + i, tl.load(weight + i, mask=own, other=0.0) * factor, mask=own)
