"""Statistics of a linear layer's weights, and their step of EM, on a GPU.

A program makes the statistics :math:`\\sum_b u_k p_i` (n/w of eq. 6) of some outputs k for all
entries i. So it knows what they add up to, and can turn them into new weights at once.
"""

# pyright: reportArgumentType=false, reportCallIssue=false

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from einet.kernels.torch import Nodes
from einet.kernels.triton.linear import Edges, highest, product, scaled, upper
from einet.kernels.triton.products import PRECISIONS, TINY, dot, padded
from einet.kernels.update import RELATIVE_FLOOR

__all__ = ["statistics", "step"]


def statistics(
    nodes: Nodes,
    edges: Edges,
    gradient: Float[Tensor, "L K_out batch"],
    peak: Float[Tensor, "L batch"],
    into: Float[Tensor, "L K_out I"],
    precision: str,
) -> None:
    """Add ∂log P/∂W = Σ_b u_k p_i (n/w of eq. 6) to a tensor shaped like the weights."""
    _reduce(into, nodes, edges, gradient, peak, precision, None, None)


def step(
    weight: Float[Tensor, "L K_out I"],
    nodes: Nodes,
    edges: Edges,
    gradient: Float[Tensor, "L K_out batch"],
    peak: Float[Tensor, "L batch"],
    step_size: Float[Tensor, ""],
    precision: str,
    pseudo: Float[Tensor, ""] | None = None,
) -> None:
    """Move the weights by a step of stochastic EM, in place (see kernels.update.step_)."""
    _reduce(weight, nodes, edges, gradient, peak, precision, step_size, pseudo)


def _reduce(
    weight: Tensor,
    nodes: Nodes,
    edges: Edges,
    gradient: Tensor,
    peak: Tensor,
    precision: str,
    step_size: Tensor | None,
    pseudo: Tensor | None,
) -> None:
    num, outputs, inputs = weight.shape
    how = _reduce_tiles(outputs, inputs)
    _statistics[(num * triton.cdiv(outputs, how["K_BLOCK"]),)](
        weight, nodes.v, edges.children, edges.ends, gradient, peak,
        peak if step_size is None else step_size, peak if pseudo is None else pseudo,
        nodes.v.shape[-1], nodes.v.stride(0), nodes.v.stride(1),
        gradient.stride(0), gradient.stride(1), inputs, outputs, RELATIVE_FLOOR / inputs,
        STEP=step_size is not None, PRIOR=pseudo is not None,
        PRECISION=PRECISIONS[precision], **how,
    )  # fmt: skip


def _reduce_tiles(outputs: int, inputs: int) -> dict:
    K, I = padded(outputs), padded(inputs)  # noqa: E741
    if I <= 32:
        return {"K_BLOCK": min(K, 16), "ENTRIES": I, "B_BLOCK": 64, "num_warps": 2}
    if I <= 64:
        return {"K_BLOCK": min(K, 32), "ENTRIES": I, "B_BLOCK": 32, "num_warps": 4}
    return {"K_BLOCK": min(K, 32), "ENTRIES": I, "B_BLOCK": 32, "num_warps": 4 if I <= 128 else 8}


@triton.jit
def _statistics(
    weight, v, children, ends, gradient, sum_peak, step_size, pseudo,
    B, v_node, v_k, g_node, g_k, num_inputs: tl.constexpr, num_outputs: tl.constexpr, floor,
    STEP: tl.constexpr, PRIOR: tl.constexpr, PRECISION: tl.constexpr,
    K_BLOCK: tl.constexpr, ENTRIES: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    parts = tl.cdiv(num_outputs, K_BLOCK)
    row = (tl.program_id(0) // parts).to(tl.int64)
    k = (tl.program_id(0) % parts) * K_BLOCK + tl.arange(0, K_BLOCK)[:, None]
    i = tl.arange(0, ENTRIES)[:, None]
    first, last = tl.load(ends + row), tl.load(ends + row + 1)
    counts = tl.zeros([K_BLOCK, ENTRIES], tl.float32)
    for start in range(0, B, B_BLOCK):
        b = start + tl.arange(0, B_BLOCK)[None, :]
        inside = b < B
        u = upper(gradient + row * g_node, sum_peak + row * B, k, b, inside, g_k, num_outputs)
        here = (i < num_inputs) & inside
        p, e = product(v, children, first, last, i, b, here, v_node, v_k)
        p = scaled(p, e, highest(p, e))
        counts += dot(u, tl.trans(p), tl.zeros([K_BLOCK, ENTRIES], tl.float32), PRECISION)
    across = tl.arange(0, ENTRIES)[None, :]
    own = (k < num_outputs) & (across < num_inputs)
    w_at = weight + (row * num_outputs + k) * num_inputs + across
    w = tl.load(w_at, mask=own, other=0.0)
    if STEP:
        counts *= w
        if PRIOR:
            counts += tl.where(own, tl.load(pseudo).to(tl.float32) / num_inputs, 0.0)
        total = tl.sum(counts, 1, keep_dims=True)
        target = tl.where(own, tl.maximum(counts, total * floor), 0.0)
        target /= tl.maximum(tl.sum(target, 1, keep_dims=True), TINY)
        size = tl.load(step_size).to(tl.float32)
        new = (1 - size) * w + size * target
        # Rounding is divided out, so that it does not add up over steps.
        new /= tl.maximum(tl.sum(new, 1, keep_dims=True), TINY)
        w = tl.where(total > 0, new, w)
    else:
        w += counts
    tl.store(w_at, w, mask=own)
