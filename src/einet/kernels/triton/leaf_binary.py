"""Bernoulli leaves: sums of log p or log(1 − p), chosen by bits of the data, and a step of EM.

Both logarithms are kept: log(1 − p) + x (log p − log(1 − p)) would lose the digits of small ones.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from einet.families import ExponentialFamily
from einet.kernels.leaf_kernel import Added, FusedEvidence, FusedLeafKernel, Out, Pairs
from einet.kernels.triton import leaf_evidence
from einet.kernels.triton.leaf_common import (
    ENOUGH,
    cdiv,
    combine,
    forward_tile,
    launch,
    power_of_2,
    scope_part,
    store_values,
)
from einet.kernels.triton.leaf_evidence import WORD

__all__ = ["KERNEL", "BinaryKernel", "statistics_tile"]

# Warps that keep a large GPU busy.
_FULL = 4 * ENOUGH


@triton.jit
def _prepare(stored, out, pairs, K, BP: tl.constexpr, BK: tl.constexpr):
    """(log(1 − p), log p) of every pair, entries last."""
    pair = tl.program_id(0).to(tl.int64) * BP + tl.arange(0, BP)[:, None]
    k = (tl.program_id(1) * BK + tl.arange(0, BK)[None, :]).to(tl.int64)
    there = (pair < pairs) & (k < K)
    p = tl.load(stored + k * pairs + pair, mask=there, other=0.5).to(tl.float64)
    # Finite for every p in [0, 1], within the bounds of the torch path: 2⁻⁵³ and the least number.
    zero = tl.log(tl.maximum(1 - p, 1.1102230246251565e-16))
    one = tl.log(tl.maximum(p, 2.2250738585072014e-308))
    to = out + pair * 2 * K + k
    tl.store(to, zero.to(tl.float32), mask=there)
    tl.store(to + K, one.to(tl.float32), mask=there)


@triton.jit
def _forward(
    logs, bits, leaves, columns, v, v_node, v_k, m, m_node, total, t_node, t_k,
    s, K, batch, words,
    ALONE: tl.constexpr, PART: tl.constexpr, WORD: tl.constexpr,
    CHUNK: tl.constexpr, BK: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    leaf = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * BB + tl.arange(0, BB)[:, None]
    k = tl.arange(0, BK)[None, :]
    is_one = tl.full([BB, 1], 1, tl.int32) << (2 * (b % WORD))
    is_zero = is_one << 1
    # Where one word holds all of these samples, it is read once.
    at = tl.program_id(1) * BB // WORD if BB <= WORD else b // WORD
    sums = tl.zeros([BB, BK], tl.float64)
    impossible = at * 0
    begin, end = 0, s
    if PART:
        begin = tl.program_id(2) * PART
        end = tl.minimum(begin + PART, s)
    for start in range(begin, end, CHUNK):
        part = tl.zeros([BB, BK], tl.float32)
        for offset in tl.static_range(CHUNK):
            more = start + offset < end
            pair = leaf * s + start + offset
            column = tl.load(columns + pair, mask=more, other=0)
            word = tl.load(bits + column * words + at, mask=more & (at < words), other=0)
            of_zero = logs + pair * 2 * K + k
            entry = (k < K) & more
            zero = tl.load(of_zero, mask=entry, other=0.0)
            one = tl.load(of_zero + K, mask=entry, other=0.0)
            # Both bits are set where a value is neither, none where it is missing.
            impossible = impossible | (word & (word >> 1))
            known = tl.where((word & is_zero) != 0, zero, 0.0)
            part += tl.where((word & is_one) != 0, one, known)
        sums += part.to(tl.float64)
    sums = tl.where((impossible & is_one) != 0, float("-inf"), sums)
    if PART:
        row = tl.program_id(2).to(tl.int64) * tl.num_programs(0) + leaf
        tl.store(total + (row * K + k) * batch + b, sums, mask=(b < batch) & (k < K))
        return
    node = tl.load(leaves + leaf)
    store_values(sums, node, k, b, K, batch, v, v_node, v_k, m, m_node, total, t_node, t_k, ALONE)


def _launch_forward(
    pairs: Pairs, evidence: FusedEvidence, natural: tuple[Tensor, Tensor] | None, out: Out
) -> None:
    """Log probabilities of a block of leaves; by θ and A where given."""
    n, s, K, count = pairs.sizes
    bits, batch = evidence.cells, evidence.batch
    if natural is None:
        logs = torch.empty(count, 2, K, dtype=torch.float32, device=bits.device)
        size = min(32, power_of_2(K))
        grid = cdiv(count, 32), cdiv(K, size)
        launch(_prepare, grid, pairs.stored, logs, count, K, BP=32, BK=size)
    else:
        theta, A = natural
        logs = torch.stack([-A, theta[..., 0] - A]).permute(2, 0, 1).float().contiguous()
    tile = forward_tile(n, s, K, batch)
    part = scope_part(n * cdiv(batch, tile["BB"]), s)
    parts = cdiv(s, part) if part else 1
    arguments = out.arguments
    scratch = None
    if part:
        scratch = torch.empty(parts, n, K, batch, dtype=torch.float64, device=bits.device)
        arguments = (*arguments[:5], scratch, 0, 0)
    launch(
        _forward, (n, cdiv(batch, tile["BB"]), parts),
        logs, bits, pairs.leaves, pairs.columns, *arguments, s, K, batch, bits.shape[1],
        ALONE=out.total is None, PART=part, WORD=WORD, **tile,
    )  # fmt: skip
    if scratch is not None:
        combine(scratch, pairs.leaves, out)


@triton.jit
def _backward(
    flow, f_node, f_k, bits, stored, leaves, columns,
    min_probability, step_size, pseudo, centres, total, weighted,
    s, K, batch, pairs, words,
    UPDATE: tl.constexpr, PRIOR: tl.constexpr, WORD: tl.constexpr,
    BR: tl.constexpr, BK: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    leaf = tl.program_id(0).to(tl.int64)
    position = tl.program_id(1) * BR + tl.arange(0, BR)[:, None]
    k = tl.program_id(2) * BK + tl.arange(0, BK)[None, :]
    sample = tl.arange(0, BB)[None, None, :]
    own = position < s
    pair = leaf * s + position
    column = tl.load(columns + pair, mask=own, other=0)
    entry = flow + tl.load(leaves + leaf) * f_node + (k * f_k)[:, :, None]
    some_ones = tl.zeros([BR, BK, BB], tl.float32)
    some_zeros = tl.zeros([BR, BK, BB], tl.float32)
    for start in range(0, batch, BB):
        b = start + sample
        inside = b < batch
        p = tl.load(entry + b, mask=(k < K)[:, :, None] & inside, other=0.0)
        at = bits + (column * words)[:, :, None] + b // WORD
        word = tl.load(at, mask=own[:, :, None] & inside, other=0)
        state = (word >> (2 * (b % WORD))) & 3
        some_ones += p * (state == 1).to(tl.float32)
        some_zeros += p * (state == 2).to(tl.float32)
    ones = tl.sum(some_ones, 2)
    count = ones + tl.sum(some_zeros, 2)
    known = own & (k < K)
    cell = k.to(tl.int64) * pairs + pair
    if UPDATE:
        # All lanes of a warp compute this, so that float64 would take as long as the sums.
        if PRIOR:
            # Zeros where a variable was never observed, so that nothing is added there.
            added = tl.load(pseudo).to(tl.float64)
            centre = tl.load(centres + column * 2, mask=own, other=0.0)
            present = tl.load(centres + column * 2 + 1, mask=own, other=0.0)
            ones += (added * centre).to(tl.float32)
            count += (added * present).to(tl.float32)
        reached = known & (count > 0)
        target = ones / tl.where(reached, count, 1.0)
        old = tl.load(stored + cell, mask=known, other=0.5)
        # From the nearer end: nothing small is the difference of large numbers.
        size = tl.load(step_size).to(tl.float64)
        forth, back = size.to(tl.float32), (1 - size).to(tl.float32)
        new = tl.where(size < 0.5, old + forth * (target - old), target + back * (old - target))
        # The bounds of the family; the upper one is below 1 in float32, too.
        low = tl.load(min_probability + column, mask=own, other=0.25).to(tl.float64)
        high = tl.minimum(1 - low, 0.999999940395355224609375).to(tl.float32)
        new = tl.minimum(tl.maximum(new, low.to(tl.float32)), high)
        tl.store(stored + cell, new, mask=reached)
    else:
        tl.store(total + cell, tl.load(total + cell, mask=known, other=0.0) + count, mask=known)
        to = weighted + cell
        tl.store(to, tl.load(to, mask=known, other=0.0) + ones, mask=known)


def statistics_tile(n: int, s: int, K: int) -> dict[str, int]:
    """The tile of a program that sums over the batch: some entries of some variables of a leaf.

    One warp, whose variables share what is read of the flow. Where that makes too few programs,
    each takes one variable, and more threads take more samples at once.
    """
    entries, rows = min(8, power_of_2(K)), min(4, power_of_2(s))
    while rows > 1 and n * cdiv(s, rows) * cdiv(K, entries) < _FULL:
        rows //= 2
    few = n * cdiv(s, rows) * cdiv(K, entries) < _FULL
    return {"BR": rows, "BK": entries, "BB": 128 // rows, "num_warps": 4 if few else 1}


def _launch_backward(
    pairs: Pairs,
    evidence: FusedEvidence,
    flow: Tensor,
    step_size: Tensor | None,
    total: Tensor | None,
    weighted: Tensor | None,
    added: Added | None = None,
) -> None:
    n, s, K, count = pairs.sizes
    bits = evidence.cells
    tile = statistics_tile(n, s, K)
    unused = pairs.stored
    launch(
        _backward, (n, cdiv(s, tile["BR"]), cdiv(K, tile["BK"])),
        flow, *flow.stride()[:2], bits, pairs.stored, pairs.leaves, pairs.columns,
        pairs.hyper["min_probability"],
        unused if step_size is None else step_size,
        unused if added is None else added.count,
        unused if added is None else added.centres,
        unused if total is None else total,
        unused if weighted is None else weighted,
        s, K, evidence.batch, count, bits.shape[1],
        UPDATE=step_size is not None, PRIOR=added is not None, WORD=WORD, **tile,
    )  # fmt: skip


class BinaryKernel(FusedLeafKernel):
    """Bernoullis. Cells hold two bits a sample, many samples a word (int32)."""

    def evidence(
        self,
        family: ExponentialFamily,
        hyper: dict[str, Tensor],
        variables: Tensor,
        x: Tensor,
        observed: Tensor | None,
    ) -> FusedEvidence:
        return FusedEvidence(self, len(x), leaf_evidence.bits(x, observed, variables))

    def values(
        self,
        pairs: Pairs,
        evidence: FusedEvidence,
        natural: tuple[Tensor, Tensor] | None,
        out: Out,
    ) -> None:
        _launch_forward(pairs, evidence, natural, out)

    def add_statistics(
        self, pairs: Pairs, evidence: FusedEvidence, flow: Tensor, total: Tensor, weighted: Tensor
    ) -> None:
        _launch_backward(pairs, evidence, flow, None, total, weighted)

    def can_step(self, pairs: Pairs) -> bool:
        return True

    def step(
        self,
        pairs: Pairs,
        evidence: FusedEvidence,
        flow: Tensor,
        step_size: Tensor,
        added: Added | None,
    ) -> None:
        _launch_backward(pairs, evidence, flow, step_size, None, None, added)


KERNEL = BinaryKernel()
