"""A step of EM of categorical leaves: counts of states, and new tables from them.

Counts are products of one-hot vectors with flows, on tensor cores and without any rounding of the
operands: a flow is cut into three bf16 numbers, 24 bits in all, and a one-hot vector needs but one.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from einet.kernels.leaf_kernel import Added, FusedEvidence, Pairs
from einet.kernels.triton.leaf_common import cdiv, launch, power_of_2
from einet.kernels.triton.products import exact_dot

__all__ = ["LARGEST_STEP", "step"]

#: The largest number of states of which a program can hold whole tables.
LARGEST_STEP = 1024
# Rounds of Newton's method; no floors have needed as many yet.
_ROUNDS = tl.constexpr(16)


def step(
    pairs: Pairs, evidence: FusedEvidence, flow: Tensor, step_size: Tensor, added: Added | None
) -> None:
    """Move tables of at most ``LARGEST_STEP`` states towards the counts, in place."""
    _, s, K, count = pairs.sizes
    S, batch = pairs.stored.shape[-1], evidence.batch
    tile = _tile(S, K)
    launch(
        _step, (count, cdiv(K, tile["BK"])),
        flow, *flow.stride()[:2], evidence.cells, pairs.stored, pairs.leaves, pairs.columns,
        pairs.hyper["num_categories"], pairs.hyper["min_probability"], step_size,
        step_size if added is None else added.count,
        step_size if added is None else added.centres,
        s, K, batch, count, S, PRIOR=added is not None, **tile,
    )  # fmt: skip


def _tile(S: int, K: int) -> dict[str, int]:
    """States, entries and samples of a program; products of matrices need 16 of each at least."""
    states = max(16, power_of_2(S))
    entries = max(16, min(32, 8192 // states, power_of_2(K)))
    warps = max(1, min(4 if states <= 256 else 8, entries * states // 1024))
    return {"BS": states, "BK": entries, "BB": 32, "num_warps": warps, "num_stages": 3}


@triton.jit
def _step(
    flow, f_node, f_k, states, stored, leaves, columns, num_categories, min_probability,
    step_size, pseudo, centres, s, K, batch, pairs, S,
    PRIOR: tl.constexpr, BS: tl.constexpr, BK: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BK + tl.arange(0, BK)[None, :]
    state = tl.arange(0, BS)[:, None]
    node = tl.load(leaves + pair // s)
    column = tl.load(columns + pair).to(tl.int64)
    flow += node * f_node + k * f_k
    states += column * batch
    counts = tl.zeros([BS, BK], tl.float32)
    for start in range(0, batch, BB):
        b = start + tl.arange(0, BB)
        x = tl.load(states + b, mask=b < batch, other=-1)
        p = tl.load(flow + b[:, None], mask=(k < K) & (b < batch)[:, None], other=0.0)
        counts = exact_dot(state == x[None, :], p, counts)
    if PRIOR:
        # Zeros where a variable was never observed, so that nothing is added there.
        centre = tl.load(centres + column * (S + 1) + state, mask=state < S, other=0.0)
        counts += (tl.load(pseudo).to(tl.float64) * centre).to(tl.float32)
    known = tl.sum(counts, 0)[None, :]
    at = stored + (k.to(tl.int64) * pairs + pair) * S + state
    there = (k < K) & (state < S) & (known > 0)
    old = tl.load(at, mask=there, other=0.0)
    size = tl.load(step_size).to(tl.float32)
    phi = old + size * (counts / tl.where(known > 0, known, 1.0) - old)
    count = tl.load(num_categories + column).to(tl.int32)
    least = tl.load(min_probability + column).to(tl.float32)
    tl.store(at, _floored(phi, state < count, least), mask=there)


@triton.jit
def _floored(phi, valid, least):
    """The likeliest probabilities above their floors: families/simplex.py says how and why."""
    floor = tl.where(valid, least, 0.0)
    room = tl.maximum(1 - tl.sum(floor, 0)[None, :], 0.0)
    shares = tl.where(valid, tl.maximum(phi, 0.0), 0.0)
    largest = tl.max(shares, 0)[None, :]
    shares = tl.where(largest > 0, shares / tl.where(largest > 0, largest, 1.0), floor)
    u = 1 / tl.sum(shares, 0)[None, :]
    moving = tl.max((u > 0).to(tl.int32))
    for _ in range(_ROUNDS):
        # It falls from round to round, until rounding is all that changes: mostly after a few.
        if moving > 0:
            excess = tl.maximum(shares * u - floor, 0.0)
            kept = tl.sum(tl.where(excess > 0, floor, 0.0), 0)[None, :]
            above = tl.sum(excess, 0)[None, :]
            new = tl.minimum(u, u * (room + kept) / tl.maximum(above + kept, 1e-37))
            moving = tl.max((new < u * (1 - 1e-7)).to(tl.int32))
            u = new
    excess = tl.maximum(shares * u - floor, 0.0)
    return excess * (room / tl.maximum(tl.sum(excess, 0)[None, :], 1e-37)) + floor
