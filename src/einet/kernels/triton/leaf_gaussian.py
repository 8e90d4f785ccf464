"""Gaussian leaves as −(z − μ)²/2σ², with a step of EM from centred sums in one pass.

Terms are float32; every four of them are added up in float32 and those sums in float64, so that
errors do not grow with the number of variables.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from einet.families import ExponentialFamily
from einet.kernels.leaf_kernel import Added, FusedEvidence, FusedLeafKernel, Out, Pairs
from einet.kernels.triton.leaf_common import (
    cdiv,
    combine,
    forward_tile,
    launch,
    power_of_2,
    scope_part,
    statistics_tile,
    store_values,
)
from einet.kernels.triton.leaf_evidence import SAMPLES, standardised

__all__ = ["KERNEL", "GaussianKernel"]

# Up to so many entries it takes longer to ask whether care is needed than to take it.
_FEW = 16
_CONSTANT = tl.constexpr(0.5 * math.log(2 * math.pi))
# What rounding leaves of a variance, relative to E[(z − μ)²] before the step: sums are float32.
_ROUNDING = tl.constexpr(1e-6)


@triton.jit
def _prepare(stored, columns, scale, out, pairs, K, BP: tl.constexpr, BK: tl.constexpr):
    """(μ, 1/√2σ, the log of the density's peak) of every pair, entries last."""
    pair = tl.program_id(0).to(tl.int64) * BP + tl.arange(0, BP)
    k = (tl.program_id(1) * BK + tl.arange(0, BK)).to(tl.int64)
    there = (pair < pairs)[:, None] & (k < K)[None, :]
    at = stored + (k[None, :] * pairs + pair[:, None]) * 2
    mean = tl.load(at, mask=there, other=0.0)
    variance = tl.load(at + 1, mask=there, other=1.0).to(tl.float64)
    column = tl.load(columns + pair, mask=pair < pairs, other=0)
    unit = tl.load(scale + column, mask=pair < pairs, other=1.0).to(tl.float64)
    peak = -0.5 * tl.log(variance) - tl.log(unit)[:, None] - _CONSTANT
    to = out + pair[:, None] * 3 * K + k[None, :]
    tl.store(to, mean, mask=there)
    tl.store(to + K, tl.sqrt(0.5 / variance).to(tl.float32), mask=there)
    tl.store(to + 2 * K, peak.to(tl.float32), mask=there)


@triton.jit
def _any_hole(
    holes, columns, first, count, b, blocks,
    SCOPE: tl.constexpr, SAMPLES: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    """Whether some cell of these variables and samples is missing or infinite."""
    position = tl.arange(0, SCOPE)[:, None]
    column = tl.load(columns + first + position, mask=position < count, other=0)
    # Samples come in blocks, of which these may begin within one.
    block = b // SAMPLES + tl.arange(0, (BB + SAMPLES - 1) // SAMPLES)[None, :]
    here = (position < count) & (block < blocks)
    return tl.max(tl.max(tl.load(holes + column * blocks + block, mask=here, other=0), 1), 0) > 0


@triton.jit
def _forward(
    constants, z, holes, leaves, columns, v, v_node, v_k, m, m_node, total, t_node, t_k,
    s, K, batch, blocks,
    ALONE: tl.constexpr, CAREFUL: tl.constexpr, CHUNK: tl.constexpr, PART: tl.constexpr,
    SCOPE: tl.constexpr, SAMPLES: tl.constexpr, BK: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    """With PART each program takes so many variables of a leaf; ``total`` then holds all parts."""
    leaf = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * BB + tl.arange(0, BB)[:, None]
    k = tl.arange(0, BK)[None, :]
    sums = tl.zeros([BB, BK], tl.float64)
    infinite = tl.zeros([BB, 1], tl.int32)
    begin, end = 0, s
    if PART:
        begin = tl.program_id(2) * PART
        end = tl.minimum(begin + PART, s)
    pair = leaf * s + begin
    first = tl.program_id(1) * BB
    if CAREFUL or _any_hole(holes, columns, pair, end - begin, first, blocks, SCOPE, SAMPLES, BB):
        for start in range(begin, end, CHUNK):
            part = tl.zeros([BB, BK], tl.float32)
            for offset in tl.static_range(CHUNK):
                more = start + offset < end
                pair = leaf * s + start + offset
                column = tl.load(columns + pair, mask=more, other=0)
                x = tl.load(z + column * batch + b, mask=(b < batch) & more, other=float("nan"))
                at = constants + pair * 3 * K + k
                entry = (k < K) & more
                mean = tl.load(at, mask=entry, other=0.0)
                factor = tl.load(at + K, mask=entry, other=0.0)
                peak = tl.load(at + 2 * K, mask=entry, other=0.0)
                size = tl.abs(x)
                finite = size < float("inf")
                infinite += (size == float("inf")).to(tl.int32)
                d = (tl.where(finite, x, 0.0) - mean) * factor
                part += tl.where(finite, peak - d * d, 0.0)
            # However far out, a finite value has a finite log density.
            sums += tl.maximum(part, -3e38).to(tl.float64)
    else:
        peaks = tl.zeros([1, BK], tl.float64)
        for start in range(begin, end, CHUNK):
            part = tl.zeros([BB, BK], tl.float32)
            for offset in tl.static_range(CHUNK):
                more = start + offset < end
                pair = leaf * s + start + offset
                column = tl.load(columns + pair, mask=more, other=0)
                x = tl.load(z + column * batch + b, mask=(b < batch) & more, other=0.0)
                at = constants + pair * 3 * K + k
                entry = (k < K) & more
                mean = tl.load(at, mask=entry, other=0.0)
                factor = tl.load(at + K, mask=entry, other=0.0)
                peaks += tl.load(at + 2 * K, mask=entry, other=0.0).to(tl.float64)
                d = (x - mean) * factor
                part -= d * d
            sums += tl.maximum(part, -3e38).to(tl.float64)
        sums += peaks
    sums = tl.where(infinite > 0, float("-inf"), sums)
    if PART:
        row = tl.program_id(2).to(tl.int64) * tl.num_programs(0) + leaf
        tl.store(total + (row * K + k) * batch + b, sums, mask=(b < batch) & (k < K))
        return
    node = tl.load(leaves + leaf)
    store_values(sums, node, k, b, K, batch, v, v_node, v_k, m, m_node, total, t_node, t_k, ALONE)


def _launch_forward(pairs: Pairs, evidence: FusedEvidence, stored: Tensor, out: Out) -> None:
    """Log densities of a block of leaves with these parameters."""
    n, s, K, count = pairs.sizes
    z, holes = evidence.cells, evidence.holes
    assert holes is not None
    batch = z.shape[1]
    constants = torch.empty(count, 3, K, dtype=torch.float32, device=z.device)
    size = min(32, power_of_2(K))
    grid = cdiv(count, 32), cdiv(K, size)
    launch(
        _prepare, grid, stored, pairs.columns, pairs.hyper["scale"], constants, count, K,
        BP=32, BK=size,
    )  # fmt: skip
    tile = forward_tile(n, s, K, batch)
    part = scope_part(n * cdiv(batch, tile["BB"]), s)
    parts = cdiv(s, part) if part else 1
    arguments = out.arguments
    scratch = None
    if part:
        scratch = torch.empty(parts, n, K, batch, dtype=torch.float64, device=z.device)
        arguments = (*arguments[:5], scratch, 0, 0)
    launch(
        _forward, (n, cdiv(batch, tile["BB"]), parts),
        constants, z, holes, pairs.leaves, pairs.columns, *arguments,
        s, K, batch, holes.shape[1],
        ALONE=out.total is None, CAREFUL=K <= _FEW, PART=part,
        SCOPE=power_of_2(part or s), SAMPLES=SAMPLES, **tile,
    )  # fmt: skip
    if scratch is not None:
        combine(scratch, pairs.leaves, out)


@triton.jit
def _backward(
    flow, f_node, f_k, z, holes, stored, leaves, columns,
    scale, min_variance, max_variance, relative_floor, step_size, pseudo, centres, total, weighted,
    origin, s, K, batch, pairs, blocks,
    UPDATE: tl.constexpr, PRIOR: tl.constexpr, ORIGIN: tl.constexpr, CAREFUL: tl.constexpr,
    BLOCKS: tl.constexpr, BR: tl.constexpr, BK: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    leaf = tl.program_id(0).to(tl.int64)
    position = tl.program_id(1) * BR + tl.arange(0, BR)[:, None, None]
    k = tl.program_id(2) * BK + tl.arange(0, BK)[None, :, None]
    pair = leaf * s + position
    own = position < s
    known = own & (k < K)
    column = tl.load(columns + pair, mask=own, other=0)
    node = tl.load(leaves + leaf)
    cell = k.to(tl.int64) * pairs + pair
    at = stored + cell * 2
    mean = tl.load(at, mask=known, other=0.0)
    care = True
    if not CAREFUL:
        block = tl.arange(0, BLOCKS)[None, None, :]
        hole = tl.load(holes + column * blocks + block, mask=own & (block < blocks), other=0)
        care = tl.max(tl.max(tl.max(hole, 2), 1), 0) > 0
    s1 = tl.zeros([BR, BK, BB], tl.float32)
    s2 = tl.zeros([BR, BK, BB], tl.float32)
    if care:
        s0 = tl.zeros([BR, BK, BB], tl.float32)
        for start in range(0, batch, BB):
            b = start + tl.arange(0, BB)[None, None, :]
            inside = b < batch
            p = tl.load(flow + node * f_node + k * f_k + b, mask=(k < K) & inside, other=0.0)
            x = tl.load(z + column * batch + b, mask=own & inside, other=float("nan"))
            finite = tl.abs(x) < float("inf")
            d = tl.where(finite, x, 0.0) - mean
            share = tl.where(finite, p, 0.0)
            moved = share * d
            s0 += share
            s1 += moved
            s2 += moved * d
        zeroth = tl.sum(s0, 2, keep_dims=True).to(tl.float64)
    else:
        shares = tl.zeros([1, BK, BB], tl.float32)
        for start in range(0, batch, BB):
            b = start + tl.arange(0, BB)[None, None, :]
            inside = b < batch
            p = tl.load(flow + node * f_node + k * f_k + b, mask=(k < K) & inside, other=0.0)
            x = tl.load(z + column * batch + b, mask=own & inside, other=0.0)
            d = x - mean
            moved = p * d
            shares += p
            s1 += moved
            s2 += moved * d
        zeroth = tl.broadcast_to(tl.sum(shares, 2, keep_dims=True), [BR, BK, 1]).to(tl.float64)
    first = tl.sum(s1, 2, keep_dims=True).to(tl.float64)
    second = tl.sum(s2, 2, keep_dims=True).to(tl.float64)
    mu = mean.to(tl.float64)
    if PRIOR:
        # Rows with the mean and variance of φ₀ = (m, m² + v), seen from μ like all others.
        centre = centres + column * 3
        present = tl.load(centre + 2, mask=own, other=0.0)
        m = tl.load(centre, mask=own, other=0.0)
        v = tl.load(centre + 1, mask=own, other=0.0) - m * m
        added = tl.load(pseudo).to(tl.float64) * present
        zeroth += added
        first += added * (m - mu)
        second += added * (v + (m - mu) * (m - mu))
    if UPDATE:
        size = tl.load(step_size).to(tl.float64)
        variance = tl.load(at + 1, mask=known, other=1.0).to(tl.float64)
        reached = known & (zeroth > 0)
        count = tl.where(reached, zeroth, 1.0)
        d = first / count
        mu += size * d
        square = size * (second / count)
        variance = (1 - size) * variance + square - size * size * d * d
        variance = tl.maximum(variance, square * _ROUNDING)
        # The best variance is the one about the mean as it is kept.
        kept = tl.minimum(tl.maximum(mu, -1e30), 1e30).to(tl.float32)
        rounded = mu - kept.to(tl.float64)
        variance += rounded * rounded
        # The bounds of the family, in units of the data's own variance.
        unit = tl.load(scale + column, mask=own, other=1.0).to(tl.float64)
        high = tl.load(max_variance + column, mask=own, other=1.0).to(tl.float64) / unit / unit
        least = tl.load(min_variance + column, mask=own, other=1.0).to(tl.float64)
        floor = tl.load(relative_floor + column, mask=own, other=1.0).to(tl.float64)
        low = tl.minimum(tl.where(least == least, least / unit / unit, floor), high)
        # Between what float32 can hold, however far the bounds are from the data.
        variance = tl.minimum(tl.maximum(variance, low), high)
        variance = tl.minimum(tl.maximum(variance, 1e-30), 1e30)
        tl.store(at, kept, mask=reached)
        tl.store(at + 1, variance.to(tl.float32), mask=reached)
    else:
        count = tl.load(total + cell, mask=known, other=0.0)
        tl.store(total + cell, count + zeroth, mask=known)
        to = weighted + cell * 2
        if ORIGIN:
            # Mostly that is μ itself, and nothing is lost.
            mu -= tl.load(origin + cell, mask=known, other=0.0)
        z1 = tl.load(to, mask=known, other=0.0) + first + mu * zeroth
        z2 = tl.load(to + 1, mask=known, other=0.0) + second + mu * (2 * first + mu * zeroth)
        tl.store(to, z1, mask=known)
        tl.store(to + 1, z2, mask=known)


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
    z, holes = evidence.cells, evidence.holes
    assert holes is not None
    blocks = holes.shape[1]
    tile = statistics_tile(s, K)
    hyper = pairs.hyper
    unused = pairs.stored
    launch(
        _backward, (n, cdiv(s, tile["BR"]), cdiv(K, tile["BK"])),
        flow, *flow.stride()[:2], z, holes, pairs.stored, pairs.leaves, pairs.columns,
        hyper["scale"], hyper["min_variance"], hyper["max_variance"], hyper["relative_floor"],
        unused if step_size is None else step_size,
        unused if added is None else added.count,
        unused if added is None else added.centres,
        unused if total is None else total,
        unused if weighted is None else weighted,
        unused if pairs.origin is None else pairs.origin,
        s, K, z.shape[1], count, blocks,
        UPDATE=step_size is not None, PRIOR=added is not None, ORIGIN=pairs.origin is not None,
        CAREFUL=K <= _FEW, BLOCKS=power_of_2(blocks), **tile,
    )  # fmt: skip


class GaussianKernel(FusedLeafKernel):
    """Gaussians. Cells are standardised values, NaN where missing (float32).

    ``holes`` says where to look for those. Statistics come from sums about μ, which lose nothing.
    """

    def evidence(
        self,
        family: ExponentialFamily,
        hyper: dict[str, Tensor],
        variables: Tensor,
        x: Tensor,
        observed: Tensor | None,
    ) -> FusedEvidence:
        z, holes = standardised(x, observed, variables, hyper["location"], hyper["scale"])
        return FusedEvidence(self, len(x), z, holes=holes)

    def values(
        self,
        pairs: Pairs,
        evidence: FusedEvidence,
        natural: tuple[Tensor, Tensor] | None,
        out: Out,
    ) -> None:
        stored = pairs.stored
        if natural is not None:
            variance = -0.5 / natural[0][..., 1]
            stored = torch.stack([natural[0][..., 0] * variance, variance], -1).float()
        _launch_forward(pairs, evidence, stored, out)

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


KERNEL = GaussianKernel()
