"""A step of EM of categorical leaves: counts of states, and new tables from them.

Counts are products of one-hot vectors with flows, on tensor cores and without any rounding of the
operands: a flow is cut into three bf16 numbers, 24 bits in all, and a one-hot vector needs but one.

Of many states a batch shows few, so that most rows of such a product would be zero. States that
occur are therefore numbered first, once for each variable, and products are made over these *ranks*
only: as many blocks of them as a variable needs. What a block has found is put into the tables at
once. After the last one, tables are read row by row and brought above their floors.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Int
from torch import Tensor

from einet.kernels.leaf_kernel import Added, FusedEvidence, Pairs
from einet.kernels.triton.leaf_common import cdiv, launch, power_of_2
from einet.kernels.triton.products import exact_dot

__all__ = ["LARGEST_STEP", "Ranks", "step"]

#: The largest number of states of which a program can hold whole tables.
LARGEST_STEP = 1024
# Rounds of Newton's method; no floors have needed as many yet.
_ROUNDS = tl.constexpr(16)
# Ranks of a block, as many as the rows of a product of matrices; so few states need no numbers.
_AT_ONCE = 64


def step(
    pairs: Pairs, evidence: FusedEvidence, flow: Tensor, step_size: Tensor, added: Added | None
) -> None:
    """Move tables of at most ``LARGEST_STEP`` states towards the counts, in place."""
    _, s, K, count = pairs.sizes
    S, batch = pairs.stored.shape[-1], evidence.batch
    tables = (
        pairs.stored, pairs.leaves, pairs.columns,
        pairs.hyper["num_categories"], pairs.hyper["min_probability"], step_size,
        step_size if added is None else added.count,
        step_size if added is None else added.centres,
    )  # fmt: skip
    sizes = (s, K, batch, count, S, added is not None)
    if S <= _AT_ONCE:
        tile = _tile(S, K)
        grid = (count, cdiv(K, tile["BK"]))
        launch(_step, grid, flow, *flow.stride()[:2], evidence.cells, *tables, *sizes, **tile)
        return
    ranks = Ranks.of(evidence.cells, S)
    known = torch.empty(count, K, dtype=torch.float32, device=flow.device)
    tile = _ranked_tile(S, K)
    launch(
        _ranked_step, (count, cdiv(K, tile["BK"])),
        flow, *flow.stride()[:2], ranks.cells, ranks.of_state, ranks.states, ranks.numbers, known,
        *tables, *sizes, **tile,
    )  # fmt: skip


def _tile(S: int, K: int) -> dict[str, int]:
    """States, entries and samples of a program; products of matrices need 16 of each at least."""
    states = max(16, power_of_2(S))
    entries = max(16, min(32, power_of_2(K)))
    warps = max(1, min(4, entries * states // 1024))
    return {"BS": states, "BK": entries, "BB": 32, "num_warps": warps, "num_stages": 3}


def _ranked_tile(S: int, K: int) -> dict[str, int]:
    """The same for blocks of ranks; and how many rows of a table are brought above their floors."""
    states = power_of_2(S)
    entries = max(16, min(32, power_of_2(K)))
    rows = min(entries, max(4, 2048 // states))
    return {"BS": states, "BR": rows, "BK": entries, "BB": 64, "R": _AT_ONCE,
            "num_warps": 4, "num_stages": 3, "maxnreg": 128}  # fmt: skip


# -- states that occur -----------------------------------------------------------------------------


@dataclass
class Ranks:
    """The states of each variable that occur in a batch, numbered in their order.

    Attributes:
        cells: The rank of each cell's state; −1 where it is missing or impossible.
        of_state: The rank of each state; −1 where it does not occur.
        states: The state of each rank; nothing beyond the last.
        numbers: How many states occur.
    """

    cells: Int[Tensor, "V batch"]
    of_state: Int[Tensor, "V S"]
    states: Int[Tensor, "V S"]
    numbers: Int[Tensor, " V"]

    @classmethod
    def of(cls, states: Int[Tensor, "V batch"], num_states: int) -> Ranks:
        """Number the states of every variable."""
        variables, batch = states.shape
        cells = torch.empty_like(states)
        of_state = states.new_zeros(variables, num_states)
        of_rank = torch.empty_like(of_state)
        numbers = states.new_empty(variables)
        launch(
            _rank, (variables,), states, cells, of_state, of_rank, numbers, batch, num_states,
            BS=power_of_2(num_states), BB=min(1024, power_of_2(batch)), num_warps=4,
        )  # fmt: skip
        return cls(cells, of_state, of_rank, numbers)


@triton.jit
def _rank(states, cells, of_state, of_rank, numbers, batch, S, BS: tl.constexpr, BB: tl.constexpr):
    column = tl.program_id(0).to(tl.int64)
    states += column * batch
    cells += column * batch
    of_state += column * S
    for start in range(0, batch, BB):
        b = start + tl.arange(0, BB)
        x = tl.load(states + b, mask=b < batch, other=-1)
        # Threads that write to the same place write the same.
        tl.store(of_state + x, 1, mask=x >= 0)
    tl.debug_barrier()
    state = tl.arange(0, BS)
    occurs = tl.load(of_state + state, mask=state < S, other=0)
    rank = tl.cumsum(occurs, 0) - 1
    tl.debug_barrier()
    tl.store(of_state + state, tl.where(occurs > 0, rank, -1), mask=state < S)
    tl.store(of_rank + column * S + rank, state, mask=occurs > 0)
    tl.store(numbers + column, tl.sum(occurs, 0))
    tl.debug_barrier()
    for start in range(0, batch, BB):
        b = start + tl.arange(0, BB)
        x = tl.load(states + b, mask=b < batch, other=-1)
        tl.store(cells + b, tl.load(of_state + x, mask=x >= 0, other=-1), mask=b < batch)


# -- counts and new tables -------------------------------------------------------------------------


@triton.jit
def _ranked_step(
    flow, f_node, f_k, cells, of_state, of_rank, numbers, seen,
    stored, leaves, columns, num_categories, min_probability, step_size, pseudo, centres,
    s, K, batch, pairs, S, PRIOR: tl.constexpr,
    BS: tl.constexpr, BR: tl.constexpr, BK: tl.constexpr, BB: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BK
    entry = first + tl.arange(0, BK)
    node = tl.load(leaves + pair // s)
    column = tl.load(columns + pair).to(tl.int64)
    flow += node * f_node
    cells += column * batch
    stored += pair * S
    size = tl.load(step_size).to(tl.float32)
    added = 0.0
    if PRIOR:
        # Zeros where a variable was never observed, so that nothing is added there.
        states = tl.arange(0, BS)
        around = tl.load(centres + column * (S + 1) + states, mask=states < S, other=0.0)
        added = tl.sum(tl.load(pseudo).to(tl.float64) * around, 0).to(tl.float32)
    known = tl.zeros([BK], tl.float32) + added
    number = tl.load(numbers + column)
    of_rank += column * S
    for start in range(0, number, R - 1):
        counts = _counts(flow, f_k, cells, entry, start, K, batch, True, R, BK, BB)
        place = tl.arange(0, R)[None, :]
        # The same for all blocks.
        known = tl.sum(tl.where(tl.trans(place) == R - 1, counts, 0.0), 0) + added
        r = start + place
        k = entry[:, None]
        own = (place < R - 1) & (r < number) & (k < K) & (known > 0)[:, None]
        shown = tl.load(of_rank + r, mask=r < number, other=0)
        cell = stored + (k.to(tl.int64) * pairs * S + shown)
        share = tl.trans(counts) / tl.where(known > 0, known, 1.0)[:, None]
        tl.store(cell, _moved(tl.load(cell, mask=own, other=0.0), share, size), mask=own)
    seen += pair * K
    tl.store(seen + entry, known, mask=entry < K)
    # Other threads have written some of what this one reads next.
    tl.debug_barrier()
    state = tl.arange(0, BS)[None, :]
    occurs = tl.load(of_state + column * S + state, mask=state < S, other=-1) >= 0
    count = tl.load(num_categories + column).to(tl.int32)
    least = tl.load(min_probability + column).to(tl.float32)
    for begin in range(first, first + BK, BR):
        row = begin + tl.arange(0, BR)[:, None]
        total = tl.load(seen + row, mask=row < K, other=0.0)
        there = (row < K) & (state < S) & (total > 0)
        at = stored + (row.to(tl.int64) * pairs * S + state)
        phi = tl.load(at, mask=there, other=0.0)
        phi = tl.where(occurs, phi, _moved(phi, 0.0, size))
        if PRIOR:
            centre = tl.load(centres + column * (S + 1) + state, mask=state < S, other=0.0)
            more = (tl.load(pseudo).to(tl.float64) * centre).to(tl.float32)
            phi += size * (more / tl.where(total > 0, total, 1.0))
        tl.store(at, _floored(phi, state < count, least), mask=there)


@triton.jit
def _step(
    flow, f_node, f_k, states,
    stored, leaves, columns, num_categories, min_probability, step_size, pseudo, centres,
    s, K, batch, pairs, S, PRIOR: tl.constexpr,
    BS: tl.constexpr, BK: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    """The same with few states, all at once."""
    pair = tl.program_id(0).to(tl.int64)
    entry = tl.program_id(1) * BK + tl.arange(0, BK)
    node = tl.load(leaves + pair // s)
    column = tl.load(columns + pair).to(tl.int64)
    flow += node * f_node
    states += column * batch
    counts = _counts(flow, f_k, states, entry, 0, K, batch, False, BS, BK, BB)
    counts = tl.trans(counts)
    k, state = entry[:, None], tl.arange(0, BS)[None, :]
    if PRIOR:
        centre = tl.load(centres + column * (S + 1) + state, mask=state < S, other=0.0)
        counts += (tl.load(pseudo).to(tl.float64) * centre).to(tl.float32)
    known = tl.sum(counts, 1)[:, None]
    at = stored + (k.to(tl.int64) * pairs + pair) * S + state
    there = (k < K) & (state < S) & (known > 0)
    old = tl.load(at, mask=there, other=0.0)
    size = tl.load(step_size).to(tl.float32)
    phi = _moved(old, counts / tl.where(known > 0, known, 1.0), size)
    count = tl.load(num_categories + column).to(tl.int32)
    least = tl.load(min_probability + column).to(tl.float32)
    tl.store(at, _floored(phi, state < count, least), mask=there)


@triton.jit
def _moved(old, share, size):
    """From old probabilities towards shares of the counts, by the size of a step."""
    return old + size * (share - old)


@triton.jit
def _counts(
    flow, f_k, cells, entry, start, K, batch,
    ALL: tl.constexpr, R: tl.constexpr, BK: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    """Σ p over samples in each of R states or ranks ``[R, BK]``; with ALL, the last row has all."""
    k = entry[None, :]
    flow += k * f_k
    row = tl.arange(0, R)[:, None]
    counts = tl.zeros([R, BK], tl.float32)
    for begin in range(0, batch, BB):
        b = begin + tl.arange(0, BB)
        x = tl.load(cells + b, mask=b < batch, other=-1)[None, :]
        p = tl.load(flow + b[:, None], mask=(k < K) & (b < batch)[:, None], other=0.0)
        chosen = start + row == x
        if ALL:
            chosen = tl.where(row == R - 1, x >= 0, chosen)
        counts = exact_dot(chosen, p, counts)
    return counts


@triton.jit
def _floored(phi, valid, least):
    """The likeliest probabilities above their floors: families/simplex.py says how and why."""
    floor = tl.where(valid, least, 0.0)
    room = tl.maximum(1 - tl.sum(floor, 1)[:, None], 0.0)
    shares = tl.where(valid, tl.maximum(phi, 0.0), 0.0)
    total = tl.sum(shares, 1)[:, None]
    shares = tl.where(total > 0, shares, floor)
    u = 1 / tl.where(total > 0, total, tl.maximum(1 - room, 1e-37))
    excess = tl.maximum(shares * u - floor, 0.0)
    above, free = tl.sum(excess, 1)[:, None], _number(excess)
    rounds = _ROUNDS
    while rounds > 0:
        # Every round moves further entries to their floors, until one moves none: soon.
        kept = least * free
        u = tl.minimum(u, u * (room + kept) / tl.maximum(above + kept, 1e-37))
        excess = tl.maximum(shares * u - floor, 0.0)
        above, number = tl.sum(excess, 1)[:, None], _number(excess)
        rounds = tl.where(tl.max((number != free).to(tl.int32)) > 0, rounds - 1, 0)
        free = number
    return excess * (room / tl.maximum(above, 1e-37)) + floor


@triton.jit
def _number(excess):
    return tl.sum(tl.where(excess > 0, 1.0, 0.0), 1)[:, None]
