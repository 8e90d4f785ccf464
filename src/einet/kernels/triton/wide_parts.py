"""What the kernels of a tree of wide sums share: its operands cut into planes, and its order."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.products import PLANES, cut
from einet.kernels.triton.tree_parts import TreeEdges

__all__ = ["SAMPLES", "Gradients", "WideProducts", "backward_order", "forward_order"]

#: Samples are filled up to a multiple of this number.
SAMPLES = 64
# Entries that a product task makes, and that share an exponent for each sample: as many as the
# largest tiles have.
_GROUP = 128
# How long the tasks take, in one unit: only their ratio counts, and it is roughly this.
_PRODUCT_COST = 1.0
_SUM_COST = 2.0


# -- operands --------------------------------------------------------------------------------------


def _room(like: Tensor, sums: int, entries: int, batch: int, precision: str) -> Tensor:
    blocks = triton.cdiv(batch, SAMPLES)
    shape = (PLANES[precision], sums, entries, blocks * SAMPLES)
    return like.new_empty(shape, dtype=torch.bfloat16)


@dataclass
class WideProducts:
    """What the sums are sums of, ``p[plane, sum, entry, sample]``: planes add up to a number.

    Entries and samples are filled up with zeros to whole groups and blocks. Those of a group are
    divided by 2 to the power of ``exponents[sum, group, sample]``; times ``factors``, which are
    powers of two as well, all groups of a sum are divided by the same. (A single group needs none.)
    """

    p: Float[Tensor, "planes sums entries samples"]
    exponents: Int[Tensor, "sums groups samples"]
    factors: Float[Tensor, "sums groups samples"]
    group: int

    @property
    def groups(self) -> int:
        """How many groups the entries of a sum are made in."""
        return self.exponents.shape[1]

    @property
    def nbytes(self) -> int:
        """The memory of all of them."""
        return self.p.nbytes + self.exponents.nbytes + self.factors.nbytes

    @classmethod
    def empty(
        cls, sums: int, inputs: int, batch: int, like: Tensor, precision: str
    ) -> WideProducts:
        """Products yet to be written."""
        groups = triton.cdiv(inputs, _GROUP)
        p = _room(like, sums, groups * _GROUP, batch, precision)
        exponents = like.new_empty(sums, groups, p.shape[-1], dtype=torch.int32)
        return cls(p, exponents, exponents.new_empty(exponents.shape, dtype=p.dtype), _GROUP)

    def at(self, rows: slice | Int[Tensor, " some"], batch: int) -> WideProducts:
        """The same for some of ``batch`` samples."""
        whole = (self.p, self.exponents, self.factors)
        parts = [part[..., :batch][..., rows] for part in whole]
        fill = (0, -parts[0].shape[-1] % SAMPLES)
        p, exponents, factors = (torch.nn.functional.pad(part, fill) for part in parts)
        return WideProducts(p, exponents, factors, self.group)


@dataclass
class Gradients:
    """u = ∂log P/∂v of all sums, in planes like the products.

    ``totals[sum, block, entry]`` is the flow u·v into an entry, added up over a block of samples.
    """

    u: Float[Tensor, "planes sums entries samples"]
    totals: Float[Tensor, "sums blocks entries"]

    @classmethod
    def of_top(
        cls,
        gradient: Float[Tensor, "nodes K batch"],
        nodes: Nodes,
        edges: TreeEdges,
        num_outputs: int,
        precision: str,
    ) -> Gradients:
        """Those of sums whose parent is none of these, with room for all others."""
        batch = gradient.shape[-1]
        entries = triton.cdiv(num_outputs, _GROUP) * _GROUP
        u = _room(gradient, len(edges), entries, batch, precision)
        blocks = u.shape[-1] // SAMPLES
        totals = gradient.new_empty(len(edges), blocks, entries)
        _begin[(len(edges.tops), entries // 16, blocks)](
            gradient, nodes.v, edges.tops, u, totals, batch, u.stride(0), u.shape[-1], entries,
            gradient.stride(0), gradient.stride(1), nodes.v.stride(0), nodes.v.stride(1),
            edges.first_sum, num_outputs, PLANES=PLANES[precision], ENTRIES=16, B_BLOCK=SAMPLES,
        )  # fmt: skip
        return cls(u, totals)


@triton.jit
def _begin(
    gradient, v, tops, planes, totals, B, plane, B_PAD, entries, g_node, g_k, v_node, v_k,
    first_sum, num_outputs, PLANES: tl.constexpr, ENTRIES: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.load(tops + tl.program_id(0)).to(tl.int64)
    block = tl.program_id(2)
    entry = tl.program_id(1) * ENTRIES + tl.arange(0, ENTRIES)
    k, b = entry[:, None], block * B_BLOCK + tl.arange(0, B_BLOCK)[None, :]
    here = (k < num_outputs) & (b < B)
    u = tl.load(gradient + (row + first_sum) * g_node + (k * g_k + b), mask=here, other=0.0)
    value = tl.load(v + (row + first_sum) * v_node + (k * v_k + b), mask=here, other=0.0)
    near, middle, last = cut(u)
    at = planes + (row * entries + k) * B_PAD + b
    tl.store(at, near)
    if PLANES >= 2:
        tl.store(at + plane, middle)
    if PLANES == 3:
        tl.store(at + 2 * plane, last)
    tl.store(totals + (row * tl.num_programs(2) + block) * entries + entry, tl.sum(u * value, 1))


# -- the order of tasks ----------------------------------------------------------------------------


def forward_order(edges: TreeEdges, makers: int, parts: int, slots: int) -> Int[Tensor, " tasks"]:
    """Task ``sum · (makers + parts) + what``, where ``what`` counts its product tasks first.

    The order is that in which so many slots begin them, if each begins what most has to wait for.
    """

    def make() -> list[int]:
        depth = _distances(edges.parent_list)
        children = [0] * len(depth)
        for parent in edges.parent_list:
            if parent >= 0:
                children[parent] += 1
        stages = [(makers, _PRODUCT_COST), (parts, _SUM_COST)]
        ready = [row for row, count in enumerate(children) if not count]

        def after(row: int) -> list[int]:
            parent = edges.parent_list[row]
            if parent < 0:
                return []
            children[parent] -= 1
            return [] if children[parent] else [parent]

        return _simulated(ready, stages, [-d for d in depth], after, slots)

    return edges.ordered(("up", makers, parts, slots), make)


def backward_order(edges: TreeEdges, parts: int, slots: int) -> Int[Tensor, " tasks"]:
    """Task ``sum · parts + part`` in the order of their beginning, from the topmost sums down."""

    def make() -> list[int]:
        parents = edges.parent_list
        below: list[list[int]] = [[] for _ in parents]
        height = [0] * len(parents)
        # Parents come after their children.
        for row, parent in enumerate(parents):
            if parent >= 0:
                below[parent].append(row)
                height[parent] = max(height[parent], height[row] + 1)
        ready = [row for row, parent in enumerate(parents) if parent < 0]
        stages = [(parts, _SUM_COST)]
        return _simulated(ready, stages, [-h for h in height], below.__getitem__, slots)

    return edges.ordered(("down", parts, slots), make)


def _distances(parents: Sequence[int]) -> list[int]:
    """How far each sum is from the topmost one above it."""
    depth = [0] * len(parents)
    for row in reversed(range(len(parents))):
        if parents[row] >= 0:
            depth[row] = depth[parents[row]] + 1
    return depth


def _simulated(
    ready: Sequence[int],
    stages: Sequence[tuple[int, float]],
    priority: Sequence[int],
    after: Callable[[int], list[int]],
    slots: int,
) -> list[int]:
    """Begin tasks as slots get free, those of least ``priority`` first.

    A row has stages of so many tasks that take so long each; one begins when the last is done, and
    ``after`` names the rows that the end of a row sets free.
    """
    each = sum(count for count, _ in stages)
    waiting: list[tuple[int, int, int, int]] = []
    running: list[tuple[float, int, int]] = []
    left = {}
    order: list[int] = []

    def add(row: int, stage: int) -> None:
        left[row] = stages[stage][0]
        first = sum(count for count, _ in stages[:stage])
        for what in range(first, first + stages[stage][0]):
            heappush(waiting, (priority[row], row, what, stage))

    for row in ready:
        add(row, 0)
    now, free = 0.0, slots
    while waiting or running:
        while waiting and free:
            _, row, what, stage = heappop(waiting)
            order.append(row * each + what)
            heappush(running, (now + stages[stage][1], row, stage))
            free -= 1
        now, row, stage = heappop(running)
        free += 1
        left[row] -= 1
        if left[row]:
            continue
        if stage + 1 < len(stages):
            add(row, stage + 1)
        else:
            for other in after(row):
                add(other, 0)
    return order
