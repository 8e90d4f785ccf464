"""Statistics of a linear layer's weights, and their step of EM, on a GPU.

A program makes the statistics :math:`\\sum_b u_k p_i` (n/w of eq. 6) of some outputs k for all
entries i. So it knows what they add up to, and can turn them into new weights at once. Layers of
trees have few sums, though: there every program takes some of the samples only, and a second, short
kernel adds up what they found.
"""

# pyright: reportArgumentType=false, reportCallIssue=false

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.linear import LinearEdges, product, scaled, upper
from einet.kernels.triton.products import PRECISIONS, TINY, dot, padded
from einet.kernels.update import RELATIVE_FLOOR

__all__ = ["statistics", "step"]

# Programs that keep a large GPU busy.
_ENOUGH = 512


def statistics(
    nodes: Nodes,
    edges: LinearEdges,
    gradient: Float[Tensor, "L K_out batch"],
    peak: Float[Tensor, "L batch"],
    largest: Int[Tensor, "L batch"],
    into: Float[Tensor, "L K_out I"],
    precision: str,
) -> None:
    """Add ∂log P/∂W = Σ_b u_k p_i (n/w of eq. 6) to a tensor shaped like the weights."""
    _reduce(into, nodes, edges, gradient, peak, largest, precision, None, None)


def step(
    weight: Float[Tensor, "L K_out I"],
    nodes: Nodes,
    edges: LinearEdges,
    gradient: Float[Tensor, "L K_out batch"],
    peak: Float[Tensor, "L batch"],
    largest: Int[Tensor, "L batch"],
    step_size: Float[Tensor, ""],
    precision: str,
    pseudo: Float[Tensor, ""] | None = None,
) -> None:
    """Move the weights by a step of stochastic EM, in place (see kernels.update.step_)."""
    _reduce(weight, nodes, edges, gradient, peak, largest, precision, step_size, pseudo)


