"""Choices of linear sums on a GPU: one launch for a layer, or for all layers of a tree.

Sum s, left by its entry k, goes on by entry i of *all* its children with probability
:math:`\\propto W_{ki} \\prod_c v_{ci}`, or :math:`W_{ki}` where nothing is known. Products carry an
exponent for each entry, as in :mod:`einet.kernels.triton.linear`, and so no scale is needed.

In a tree, programs take sums one after the other, parents first, and wait for choices that others
have not written yet, in the manner of :mod:`einet.kernels.triton.tree`.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.triton.choices import SUMS, option_at, place_above, samples_at_once, uniforms
from einet.kernels.triton.linear import LinearEdges, power, product
from einet.kernels.triton.tree_parts import (
    TreeEdges,
    Weights,
    new_counters,
    programs,
    signal,
    wait,
)

__all__ = ["choose", "choose_tree"]

# The exponent of a product that is 0 throughout.
_NEVER = tl.constexpr(-(1 << 30))
# Programs that share a multiprocessor: most of their time they wait for memory, or for each other.
_EACH = 8


def choose(
    weight: Float[Tensor, "L K_out I"],
    v: Float[Tensor, "nodes K rows"] | None,
    edges: LinearEdges,
    above: Int[Tensor, "L samples"],
    below: Int[Tensor, "nodes samples"],
    seed: Int[Tensor, " 1"],
    number: int,
) -> None:
    """The choices ``below`` of all children of a layer's sums, given those ``above`` of the sums.

    Args:
        weight, edges: The layer's weights, and where its children are.
        v: Values of nodes, of as many rows as divide the samples: sample s belongs to row s modulo
            their number. None where nothing is known.
        above, below: Choices, −1 for none.
        seed: What the random numbers are made of, together with ...
        number: ... that of the first sum among all nodes.
    """
    num, _, inputs = weight.shape
    samples = above.shape[-1]
    tiles = _tiles(v, weight, inputs, samples)
    _of_layer[(num * triton.cdiv(samples, tiles["S_BLOCK"]),)](
        weight, *_values(v, weight), edges.children, edges.ends, above, below, seed,
        samples, number, weight.shape[1], inputs, AT_ONCE=edges.at_once, **tiles,
    )  # fmt: skip


def choose_tree(
    weights: Weights,
    v: Float[Tensor, "nodes K rows"] | None,
    edges: TreeEdges,
    choice: Int[Tensor, "nodes samples"],
    seed: Int[Tensor, " 1"],
) -> None:
    """The choices of all nodes below the topmost sums of a tree, whose own are there already."""
    samples = choice.shape[-1]
    tiles = _tiles(v, weights.base, weights.num_inputs, samples)
    blocks = triton.cdiv(samples, tiles["S_BLOCK"])
    tasks = len(edges) * blocks
    counters = new_counters(choice, len(edges), blocks)
    size = weights.num_outputs * weights.num_inputs
    aligned = size % 4 == 0 and all(each.data_ptr() % 16 == 0 for each in weights.tensors)
    _of_tree[(programs(choice, tasks, _EACH),)](
        weights.base, weights.offsets, *_values(v, weights.base), edges.children, edges.ends,
        edges.parents, edges.order, choice, seed, counters,
        samples, edges.first_sum, len(edges), tasks,
        weights.num_outputs, weights.num_inputs, ALIGNED=4 if aligned else 1,
        AT_ONCE=edges.at_once, **tiles,
    )  # fmt: skip


def _values(v: Tensor | None, instead: Tensor) -> tuple[Tensor, int, int, int]:
    """Values, their strides and how many rows they are of; any tensor in place of none."""
    return (instead, 0, 0, 1) if v is None else (v, v.stride(0), v.stride(1), v.shape[-1])


def _tiles(v: Tensor | None, like: Tensor, inputs: int, samples: int) -> dict:
    """Sizes of tiles: some 16 options for each thread."""
    entries = min(256, int(triton.next_power_of_2(inputs)))
    block = max(4, min(32, 2048 // entries))
    return {
        "GIVEN": v is not None,
        "I_BLOCK": entries,
        "S_BLOCK": samples_at_once(like, samples, block),
        "num_warps": 4 if entries * block > 512 else 1,
    }


@triton.jit(do_not_specialize=["samples", "rows"])
def _of_layer(
    weight, v, v_node, v_k, rows, children, ends, above, below, seed, samples, number,
    num_outputs: tl.constexpr, num_inputs: tl.constexpr, AT_ONCE: tl.constexpr,
    GIVEN: tl.constexpr, I_BLOCK: tl.constexpr, S_BLOCK: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(samples, S_BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    sample = (tl.program_id(0) % blocks) * S_BLOCK + tl.arange(0, S_BLOCK)[:, None]
    inside = sample < samples
    k = tl.load(above + row * samples + sample, mask=inside, other=-1)
    # In a mixture of structures most samples are elsewhere.
    if tl.max(tl.max(k, 1), 0) >= 0:
        u, _ = uniforms(seed, sample, row + number, SUMS)
        first, last = tl.load(ends + row), tl.load(ends + row + 1)
        weight += row * (num_outputs * num_inputs)
        if num_inputs <= I_BLOCK:
            p = _products(v, v_node, v_k, children, first, last, sample % rows, k >= 0,
                          num_inputs, AT_ONCE, GIVEN, I_BLOCK)  # fmt: skip
            entry = _pick(weight, p, k, u, num_inputs, I_BLOCK)
        else:
            entry = _pick_of_many(weight, v, v_node, v_k, children, first, last, k, sample % rows,
                                  u, num_inputs, AT_ONCE, GIVEN, I_BLOCK, S_BLOCK)  # fmt: skip
        for edge in range(first, last):
            node = tl.load(children + edge)
            tl.store(below + node * samples + sample, entry, mask=inside & (k >= 0))


@triton.jit(do_not_specialize=["samples", "rows"])
def _of_tree(
    weight, offsets, v, v_node, v_k, rows, children, ends, parents, order, choice, seed, counters,
    samples, first_sum, num_sums, tasks,
    num_outputs: tl.constexpr, num_inputs: tl.constexpr,
    ALIGNED: tl.constexpr, AT_ONCE: tl.constexpr,
    GIVEN: tl.constexpr, I_BLOCK: tl.constexpr, S_BLOCK: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(samples, S_BLOCK)
    done = counters + 1
    task = tl.atomic_add(counters, 1)
    while task < tasks:
        # Every sum after its parent.
        row = tl.load(order + (num_sums - 1 - task // blocks)).to(tl.int64)
        block = task % blocks
        sample = block * S_BLOCK + tl.arange(0, S_BLOCK)[:, None]
        inside = sample < samples
        # All that needs no choice is done before anyone is waited for.
        u, _ = uniforms(seed, sample, row + first_sum, SUMS)
        first, last = tl.load(ends + row), tl.load(ends + row + 1)
        # Rows of weights are loaded four numbers at a time where they begin so.
        weight_at = weight + tl.multiple_of(tl.load(offsets + row), ALIGNED)
        if num_inputs <= I_BLOCK:
            p = _products(v, v_node, v_k, children, first, last, sample % rows, inside,
                          num_inputs, AT_ONCE, GIVEN, I_BLOCK)  # fmt: skip
        parent = tl.load(parents + row)
        if parent >= 0:
            wait(done + parent * blocks + block, 1)
        k = tl.load(choice + (row + first_sum) * samples + sample, mask=inside, other=-1)
        if num_inputs <= I_BLOCK:
            entry = _pick(weight_at, p, k, u, num_inputs, I_BLOCK)
        else:
            entry = _pick_of_many(weight_at, v, v_node, v_k, children, first, last, k,
                                  sample % rows, u, num_inputs, AT_ONCE, GIVEN, I_BLOCK,
                                  S_BLOCK)  # fmt: skip
        for edge in range(first, last):
            node = tl.load(children + edge)
            tl.store(choice + node * samples + sample, entry, mask=inside & (k >= 0))
        signal(done + row * blocks + block)
        task = tl.atomic_add(counters, 1)


@triton.jit
def _highest(p, e):
    """The largest exponent of a sample's products."""
    return tl.max(tl.where(p > 0, e, _NEVER), 1, keep_dims=True)


