"""Categorical leaves: a look-up of log p, and counts as products with one-hot vectors.

How counts are made exactly is said in :mod:`~einet.kernels.triton.leaf_table_step`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from einet.families import ExponentialFamily
from einet.kernels.leaf_kernel import Added, FusedEvidence, FusedLeafKernel, Out, Pairs
from einet.kernels.triton import leaf_evidence, leaf_table_step
from einet.kernels.triton.leaf_common import (
    cdiv,
    forward_tile,
    launch,
    power_of_2,
    store_values,
)
from einet.kernels.triton.leaf_look_up import LARGEST_LOOK_UP, look_up
from einet.kernels.triton.products import exact_dot

__all__ = ["KERNEL", "StatesKernel"]


@triton.jit
def _log_table(
    stored, columns, num_categories, out, pairs, K, S, BK: tl.constexpr, BS: tl.constexpr
):
    """log p of all states, normalised, with entries last: one look-up then finds all of them."""
    pair = tl.program_id(0).to(tl.int64)
    k = (tl.program_id(1) * BK + tl.arange(0, BK)).to(tl.int64)
    count = tl.load(num_categories + tl.load(columns + pair)).to(tl.int32)
    row = stored + (k * pairs + pair) * S
    sums = tl.zeros([BK], tl.float64)
    for start in range(0, S, BS):
        state = start + tl.arange(0, BS)
        there = (k < K)[:, None] & (state < count)[None, :]
        p = tl.load(row[:, None] + state[None, :], mask=there, other=0.0).to(tl.float64)
        # Finite where p is 0, as in the torch path.
        sums += tl.sum(tl.where(there, tl.maximum(p, 2.2250738585072014e-308), 0.0), 1)
    normaliser = tl.log(tl.where(k < K, sums, 1.0))
    for start in range(0, S, BS):
        state = start + tl.arange(0, BS)
        there = (k < K)[:, None] & (state < count)[None, :]
        p = tl.load(row[:, None] + state[None, :], mask=there, other=1.0).to(tl.float64)
        value = tl.log(tl.maximum(p, 2.2250738585072014e-308)) - normaliser[:, None]
        to = out + (pair * S + state)[None, :] * K + k[:, None]
        tl.store(to, value.to(tl.float32), mask=there)


@triton.jit
def _forward(
    table,
    states,
    leaves,
    columns,
    v,
    v_node,
    v_k,
    m,
    m_node,
    total,
    t_node,
    t_k,
    s,
    K,
    batch,
    S,
    ALONE: tl.constexpr,
    CHUNK: tl.constexpr,
    BK: tl.constexpr,
    BB: tl.constexpr,
):
    leaf = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * BB + tl.arange(0, BB)[:, None]
    k = tl.arange(0, BK)[None, :]
    sums = tl.zeros([BB, BK], tl.float64)
    impossible = tl.zeros([BB, 1], tl.int32)
    for start in range(0, s, CHUNK):
        part = tl.zeros([BB, BK], tl.float32)
        for offset in tl.static_range(CHUNK):
            more = start + offset < s
            pair = leaf * s + start + offset
            column = tl.load(columns + pair, mask=more, other=0)
            state = tl.load(states + column * batch + b, mask=(b < batch) & more, other=-1)
            impossible += (state == -2).to(tl.int32)
            at = table + (pair * S + state) * K + k
            part += tl.load(at, mask=(state >= 0) & (k < K), other=0.0)
        sums += part.to(tl.float64)
    sums = tl.where(impossible > 0, float("-inf"), sums)
    node = tl.load(leaves + leaf)
    store_values(sums, node, k, b, K, batch, v, v_node, v_k, m, m_node, total, t_node, t_k, ALONE)


def _launch_forward(pairs: Pairs, states: Tensor, table: Tensor | None, out: Out) -> None:
    """Log probabilities of a block of leaves; by another ``table[K, pairs, S]`` where given."""
    n, s, K, count = pairs.sizes
    batch, num_states = states.shape[1], pairs.stored.shape[-1]
    if table is None and s == 1 and out.total is None and num_states <= LARGEST_LOOK_UP:
        look_up(pairs, states, out)
        return
    if table is None:
        by_entry = torch.empty(count, num_states, K, dtype=torch.float32, device=states.device)
        entries = min(16, power_of_2(K))
        size = min(256, power_of_2(num_states))
        launch(
            _log_table, (count, cdiv(K, entries)),
            pairs.stored, pairs.columns, pairs.hyper["num_categories"], by_entry,
            count, K, num_states, BK=entries, BS=size, num_warps=4 if size > 32 else 1,
        )  # fmt: skip
    else:
        by_entry = table.permute(1, 2, 0).float().contiguous()
    tile = forward_tile(n, s, K, batch)
    launch(
        _forward, (n, cdiv(batch, tile["BB"])),
        by_entry, states, pairs.leaves, pairs.columns, *out.arguments,
        s, K, batch, num_states, ALONE=out.total is None, **tile,
    )  # fmt: skip


@triton.jit
def _counts(
    flow, states, column, k, state, K, batch, BK: tl.constexpr, BS: tl.constexpr, BB: tl.constexpr
):
    """Σ p over the samples in each state ``[BS, BK]``, and over all that were seen ``[1, BK]``."""
    counts = tl.zeros([BS, BK], tl.float32)
    known = tl.zeros([1, BK], tl.float32)
    for start in range(0, batch, BB):
        b = start + tl.arange(0, BB)
        x = tl.load(states + column * batch + b, mask=b < batch, other=-1)
        p = tl.load(flow + b[:, None], mask=(k < K) & (x >= 0)[:, None], other=0.0)
        counts = exact_dot(state == x[None, :], p, counts)
        known += tl.sum(p, 0)[None, :]
    return counts, known


@triton.jit
def _add(
    flow, f_node, f_k, states, leaves, columns, total, weighted, s, K, batch, pairs, S,
    BK: tl.constexpr, BS: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BK + tl.arange(0, BK)[None, :]
    state = tl.program_id(2) * BS + tl.arange(0, BS)[:, None]
    node = tl.load(leaves + pair // s)
    column = tl.load(columns + pair)
    entry = flow + node * f_node + k * f_k
    counts, known = _counts(entry, states, column, k, state, K, batch, BK, BS, BB)  # pyright: ignore
    cell = k.to(tl.int64) * pairs + pair
    if tl.program_id(2) == 0:
        old = tl.load(total + cell, mask=k < K, other=0.0)
        tl.store(total + cell, old + known, mask=k < K)
    to = weighted + cell * S + state
    there = (k < K) & (state < S)
    tl.store(to, tl.load(to, mask=there, other=0.0) + counts, mask=there)


def _tile(K: int, num_states: int, batch: int) -> dict[str, int]:
    """Entries, states and samples of a program; products of matrices need 16 of each at least."""
    states = max(16, power_of_2(num_states))
    entries = max(16, min(64, 8192 // states, power_of_2(K)))
    samples = max(16, min(32, 8192 // states, power_of_2(batch)))
    warps = max(1, min(8, entries * states // 512))
    return {"BK": entries, "BS": states, "BB": samples, "num_warps": warps}


class StatesKernel(FusedLeafKernel):
    """Categorical variables. Cells are states, −1 where missing, −2 where impossible (int32)."""

    def evidence(
        self,
        family: ExponentialFamily,
        hyper: dict[str, Tensor],
        variables: Tensor,
        x: Tensor,
        observed: Tensor | None,
    ) -> FusedEvidence:
        states = leaf_evidence.states(x, observed, variables, hyper["num_categories"])
        return FusedEvidence(self, len(x), states)

    def values(
        self,
        pairs: Pairs,
        evidence: FusedEvidence,
        natural: tuple[Tensor, Tensor] | None,
        out: Out,
    ) -> None:
        table = None if natural is None else natural[0] - natural[1].unsqueeze(-1)
        _launch_forward(pairs, evidence.cells, table, out)

    def add_statistics(
        self, pairs: Pairs, evidence: FusedEvidence, flow: Tensor, total: Tensor, weighted: Tensor
    ) -> None:
        _, s, K, count = pairs.sizes
        S, batch = weighted.shape[-1], evidence.batch
        tile = _tile(K, min(S, 256), batch)
        launch(
            _add, (count, cdiv(K, tile["BK"]), cdiv(S, tile["BS"])),
            flow, *flow.stride()[:2], evidence.cells, pairs.leaves, pairs.columns, total, weighted,
            s, K, batch, count, S, **tile,
        )  # fmt: skip

    def can_step(self, pairs: Pairs) -> bool:
        return pairs.stored.shape[-1] <= leaf_table_step.LARGEST_STEP

    def step(
        self,
        pairs: Pairs,
        evidence: FusedEvidence,
        flow: Tensor,
        step_size: Tensor,
        added: Added | None,
    ) -> None:
        leaf_table_step.step(pairs, evidence, flow, step_size, added)


KERNEL = StatesKernel()
