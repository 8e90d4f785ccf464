"""Draws from leaves on a GPU, given the choices of all samples: one launch for a block of leaves.

States are drawn from the stored table of the entry that a sample came to, by inverting cumulative
probabilities; a Bernoulli's one uniform number says all; a Gaussian's two make a normal one (Box
and Muller). Leaves that a sample did not come to leave its cells as they are.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.leaf_kernel import Pairs
from einet.kernels.triton.choices import option_at, place_above, samples_at_once, uniforms
from einet.kernels.triton.leaf_common import cdiv, power_of_2

__all__ = ["draw_binary", "draw_gaussian", "draw_states"]

# The largest number of float32 within the support of a Gaussian.
_LARGEST = tl.constexpr(9.999999394896025e29)
# Probabilities of states that a program holds. It is a single warp: as all threads of a row make
# its random number, four of them would make it four times.
_CELLS = 1024


def draw_states(
    pairs: Pairs,
    variables: Int[Tensor, " V"],
    choice: Int[Tensor, "nodes samples"],
    seed: Int[Tensor, " 1"],
    kind: int,
    out: Float[Tensor, "samples variables"],
) -> None:
    """States of categorical variables into their columns of ``out``.

    Args:
        pairs: The block of leaves.
        variables: The column of each variable of their family.
        choice: The entry of each leaf that a sample came to; −1 where it did not.
        seed: What the random numbers are made of, together with ...
        kind: ... a number of this block's own, from 1 on.
        out: Where they go.
    """
    _, s, _, count = pairs.sizes
    samples, states = choice.shape[-1], pairs.stored.shape[-1]
    bits = (states - 1).bit_length()
    members, groups = 1 << bits // 2, 1 << bits - bits // 2
    part = min(members, max(1, _CELLS // groups))
    at_once = samples_at_once(choice, samples, max(1, min(32, _CELLS // (groups * part))))
    _states[(count * cdiv(samples, at_once),)](
        pairs.stored, pairs.leaves, pairs.columns, pairs.hyper["num_categories"], variables,
        choice, seed, out, samples, count, s, states, kind, out.stride(0),
        G=groups, M=members, M_BLOCK=part, S_BLOCK=at_once, num_warps=1,
    )  # fmt: skip


@triton.jit(do_not_specialize=["samples", "kind"])
def _states(
    stored, leaves, columns, num_categories, variables, choice, seed, out,
    samples, pairs, s, states, kind, width,
    G: tl.constexpr, M: tl.constexpr, M_BLOCK: tl.constexpr, S_BLOCK: tl.constexpr,
):  # fmt: skip
    """States in G groups of M: sums over groups choose one of them, and then one of its states."""
    blocks = tl.cdiv(samples, S_BLOCK)
    pair = (tl.program_id(0) // blocks).to(tl.int64)
    sample = (tl.program_id(0) % blocks) * S_BLOCK + tl.arange(0, S_BLOCK)[:, None]
    node = tl.load(leaves + pair // s)
    k = tl.load(choice + node * samples + sample, mask=sample < samples, other=-1)
    if tl.max(tl.max(k, 1), 0) >= 0:
        column = tl.load(columns + pair)
        count = tl.load(num_categories + column).to(tl.int32)
        u, _ = uniforms(seed, sample, pair, kind)
        at = stored + (k.to(tl.int64) * pairs + pair) * states
        g = tl.arange(0, G)[None, :]
        sums = tl.zeros([S_BLOCK, G], tl.float64)
        for start in range(0, M, M_BLOCK):
            state = g[:, :, None] * M + (start + tl.arange(0, M_BLOCK)[None, None, :])
            here = (k >= 0)[:, :, None] & (state < count)
            p = tl.load(at[:, :, None] + state, mask=here, other=0.0)
            sums += tl.sum(p.to(tl.float64), 2)
        target = u * tl.sum(sums, 1, keep_dims=True)
        group = option_at(place_above(tl.cumsum(sums, 1), target, sums, g))
        target -= tl.sum(tl.where(g < group, sums, 0.0), 1, keep_dims=True)
        j = tl.arange(0, M)[None, :]
        here = (group >= 0) & (group * M + j < count)
        p = tl.load(at + (group * M + j), mask=here, other=0.0).to(tl.float64)
        # Rounding may put the target at the end of the group: its last state is taken then.
        drawn = group * M + option_at(place_above(tl.cumsum(p, 1), target, p, j))
        to = out + sample.to(tl.int64) * width + tl.load(variables + column)
        tl.store(to, drawn.to(tl.float32), mask=k >= 0)


def draw_binary(
    pairs: Pairs,
    variables: Int[Tensor, " V"],
    choice: Int[Tensor, "nodes samples"],
    seed: Int[Tensor, " 1"],
    kind: int,
    out: Float[Tensor, "samples variables"],
) -> None:
    """Zeros and ones of Bernoulli variables; as :func:`draw_states`."""
    grid, sizes, tiles = _plan(pairs, choice)
    _binary[grid](
        pairs.stored, pairs.leaves, pairs.columns, variables, choice, seed, out,
        *sizes, kind, out.stride(0), **tiles,
    )  # fmt: skip


def draw_gaussian(
    pairs: Pairs,
    variables: Int[Tensor, " V"],
    choice: Int[Tensor, "nodes samples"],
    seed: Int[Tensor, " 1"],
    kind: int,
    out: Float[Tensor, "samples variables"],
) -> None:
    """Real numbers of Gaussian variables; as :func:`draw_states`."""
    grid, sizes, tiles = _plan(pairs, choice)
    hyper = pairs.hyper
    _gaussian[grid](
        pairs.stored, hyper["location"], hyper["scale"], pairs.leaves, pairs.columns, variables,
        choice, seed, out, *sizes, kind, out.stride(0), **tiles,
    )  # fmt: skip


def _plan(pairs: Pairs, choice: Tensor) -> tuple[tuple[int], tuple[int, ...], dict[str, int]]:
    """A program for some variables of a leaf and some samples: grid, sizes and tiles."""
    n, s, _, count = pairs.sizes
    samples = choice.shape[-1]
    positions = min(32, power_of_2(s))
    at_once = samples_at_once(choice, samples, max(16, 256 // positions))
    grid = n * cdiv(s, positions) * cdiv(samples, at_once)
    return (grid,), (samples, count, s), {"P": positions, "S_BLOCK": at_once, "num_warps": 4}


@triton.jit
def _cells(leaves, columns, choice, samples, s, P: tl.constexpr, S_BLOCK: tl.constexpr):
    """Samples ``[S, 1]``, pairs ``[1, P]`` and columns of this program, entries, what is real."""
    blocks, parts = tl.cdiv(samples, S_BLOCK), tl.cdiv(s, P)
    sample = (tl.program_id(0) % blocks) * S_BLOCK + tl.arange(0, S_BLOCK)[:, None]
    leaf = (tl.program_id(0) // blocks // parts).to(tl.int64)
    position = (tl.program_id(0) // blocks % parts) * P + tl.arange(0, P)[None, :]
    node = tl.load(leaves + leaf)
    k = tl.load(choice + node * samples + sample, mask=sample < samples, other=-1)
    pair = leaf * s + position
    column = tl.load(columns + pair, mask=position < s, other=0)
    return sample, pair, column, k, (k >= 0) & (position < s)


@triton.jit(do_not_specialize=["samples", "kind"])
def _binary(
    stored, leaves, columns, variables, choice, seed, out, samples, pairs, s, kind, width,
    P: tl.constexpr, S_BLOCK: tl.constexpr,
):  # fmt: skip
    sample, pair, column, k, here = _cells(leaves, columns, choice, samples, s, P, S_BLOCK)
    if tl.max(tl.max(k, 1), 0) >= 0:
        u, _ = uniforms(seed, sample + 0 * pair.to(tl.int32), pair, kind)
        p = tl.load(stored + k.to(tl.int64) * pairs + pair, mask=here, other=0.0)
        to = out + sample.to(tl.int64) * width + tl.load(variables + column)
        tl.store(to, tl.where(u < p, 1.0, 0.0), mask=here)


@triton.jit(do_not_specialize=["samples", "kind"])
def _gaussian(
    stored, location, scale, leaves, columns, variables, choice, seed, out,
    samples, pairs, s, kind, width, P: tl.constexpr, S_BLOCK: tl.constexpr,
):  # fmt: skip
    sample, pair, column, k, here = _cells(leaves, columns, choice, samples, s, P, S_BLOCK)
    if tl.max(tl.max(k, 1), 0) >= 0:
        u, w = uniforms(seed, sample + 0 * pair.to(tl.int32), pair, kind)
        # One minus the first is never 0.
        normal = tl.sqrt(-2.0 * tl.log(1.0 - u)) * tl.cos(6.283185307179586 * w)
        at = stored + (k.to(tl.int64) * pairs + pair) * 2
        mean = tl.load(at, mask=here, other=0.0).to(tl.float64)
        variance = tl.load(at + 1, mask=here, other=1.0).to(tl.float64)
        x = mean + normal * tl.sqrt(variance)
        x = x * tl.load(scale + column).to(tl.float64) + tl.load(location + column).to(tl.float64)
        x = tl.minimum(tl.maximum(x, -_LARGEST), _LARGEST)
        to = out + sample.to(tl.int64) * width + tl.load(variables + column)
        tl.store(to, x, mask=here)