@triton.jit
def _products(
    v, v_node, v_k, children, first, last, b, here, num_inputs: tl.constexpr,
    AT_ONCE: tl.constexpr, GIVEN: tl.constexpr, I_BLOCK: tl.constexpr,
):  # fmt: skip
    """Products of all children's values, scaled as on the way up; 1 where nothing is known."""
    if GIVEN:
        i = tl.arange(0, I_BLOCK)[None, :]
        p, e = product(v, children, first, last, i, b, here & (i < num_inputs), v_node, v_k,
                       AT_ONCE)  # fmt: skip
        return p * power(e - _highest(p, e))
    else:
        return tl.where(here, 1.0, 0.0)


@triton.jit
def _pick(weight, p, k, u, num_inputs: tl.constexpr, I_BLOCK: tl.constexpr):
    """The entry of its children by which each sample goes on ``[samples, 1]``; −1 for none."""
    i = tl.arange(0, I_BLOCK)[None, :]
    here = (k >= 0) & (i < num_inputs)
    q = p * tl.load(weight + (k * num_inputs + i), mask=here, other=0.0).to(tl.float64)
    return option_at(place_above(tl.cumsum(q, 1), u * tl.sum(q, 1, keep_dims=True), q, i))


@triton.jit
def _options(
    weight, v, v_node, v_k, children, first, last, k, b, i, num_inputs: tl.constexpr,
    AT_ONCE: tl.constexpr, GIVEN: tl.constexpr,
):  # fmt: skip
    """Weights (float64) and products as p·2^e of some options, ``[samples, entries]``."""
    here = (k >= 0) & (i < num_inputs)
    w = tl.load(weight + (k * num_inputs + i), mask=here, other=0.0).to(tl.float64)
    p = tl.where(here, 1.0, 0.0)
    e = tl.zeros(p.shape, tl.int32)
    if GIVEN:
        p, e = product(v, children, first, last, i, b, here, v_node, v_k, AT_ONCE)
    return w, p, e


