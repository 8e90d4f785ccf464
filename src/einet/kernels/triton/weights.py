"""Statistics of an einsum layer's weights, and their step of EM, on a GPU.

The statistics :math:`\\sum_b u_k v_i v'_j` (n/w of eq. 6) are summed in registers, where the same
kernel turns them into new weights: one pass over the weights does all of a step.
"""

# pyright: reportArgumentType=false, reportCallIssue=false

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.einsum import EinsumEdges
from einet.kernels.triton.products import PRECISIONS, TINY, dot, padded
from einet.kernels.update import RELATIVE_FLOOR

__all__ = ["normalize", "statistics", "step"]

# So many weights of one sum are held by a program at a time; with more it is slower on an H200.
_MOST_HELD = 4096


def statistics(
    nodes: Nodes,
    edges: EinsumEdges,
    gradient: Float[Tensor, "L K_out batch"],
    peak: Float[Tensor, "L batch"],
    into: Float[Tensor, "L K_out IJ"],
    precision: str,
) -> None:
    """Add ∂log P/∂W = Σ_b u_k v_i v'_j (n/w of eq. 6) to a tensor shaped like the weights.

    ``gradient`` is ∂log P/∂v of the sums and ``peak`` what their values were divided by.
    """
    _reduce(into, nodes, edges, gradient, peak, None, None, precision, None)


def step(
    weight: Float[Tensor, "L K_out IJ"],
    nodes: Nodes,
    edges: EinsumEdges,
    gradient: Float[Tensor, "L K_out batch"],
    peak: Float[Tensor, "L batch"],
    totals: Float[Tensor, "L blocks K_out"],
    step_size: Float[Tensor, ""],
    precision: str,
    pseudo: Float[Tensor, ""] | None = None,
) -> None:
    """Move the weights by a step of stochastic EM, in place (see kernels.update.step_).

    The counts n of a sum add up to its total flow, which is known beforehand: so that statistics,
    target and average take one pass over the weights. Another, short one divides rounding out.
    """
    _reduce(weight, nodes, edges, gradient, peak, totals, step_size, precision, pseudo)
    normalize(weight, totals, pseudo)


def _reduce(
    weight: Tensor,
    nodes: Nodes,
    edges: EinsumEdges,
    gradient: Tensor,
    peak: Tensor,
    totals: Tensor | None,
    step_size: Tensor | None,
    precision: str,
    pseudo: Tensor | None,
) -> None:
    num, outputs, options = weight.shape
    batch = nodes.v.shape[-1]
    tiles = _reduce_tiles(num, outputs, edges.num_right, batch)
    programs = num * triton.cdiv(edges.num_left, tiles["I_BLOCK"])
    programs *= triton.cdiv(edges.num_right, tiles["J_BLOCK"])
    programs *= triton.cdiv(outputs, tiles["K_BLOCK"])
    _statistics[(programs,)](
        weight, nodes.v, edges.left, edges.right_or_left, gradient, peak,
        peak if totals is None else totals, peak if step_size is None else step_size,
        peak if pseudo is None else pseudo,
        batch, nodes.v.stride(0), nodes.v.stride(1), gradient.stride(0), gradient.stride(1),
        edges.num_left, edges.num_right, outputs,
        0 if totals is None else totals.shape[1], RELATIVE_FLOOR / options,
        UNARY=edges.right is None, STEP=step_size is not None, PRIOR=pseudo is not None,
        PRECISION=PRECISIONS[precision], **tiles,
    )  # fmt: skip


def _reduce_tiles(num: int, outputs: int, right: int, batch: int) -> dict:
    """Sizes of tiles, as measured on an H200."""
    K = min(padded(outputs), 64)
    if K <= 16 and right <= 16:
        if num * batch >= 1 << 19:
            return dict(K_BLOCK=K, I_BLOCK=2, J_BLOCK=16, B_BLOCK=32, num_warps=1, STAGES=3)
        return dict(K_BLOCK=K, I_BLOCK=4, J_BLOCK=16, B_BLOCK=32, num_warps=2, STAGES=3)
    if right % 32 == 0 and K == 64:
        return dict(K_BLOCK=K, I_BLOCK=4, J_BLOCK=32, B_BLOCK=64, num_warps=4, STAGES=1)
    if right % 16 == 0:
        return dict(K_BLOCK=K, I_BLOCK=8, J_BLOCK=16, B_BLOCK=64, num_warps=4, STAGES=1)
    return dict(K_BLOCK=K, I_BLOCK=8, J_BLOCK=8, B_BLOCK=32, num_warps=4, STAGES=1)


