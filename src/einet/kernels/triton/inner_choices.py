"""Choices of outer products, of mixtures and of classes on a GPU: one launch for a layer.

A sum over outer products, left by its entry k, goes on by the entries i and j of its two children
with probability :math:`\\propto W_{kij} v_i v'_j`: first i by its marginal, then j given i, each by
a number of its own. A mixture goes on to one of its children, by the same entry k. Neither visits a
list of nodes: a node that a sample does not come by has the choice −1.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.choices import SUMS, option_at, place_above, samples_at_once, uniforms
from einet.kernels.triton.einsum import EinsumEdges

__all__ = ["choose_class", "choose_component", "choose_pair"]

# Samples of a program that walks through the components of a mixture.
_SAMPLES = 128
# Cells of a tile, samples times entries of both children.
_CELLS = 2048


# -- outer products --------------------------------------------------------------------------------


def choose_pair(
    weight: Float[Tensor, "L K_out IJ"],
    v: Float[Tensor, "nodes K rows"] | None,
    edges: EinsumEdges,
    above: Int[Tensor, "L samples"],
    below: Int[Tensor, "nodes samples"],
    seed: Int[Tensor, " 1"],
    number: int,
) -> None:
    """The choices ``below`` of both children, as :func:`~.linear_choices.choose` makes them."""
    samples, num = above.shape[-1], weight.shape[0]
    entries = int(triton.next_power_of_2(edges.num_left))
    across = min(int(triton.next_power_of_2(edges.num_right)), max(16, _CELLS // entries))
    block = max(1, min(8, _CELLS // (entries * across)))
    at_once = samples_at_once(above, samples, block)
    node, entry, rows = (0, 0, 1) if v is None else (v.stride(0), v.stride(1), v.shape[-1])
    _pair[(num * triton.cdiv(samples, at_once),)](
        weight, weight if v is None else v, edges.left, edges.right_or_left, above, below, seed,
        samples, rows, node, entry, number, weight.shape[1], edges.num_left, edges.num_right,
        UNARY=edges.right is None, GIVEN=v is not None,
        I=entries, J_ALL=int(triton.next_power_of_2(edges.num_right)), J_BLOCK=across,
        S_BLOCK=at_once, num_warps=4 if entries * across * block > 512 else 1,
    )  # fmt: skip


@triton.jit(do_not_specialize=["samples", "rows"])
def _pair(
    weight, v, left, right, above, below, seed, samples, rows, v_node, v_k, number, num_outputs,
    num_left: tl.constexpr, num_right: tl.constexpr, UNARY: tl.constexpr, GIVEN: tl.constexpr,
    I: tl.constexpr, J_ALL: tl.constexpr, J_BLOCK: tl.constexpr, S_BLOCK: tl.constexpr,  # noqa: E741
):  # fmt: skip
    blocks = tl.cdiv(samples, S_BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    sample = (tl.program_id(0) % blocks) * S_BLOCK + tl.arange(0, S_BLOCK)
    k = tl.load(above + row * samples + sample, mask=sample < samples, other=-1)
    # In a mixture of structures most samples are elsewhere.
    if tl.max(k, 0) >= 0:
        visited = (k >= 0)[:, None]
        b = (sample % rows)[:, None]
        u, w = uniforms(seed, sample[:, None], row + number, SUMS)
        l_node, r_node = tl.load(left + row), tl.load(right + row)
        weight_at = weight + (row * num_outputs + k[:, None]) * (num_left * num_right)
        i = tl.arange(0, I)[None, :]
        marginal = tl.zeros([S_BLOCK, I], tl.float64)
        for start in range(0, num_right, J_BLOCK):
            j = start + tl.arange(0, J_BLOCK)[None, :]
            place = weight_at[:, :, None] + (i[:, :, None] * num_right + j[:, None, :])
            here = visited[:, :, None] & (i < num_left)[:, :, None] & (j < num_right)[:, None, :]
            joint = tl.load(place, mask=here, other=0.0).to(tl.float64)
            if GIVEN and not UNARY:
                right_at = v + r_node * v_node + (j * v_k + b)
                value = tl.load(right_at, mask=visited & (j < num_right), other=0.0)
                joint *= value[:, None, :]
            marginal += tl.sum(joint, 2)
        if GIVEN:
            left_at = v + l_node * v_node + (i * v_k + b)
            marginal *= tl.load(left_at, mask=visited & (i < num_left), other=0.0)
        target = u * tl.sum(marginal, 1, keep_dims=True)
        place = place_above(tl.cumsum(marginal, 1), target, marginal, i)
        entry = option_at(place)
        there = (sample < samples)[:, None] & visited
        tl.store(below + l_node * samples + sample[:, None], entry, mask=there)
        if not UNARY:
            j = tl.arange(0, J_ALL)[None, :]
            here = visited & (entry >= 0) & (j < num_right)
            of_j = tl.load(weight_at + (entry * num_right + j), mask=here, other=0.0).to(tl.float64)
            if GIVEN:
                of_j *= tl.load(v + r_node * v_node + (j * v_k + b), mask=here, other=0.0)
            target = w * tl.sum(of_j, 1, keep_dims=True)
            place = place_above(tl.cumsum(of_j, 1), target, of_j, j)
            tl.store(below + r_node * samples + sample[:, None], option_at(place), mask=there)


# -- mixtures --------------------------------------------------------------------------------------


def choose_component(
    weight: Float[Tensor, "edges K"],
    nodes: Nodes | None,
    children: Int[Tensor, " edges"],
    ends: Int[Tensor, " regions_1"],
    above: Int[Tensor, "regions samples"],
    below: Int[Tensor, "nodes samples"],
    seed: Int[Tensor, " 1"],
    number: int,
) -> None:
    """One component of each mixture gets its entry; ``nodes`` are None where nothing is known."""
    samples, num = above.shape[-1], above.shape[0]
    at_once = samples_at_once(above, samples, _SAMPLES)
    v, m, node, entry, rows = weight, weight, 0, 0, 1
    if nodes is not None:
        v, m, rows = nodes.v, nodes.m, nodes.m.shape[-1]
        node, entry = v.stride(0), v.stride(1)
    _component[(num * triton.cdiv(samples, at_once),)](
        weight, v, m, children, ends, above, below, seed,
        samples, rows, node, entry, number, weight.shape[1],
        GIVEN=nodes is not None, S_BLOCK=at_once, num_warps=4,
    )  # fmt: skip


@triton.jit
def _share(
    weight, v, m, node, edge, k, b, visited, largest, rows, v_node, v_k, num_outputs,
    GIVEN: tl.constexpr,
):  # fmt: skip
    """The weight of one component for each sample, up to a factor."""
    q = tl.load(weight + edge * num_outputs + k, mask=visited, other=0.0).to(tl.float64)
    if GIVEN:
        q *= tl.load(v + node * v_node + (k * v_k + b), mask=visited, other=0.0)
        q *= tl.exp(tl.load(m + node * rows + b, mask=visited, other=0.0) - largest)
    return q


@triton.jit(do_not_specialize=["samples", "rows"])
def _component(
    weight, v, m, children, ends, above, below, seed, samples, rows, v_node, v_k, number,
    num_outputs, GIVEN: tl.constexpr, S_BLOCK: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(samples, S_BLOCK)
    region = (tl.program_id(0) // blocks).to(tl.int64)
    sample = (tl.program_id(0) % blocks) * S_BLOCK + tl.arange(0, S_BLOCK)
    k = tl.load(above + region * samples + sample, mask=sample < samples, other=-1)
    if tl.max(k, 0) >= 0:
        visited, b = k >= 0, sample % rows
        u, _ = uniforms(seed, sample, region + number, SUMS)
        first, last = tl.load(ends + region), tl.load(ends + region + 1)
        largest = tl.full([S_BLOCK], float("-inf"), tl.float64)
        if GIVEN:
            for edge in range(first, last):
                node = tl.load(children + edge)
                scale = tl.load(m + node * rows + b, mask=visited, other=0.0)
                largest = tl.maximum(largest, scale)
            largest = tl.where(largest == float("-inf"), 0.0, largest)
        total = tl.zeros([S_BLOCK], tl.float64)
        for edge in range(first, last):
            node = tl.load(children + edge)
            total += _share(weight, v, m, node, edge, k, b, visited, largest, rows, v_node, v_k,
                            num_outputs, GIVEN)  # fmt: skip
        target = u * total
        sums = tl.zeros([S_BLOCK], tl.float64)
        chosen = tl.full([S_BLOCK], -1, tl.int64)
        settled = tl.zeros([S_BLOCK], tl.int32)
        for edge in range(first, last):
            node = tl.load(children + edge)
            q = _share(weight, v, m, node, edge, k, b, visited, largest, rows, v_node, v_k,
                       num_outputs, GIVEN)  # fmt: skip
            sums += q
            # Up to the one that exceeds the target; the last, should rounding leave none.
            taken = (q > 0) & (settled == 0)
            chosen = tl.where(taken, node, chosen)
            settled = tl.where(taken & (sums > target), 1, settled)
        tl.store(below + chosen * samples + sample, k, mask=visited & (chosen >= 0))


# -- classes ---------------------------------------------------------------------------------------


def choose_class(
    joint: Float[Tensor, "classes rows"],
    root: Int[Tensor, " samples"],
    seed: Int[Tensor, " 1"],
    number: int,
) -> None:
    """The entry of the ``root`` of each sample, given log p(c, e) of its row (float64)."""
    samples, (classes, rows) = root.shape[0], joint.shape
    at_once = samples_at_once(root, samples, _SAMPLES)
    _class[(triton.cdiv(samples, at_once),)](
        joint.contiguous(), root, seed, samples, rows, classes, number,
        S_BLOCK=at_once, num_warps=4,
    )  # fmt: skip


@triton.jit(do_not_specialize=["samples", "rows", "classes", "number"])
def _class(joint, root, seed, samples, rows, classes, number, S_BLOCK: tl.constexpr):
    sample = tl.program_id(0) * S_BLOCK + tl.arange(0, S_BLOCK)
    inside, at = sample < samples, joint + sample % rows
    u, _ = uniforms(seed, sample, number, SUMS)
    largest = tl.full([S_BLOCK], float("-inf"), tl.float64)
    for c in range(classes):
        largest = tl.maximum(largest, tl.load(at + c * rows))
    largest = tl.where(largest == float("-inf"), 0.0, largest)
    total = tl.zeros([S_BLOCK], tl.float64)
    for c in range(classes):
        total += tl.exp(tl.load(at + c * rows) - largest)
    target = u * total
    sums = tl.zeros([S_BLOCK], tl.float64)
    chosen = tl.full([S_BLOCK], -1, tl.int32)
    settled = tl.zeros([S_BLOCK], tl.int32)
    for c in range(classes):
        q = tl.exp(tl.load(at + c * rows) - largest)
        sums += q
        taken = (q > 0) & (settled == 0)
        chosen = tl.where(taken, c, chosen)
        settled = tl.where(taken & (sums > target), 1, settled)
    tl.store(root + sample, chosen, mask=inside)