@triton.jit
def _pick_of_many(
    weight, v, v_node, v_k, children, first, last, k, b, u, num_inputs: tl.constexpr,
    AT_ONCE: tl.constexpr, GIVEN: tl.constexpr, I_BLOCK: tl.constexpr, S_BLOCK: tl.constexpr,
):  # fmt: skip
    """The same for more entries than a tile holds: once for their total, once more to choose."""
    largest = tl.full([S_BLOCK, 1], _NEVER, tl.int32)
    total = tl.zeros([S_BLOCK, 1], tl.float64)
    for start in range(0, num_inputs, I_BLOCK):
        i = start + tl.arange(0, I_BLOCK)[None, :]
        w, p, e = _options(weight, v, v_node, v_k, children, first, last, k, b, i, num_inputs,
                           AT_ONCE, GIVEN)  # fmt: skip
        before = largest
        largest = tl.maximum(before, _highest(p, e))
        total *= power(before - largest)
        total += tl.sum(w * (p * power(e - largest)), 1, keep_dims=True)
    target = u * total
    base = tl.zeros([S_BLOCK, 1], tl.float64)
    place = tl.full([S_BLOCK, 1], 1 << 30, tl.int32)
    for start in range(0, num_inputs, I_BLOCK):
        i = start + tl.arange(0, I_BLOCK)[None, :]
        w, p, e = _options(weight, v, v_node, v_k, children, first, last, k, b, i, num_inputs,
                           AT_ONCE, GIVEN)  # fmt: skip
        q = w * (p * power(e - largest))
        place = tl.minimum(place, place_above(base + tl.cumsum(q, 1), target, q, i))
        base += tl.sum(q, 1, keep_dims=True)
    return option_at(place)