@triton.jit
def _statistics(
    weight, v, left, right, gradient, sum_peak, totals, step_size, pseudo,
    B, v_node, v_k, g_node, g_k,
    num_left: tl.constexpr, num_right: tl.constexpr, num_outputs: tl.constexpr, blocks, floor,
    UNARY: tl.constexpr, STEP: tl.constexpr, PRIOR: tl.constexpr, PRECISION: tl.constexpr,
    K_BLOCK: tl.constexpr, I_BLOCK: tl.constexpr, J_BLOCK: tl.constexpr, B_BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    k_start = (program % tl.cdiv(num_outputs, K_BLOCK)) * K_BLOCK
    program = program // tl.cdiv(num_outputs, K_BLOCK)
    j_start = (program % tl.cdiv(num_right, J_BLOCK)) * J_BLOCK
    program = program // tl.cdiv(num_right, J_BLOCK)
    i_start = (program % tl.cdiv(num_left, I_BLOCK)) * I_BLOCK
    row = program // tl.cdiv(num_left, I_BLOCK)
    row64 = row.to(tl.int64)
    i, j = i_start + tl.arange(0, I_BLOCK), j_start + tl.arange(0, J_BLOCK)
    k = k_start + tl.arange(0, K_BLOCK)
    v_left_at = v + tl.load(left + row) * v_node + i[:, None] * v_k
    v_right_at = v + tl.load(right + row) * v_node + j[:, None] * v_k
    g_at = gradient + row64 * g_node + k[:, None] * g_k
    counts = tl.zeros([I_BLOCK * J_BLOCK, K_BLOCK], tl.float32)
    for start in tl.range(0, B, B_BLOCK, num_stages=STAGES):
        b = start + tl.arange(0, B_BLOCK)
        inside = (b < B)[None, :]
        g = tl.load(g_at + b[None, :], mask=(k[:, None] < num_outputs) & inside, other=0.0)
        peak = tl.load(sum_peak + row64 * B + b[None, :], mask=inside, other=0.0)
        u = g * tl.where(peak > 0, 1.0 / tl.maximum(peak, TINY), 0.0)
        v_left = tl.load(v_left_at + b[None, :], mask=(i[:, None] < num_left) & inside, other=0.0)
        j_here = (j[:, None] < num_right) & inside
        if UNARY:
            v_right = tl.where(j_here, 1.0, 0.0)
        else:
            v_right = tl.load(v_right_at + b[None, :], mask=j_here, other=0.0)
        products = tl.reshape(
            v_left[:, None, :] * v_right[None, :, :], [I_BLOCK * J_BLOCK, B_BLOCK]
        )
        counts = dot(products, tl.trans(u), counts, PRECISION)
    n = tl.arange(0, I_BLOCK * J_BLOCK)
    i, j = (i_start + n // J_BLOCK)[:, None], (j_start + n % J_BLOCK)[:, None]
    here = (i < num_left) & (j < num_right) & (k[None, :] < num_outputs)
    w_at = weight + (row64 * num_outputs + k[None, :]) * (num_left * num_right) + i * num_right + j
    w = tl.load(w_at, mask=here, other=0.0)
    if STEP:
        total = tl.zeros([K_BLOCK], tl.float32)
        for block in range(blocks):
            part_at = totals + (row64 * blocks + block) * num_outputs + k
            total += tl.load(part_at, mask=k < num_outputs, other=0.0)
        size = tl.load(step_size).to(tl.float32)
        counts *= w
        if PRIOR:
            added = tl.load(pseudo).to(tl.float32)
            total += added
            counts += added / (num_left * num_right)
        target = tl.maximum(counts / tl.maximum(total, TINY)[None, :], floor)
        w = tl.where((total > 0)[None, :], (1 - size) * w + size * target, w)
    else:
        w += counts
    tl.store(w_at, w, mask=here)


def normalize(
    weight: Float[Tensor, "L K_out IJ"],
    totals: Float[Tensor, "L blocks K_out"] | None = None,
    pseudo: Float[Tensor, ""] | None = None,
) -> None:
    """Divide every sum's weights by what they add up to, in place.

    With ``totals``, those of sums without any flow or pseudo-count stay as they are.
    """
    num, outputs, options = weight.shape
    # A sum whose weights a program holds is read once, others twice.
    block = min(_MOST_HELD, triton.next_power_of_2(options))
    # Several short sums for a program: one of a few numbers would be over before it has begun.
    rows = max(1, 1024 // block)
    _normalize[(triton.cdiv(num * outputs, rows),)](
        weight, weight if totals is None else totals, weight if pseudo is None else pseudo,
        num * outputs, options, outputs, 0 if totals is None else totals.shape[1],
        TOTALS=totals is not None, PRIOR=pseudo is not None, HELD=block >= options,
        ROWS=rows, BLOCK=block, num_warps=4,
    )  # fmt: skip


@triton.jit
def _normalize(
    weight, totals, pseudo, num_rows, length, num_outputs, blocks,
    TOTALS: tl.constexpr, PRIOR: tl.constexpr, HELD: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    there = row < num_rows
    weight += row[:, None] * length
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)[None, :]
        total += tl.load(weight + at, mask=there[:, None] & (at < length), other=0.0)
    factor = 1.0 / tl.maximum(tl.sum(total, 1), TINY)
    if TOTALS:
        flow = tl.zeros([ROWS], tl.float32)
        part_at = totals + (row // num_outputs) * blocks * num_outputs + row % num_outputs
        for block in range(blocks):
            flow += tl.load(part_at + block * num_outputs, mask=there, other=0.0)
        if PRIOR:
            flow += tl.load(pseudo).to(tl.float32)
        factor = tl.where(flow > 0, factor, 1.0)
    if HELD:
        at = tl.arange(0, BLOCK)[None, :]
        tl.store(weight + at, total * factor[:, None], mask=there[:, None] & (at < length))
    else:
        for start in range(0, length, BLOCK):
            at = start + tl.arange(0, BLOCK)[None, :]
            here = there[:, None] & (at < length)
            w = tl.load(weight + at, mask=here, other=0.0)
            tl.store(weight + at, w * factor[:, None], mask=here)
