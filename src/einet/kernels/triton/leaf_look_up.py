"""Categorical leaves of one variable each: a look-up of probabilities, without logarithms.

Where the sums above take values of any scale, probabilities stay as they are: no entry has to wait
for the largest.
"""

# pyright: reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Int
from torch import Tensor

from einet.kernels.leaf_kernel import Out, Pairs
from einet.kernels.triton.leaf_common import cdiv, launch, power_of_2
from einet.kernels.triton.products import TINY, log_of

__all__ = ["LARGEST_LOOK_UP", "look_up"]

#: States of which a program holds the whole table of some entries.
LARGEST_LOOK_UP = 1024
# Entries that a program holds for some samples, so that it reads them once. With more of them,
# reading them twice is faster.
_FEW_ENTRIES = 64


def look_up(pairs: Pairs, states: Int[Tensor, "V batch"], out: Out) -> None:
    """Scaled probabilities of the states of leaves with one variable each."""
    n, _, K, count = pairs.sizes
    batch, num_states = states.shape[1], pairs.stored.shape[-1]
    table = torch.empty(count, num_states, K, dtype=torch.float32, device=states.device)
    size = power_of_2(num_states)
    entries = min(32, power_of_2(K), max(1, 8192 // size))
    launch(
        _probabilities, (count, cdiv(K, entries)),
        pairs.stored, pairs.columns, pairs.hyper["num_categories"], table,
        count, K, num_states, BK=entries, BS=size, num_warps=4,
    )  # fmt: skip
    tile = _tile(K)
    launch(
        _look_up, (n, cdiv(batch, tile["BB"])),
        table, states, pairs.leaves, pairs.columns,
        out.v, *out.v.stride()[:2], out.m, out.m.stride(0), K, batch, num_states,
        SCALED=not out.any_scale, **tile,
    )  # fmt: skip


def _tile(K: int) -> dict[str, Any]:
    """Entries and samples of a program, the fastest of those timed on an H200."""
    once = K <= _FEW_ENTRIES
    return {"ONCE": once, "BK": min(128, power_of_2(K)), "BB": 32, "num_warps": 4}


@triton.jit
def _probabilities(
    stored, columns, num_categories, out, pairs, K, S, BK: tl.constexpr, BS: tl.constexpr
):
    """p of all states, normalised, with entries last."""
    pair = tl.program_id(0).to(tl.int64)
    k = (tl.program_id(1) * BK + tl.arange(0, BK)).to(tl.int64)[:, None]
    state = tl.arange(0, BS)[None, :]
    count = tl.load(num_categories + tl.load(columns + pair)).to(tl.int32)
    there = (k < K) & (state < count)
    p = tl.load(stored + (k * pairs + pair) * S + state, mask=there, other=0.0)
    p /= tl.maximum(tl.sum(p, 1)[:, None], TINY)
    tl.store(out + (pair * S + state) * K + k, p, mask=there)


@triton.jit
def _look_up(
    table, states, leaves, columns, v, v_node, v_k, m, m_node, K, batch, S,
    SCALED: tl.constexpr, ONCE: tl.constexpr, BK: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    """Leaves of one variable: nothing is multiplied, and so no logarithm is needed but of m."""
    leaf = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * BB + tl.arange(0, BB)[:, None]
    column = tl.load(columns + leaf)
    state = tl.load(states + column * batch + b, mask=b < batch, other=-1)
    node = tl.load(leaves + leaf)
    at = table + (leaf * S + state) * K
    out = v + node * v_node + b
    if not SCALED:
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)[None, :]
            p = tl.load(at + k, mask=(state >= 0) & (k < K), other=0.0)
            p = tl.where(state == -1, 1.0, p)
            tl.store(out + k * v_k, p, mask=(b < batch) & (k < K))
        scale = tl.where(state == -2, 0.0, 1.0)
    elif ONCE:
        k = tl.arange(0, BK)[None, :]
        p = tl.load(at + k, mask=(state >= 0) & (k < K), other=0.0)
        scale = _scale(tl.max(p, 1)[:, None], state)
        tl.store(out + k * v_k, _scaled(p, scale, state), mask=(b < batch) & (k < K))
    else:
        largest = tl.zeros([BB, 1], tl.float32)
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)[None, :]
            p = tl.load(at + k, mask=(state >= 0) & (k < K), other=0.0)
            largest = tl.maximum(largest, tl.max(p, 1)[:, None])
        scale = _scale(largest, state)
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)[None, :]
            p = tl.load(at + k, mask=(state >= 0) & (k < K), other=0.0)
            tl.store(out + k * v_k, _scaled(p, scale, state), mask=(b < batch) & (k < K))
    tl.store(m + node * m_node + b, log_of(scale), mask=b < batch)


@triton.jit
def _scale(largest, state):
    """What probabilities are divided by; a missing cell is 1 throughout."""
    return tl.where(state == -1, 1.0, largest)


@triton.jit
def _scaled(p, scale, state):
    return tl.where(state == -1, 1.0, tl.div_rn(p, tl.maximum(scale, TINY) + 0.0 * p))
