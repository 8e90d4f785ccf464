"""Statistics of the weights of a whole tree of linear sums, and their step of EM, on a GPU.

Once all gradients are known, no sum waits for another: one launch serves all of them. A program
makes the statistics :math:`\\sum_b u_k p_i` (n/w of eq. 6) of some outputs k and some entries i of
a sum, and turns them into new weights at once: what those of an output add up to is its flow.
"""

# pyright: reportArgumentType=false, reportCallIssue=false

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.products import PRECISIONS, TINY, dot, padded
from einet.kernels.triton.tree_parts import Products, TreeEdges, Weights, rescaled
from einet.kernels.update import RELATIVE_FLOOR

__all__ = ["changed", "normalize", "statistics", "step"]


def statistics(
    nodes: Nodes,
    edges: TreeEdges,
    products: Products,
    gradient: Float[Tensor, "nodes K batch"],
    into: Weights,
    precision: str,
) -> None:
    """Add ∂log P/∂W = Σ_b u_k p_i (n/w of eq. 6) to tensors shaped like the weights."""
    _reduce(into, nodes, edges, products, gradient, precision, None, None)


def step(
    weights: Weights,
    nodes: Nodes,
    edges: TreeEdges,
    products: Products,
    gradient: Float[Tensor, "nodes K batch"],
    step_size: Float[Tensor, ""],
    precision: str,
    pseudo: Float[Tensor, ""] | None = None,
) -> None:
    """Move the weights by a step of stochastic EM, in place (see kernels.update.step_)."""
    _reduce(weights, nodes, edges, products, gradient, precision, step_size, pseudo)


def _reduce(
    weights: Weights,
    nodes: Nodes,
    edges: TreeEdges,
    products: Products,
    gradient: Tensor,
    precision: str,
    step_size: Tensor | None,
    pseudo: Tensor | None,
) -> None:
    K, I, batch = weights.num_outputs, weights.num_inputs, gradient.shape[-1]  # noqa: E741
    tiles = _tiles(K, I)
    parts = triton.cdiv(K, tiles["K_BLOCK"]) * triton.cdiv(I, tiles["I_BLOCK"])
    sizes = gradient if step_size is None else step_size, gradient if pseudo is None else pseudo
    options = {"STEP": step_size is not None, "PRIOR": pseudo is not None}
    _statistics[(len(edges) * parts,)](
        weights.base, weights.offsets, nodes.v, products.p, products.exponents, gradient, *sizes,
        batch, nodes.v.stride(0), nodes.v.stride(1), gradient.stride(0), gradient.stride(1),
        edges.first_sum, I, K, products.group, RELATIVE_FLOOR / I, ALIGNED=weights.aligned,
        PRECISION=PRECISIONS[precision], **options, **tiles,
    )  # fmt: skip
    if step_size is not None and tiles["I_BLOCK"] < I:
        normalize(weights, len(edges))


def _tiles(outputs: int, inputs: int) -> dict:
    """Sizes of tiles, the fastest of those timed on an H200."""
    K, I = padded(outputs), padded(inputs)  # noqa: E741
    if max(K, I) <= 64:
        return {"K_BLOCK": K, "I_BLOCK": I, "B_BLOCK": 64, "num_warps": 4, "num_stages": 2}
    return {"K_BLOCK": min(K, 128), "I_BLOCK": min(I, 128), "B_BLOCK": 32, "num_warps": 8,
            "num_stages": 2}  # fmt: skip


@triton.jit
def _statistics(
    weight, offsets, v, products, exponents, gradient, step_size, pseudo,
    B, v_node, v_k, g_node, g_k, first_sum,
    num_inputs: tl.constexpr, num_outputs: tl.constexpr, GROUP: tl.constexpr, floor,
    ALIGNED: tl.constexpr, STEP: tl.constexpr, PRIOR: tl.constexpr, PRECISION: tl.constexpr,
    K_BLOCK: tl.constexpr, I_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    across_i: tl.constexpr = (num_inputs + I_BLOCK - 1) // I_BLOCK
    across_k: tl.constexpr = (num_outputs + K_BLOCK - 1) // K_BLOCK
    program = tl.program_id(0)
    i = (program % across_i) * I_BLOCK + tl.arange(0, I_BLOCK)[:, None]
    program = program // across_i
    k = (program % across_k) * K_BLOCK + tl.arange(0, K_BLOCK)[:, None]
    row = (program // across_k).to(tl.int64)
    g_at = gradient + (row + first_sum) * g_node + k * g_k
    v_at = v + (row + first_sum) * v_node + k * v_k
    p_at = products + row * num_inputs * B + i * B
    counts = tl.zeros([K_BLOCK, I_BLOCK], tl.float32)
    total = tl.zeros([K_BLOCK, B_BLOCK], tl.float32)
    for start in range(0, B, B_BLOCK):
        b = start + tl.arange(0, B_BLOCK)[None, :]
        inside = b < B
        u = tl.load(g_at + b, mask=(k < num_outputs) & inside, other=0.0)
        here = (i < num_inputs) & inside
        p = tl.load(p_at + b, mask=here, other=0.0)
        p = rescaled(p, exponents, row, i, b, here, B, num_inputs, GROUP)
        counts = dot(u, tl.trans(p), counts, PRECISION)
        if STEP:
            total += u * tl.load(v_at + b, mask=(k < num_outputs) & inside, other=0.0)
    i = tl.trans(i)
    own = (k < num_outputs) & (i < num_inputs)
    begin = tl.load(offsets + row)
    if ALIGNED:
        begin = tl.multiple_of(begin, 16)
    at = weight + begin + (k * num_inputs + i)
    w = tl.load(at, mask=own, other=0.0)
    # The counts of a sum add up to its flow, which is known without those of other programs.
    flow = tl.sum(total, 1)[:, None]
    w = changed(w, counts, flow, own, step_size, pseudo, num_inputs, floor, across_i == 1,
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