def _reduce(
    weight: Tensor,
    nodes: Nodes,
    edges: LinearEdges,
    gradient: Tensor,
    peak: Tensor,
    largest: Tensor,
    precision: str,
    step_size: Tensor | None,
    pseudo: Tensor | None,
) -> None:
    num, outputs, inputs = weight.shape
    batch = nodes.v.shape[-1]
    tiles = _reduce_tiles(outputs, inputs)
    across = triton.cdiv(inputs, tiles["ENTRIES"])
    programs = num * triton.cdiv(outputs, tiles["K_BLOCK"]) * across
    blocks = triton.cdiv(batch, tiles["B_BLOCK"])
    parts = min(blocks, triton.cdiv(_ENOUGH, programs))
    samples = triton.cdiv(blocks, parts) * tiles["B_BLOCK"]
    parts = triton.cdiv(batch, samples)
    # A program that does not see all entries of a sum cannot change its weights.
    adds_up = parts * across > 1
    partial = weight.new_empty(parts, num, outputs, inputs) if adds_up else weight
    sizes = peak if step_size is None else step_size, peak if pseudo is None else pseudo
    options = {"STEP": step_size is not None, "PRIOR": pseudo is not None}
    _statistics[(programs, parts)](
        weight, partial, nodes.v, edges.children, edges.ends, gradient, peak, largest, *sizes,
        batch, samples, weight.numel(), nodes.v.stride(0), nodes.v.stride(1),
        gradient.stride(0), gradient.stride(1), inputs, outputs, RELATIVE_FLOOR / inputs,
        PARTS=adds_up, AT_ONCE=edges.at_once, PRECISION=PRECISIONS[precision],
        **options, **tiles,
    )  # fmt: skip
    if adds_up:
        entries = padded(inputs)
        rows = max(1, 1024 // entries)
        _add_up[(triton.cdiv(num * outputs, rows),)](
            weight, partial, *sizes, parts, weight.numel(), num * outputs, inputs,
            RELATIVE_FLOOR / inputs,
            ROWS=rows, ENTRIES=entries, num_warps=4, **options,
        )  # fmt: skip


def _reduce_tiles(outputs: int, inputs: int) -> dict:
    K, I = padded(outputs), padded(inputs)  # noqa: E741
    if I <= 32:
        return {"K_BLOCK": min(K, 32), "ENTRIES": I, "B_BLOCK": 32, "num_warps": 2}
    if I <= 64:
        return {"K_BLOCK": min(K, 64), "ENTRIES": I, "B_BLOCK": 16, "num_warps": 4}
    if I <= 128:
        return {"K_BLOCK": min(K, 32), "ENTRIES": I, "B_BLOCK": 16, "num_warps": 8}
    # Larger tiles would not fit in the registers.
    return {"K_BLOCK": min(K, 64), "ENTRIES": min(I, 256), "B_BLOCK": 32, "num_warps": 8}


@triton.jit
def _statistics(
    weight, partial, v, children, ends, gradient, sum_peak, largest, step_size, pseudo,
    B, samples, part_size, v_node, v_k, g_node, g_k,
    num_inputs: tl.constexpr, num_outputs: tl.constexpr, floor,
    PARTS: tl.constexpr, AT_ONCE: tl.constexpr, PRECISION: tl.constexpr,
    STEP: tl.constexpr, PRIOR: tl.constexpr,
    K_BLOCK: tl.constexpr, ENTRIES: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    """With PARTS, statistics of ``samples`` of them go to ``partial``; otherwise weights change."""
    blocks, parts = tl.cdiv(num_outputs, K_BLOCK), tl.cdiv(num_inputs, ENTRIES)
    begin_i = (tl.program_id(0) % parts) * ENTRIES
    program = tl.program_id(0) // parts
    row = (program // blocks).to(tl.int64)
    k = (program % blocks) * K_BLOCK + tl.arange(0, K_BLOCK)[:, None]
    i = begin_i + tl.arange(0, ENTRIES)[:, None]
    first, last = tl.load(ends + row), tl.load(ends + row + 1)
    counts = tl.zeros([K_BLOCK, ENTRIES], tl.float32)
    begin = tl.program_id(1) * samples
    end = tl.minimum(begin + samples, B)
    for start in range(begin, end, B_BLOCK):
        b = start + tl.arange(0, B_BLOCK)[None, :]
        inside = b < end
        u = upper(gradient + row * g_node, sum_peak + row * B, k, b, inside, g_k, num_outputs)
        here = (i < num_inputs) & inside
        p, e = product(v, children, first, last, i, b, here, v_node, v_k, AT_ONCE)
        p = scaled(p, e, tl.load(largest + row * B + b, mask=inside, other=0))
        counts += dot(u, tl.trans(p), tl.zeros([K_BLOCK, ENTRIES], tl.float32), PRECISION)
    across = begin_i + tl.arange(0, ENTRIES)[None, :]
    own = (k < num_outputs) & (across < num_inputs)
    at = (row * num_outputs + k) * num_inputs + across
    if PARTS:
        tl.store(partial + tl.program_id(1).to(tl.int64) * part_size + at, counts, mask=own)
    else:
        w = tl.load(weight + at, mask=own, other=0.0)
        w = _changed(w, counts, own, step_size, pseudo, num_inputs, floor, STEP, PRIOR)
        tl.store(weight + at, w, mask=own)


@triton.jit
def _add_up(
    weight, partial, step_size, pseudo, parts, part_size, num_rows, num_inputs: tl.constexpr, floor,
    ROWS: tl.constexpr, ENTRIES: tl.constexpr, STEP: tl.constexpr, PRIOR: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
    across = tl.arange(0, ENTRIES)[None, :]
    own = (row < num_rows) & (across < num_inputs)
    at = row * num_inputs + across
    counts = tl.zeros([ROWS, ENTRIES], tl.float32)
    found_at = partial + at
    for _ in range(parts):
        counts += tl.load(found_at, mask=own, other=0.0)
        found_at += part_size
    w = tl.load(weight + at, mask=own, other=0.0)
    w = _changed(w, counts, own, step_size, pseudo, num_inputs, floor, STEP, PRIOR)
    tl.store(weight + at, w, mask=own)


@triton.jit
def _changed(
    w, counts, own, step_size, pseudo, num_inputs: tl.constexpr, floor,
    STEP: tl.constexpr, PRIOR: tl.constexpr,
):  # fmt: skip
    """Weights after a step of EM, or statistics with new ones added."""
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
    return w
