"""What the kernels of a tree of linear sums share: its edges, its products, and who is done."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.triton.linear import power

__all__ = [
    "Products",
    "TreeEdges",
    "Weights",
    "new_counters",
    "programs",
    "rescaled",
    "signal",
    "wait",
]


@dataclass
class TreeEdges:
    """The sums of a tree: nodes ``first_sum`` and following, each with children below it.

    Attributes:
        children: The children of each sum, row by row; no node is a child of two sums.
        ends: Where each row begins in ``children``, and where the last one ends.
        parents: The sum that each sum is a child of; −1 where it is none of these.
        order: The sums, every one after its children.
        first_sum: The node of the first sum.
        num_leaf_nodes: Nodes with smaller numbers are leaves.
        at_once: Values of so many children are loaded side by side.
        tops: The sums that are a child of none of these.
        parent_list: The parents once more, where Python can read them without waiting.
        orders: Lists of tasks made before, by what they were made for.
    """

    children: Int[Tensor, " edges"]
    ends: Int[Tensor, " sums_1"]
    parents: Int[Tensor, " sums"]
    order: Int[Tensor, " sums"]
    first_sum: int
    num_leaf_nodes: int
    at_once: int
    tops: Int[Tensor, " tops"]
    parent_list: Sequence[int]
    orders: dict[tuple, Tensor]

    def __len__(self) -> int:
        return len(self.parents)

    def ordered(self, key: tuple, make: Callable[[], list[int]]) -> Int[Tensor, " tasks"]:
        """A list of tasks beside the edges, made once."""
        device = self.children.device
        if (device, *key) not in self.orders:
            self.orders[device, *key] = torch.tensor(make(), dtype=torch.int32, device=device)
        return self.orders[device, *key]


@dataclass
class Weights:
    """The weights ``[K_out, I]`` of every sum: sum s has them at ``offsets[s]`` numbers from base.

    They lie in tensors of several layers, which ``tensors`` keeps alive. If they are ``aligned``,
    every sum's begin at a multiple of 64 bytes.
    """

    base: Tensor
    offsets: Int[Tensor, " sums"]
    num_outputs: int
    num_inputs: int
    tensors: list[Tensor]
    aligned: bool = False


@dataclass
class Products:
    """What the sums are sums of: ``p[sum, entry, sample]``, made ``group`` entries at a time.

    Those of a group are divided by a power of two such that the largest product so far is in
    [1, 2). Its exponent is kept, so that in the end all can be divided by that of the last group.
    """

    p: Float[Tensor, "sums I batch"]
    exponents: Int[Tensor, "sums groups batch"]
    group: int

    @property
    def nbytes(self) -> int:
        """The memory of all of them."""
        return self.p.nbytes + self.exponents.nbytes

    def at(self, rows: slice | Int[Tensor, " some"], batch: int) -> Products:
        """The same for some of ``batch`` samples."""
        p, exponents = (part[..., rows].contiguous() for part in (self.p, self.exponents))
        return Products(p, exponents, self.group)

    @classmethod
    def empty(
        cls, sums: int, inputs: int, batch: int, group: int, like: Float[Tensor, "..."]
    ) -> Products:
        """Products yet to be written."""
        groups = triton.cdiv(inputs, group)
        return cls(
            like.new_empty(sums, inputs, batch),
            like.new_empty(sums, groups, batch, dtype=torch.int32),
            group,
        )


@triton.jit
def rescaled(p, exponents, row, i, b, here, B, num_inputs: tl.constexpr, GROUP: tl.constexpr):
    """Products as they were kept, divided by the largest of all their groups."""
    groups: tl.constexpr = (num_inputs + GROUP - 1) // GROUP
    if groups > 1:
        at = exponents + row * groups * B
        own = tl.load(at + ((i // GROUP) * B + b), mask=here, other=0)
        # An exponent never falls from one group to the next.
        p *= power(own - tl.load(at + ((groups - 1) * B + b), mask=here, other=0))
    return p


# -- who is next, and who is done ------------------------------------------------------------------


@triton.jit
def wait(done, count):
    """Return once the counter has reached a number, and see what was written before."""
    reached = tl.atomic_add(done, 0, sem="acquire")
    while reached < count:
        reached = tl.atomic_add(done, 0, sem="acquire")


@triton.jit
def signal(done):
    """Count one more, after all that this program has written."""
    tl.debug_barrier()
    tl.atomic_add(done, 1, sem="release")


def programs(like: Tensor, tasks: int, each: int) -> int:
    """As many programs as run at once, ``each`` on a multiprocessor."""
    if not like.is_cuda:
        return 1
    return min(tasks, each * _multiprocessors(like.device))


_counts: dict[torch.device, int] = {}


def _multiprocessors(device: torch.device) -> int:
    if device not in _counts:
        _counts[device] = torch.cuda.get_device_properties(device).multi_processor_count
    return _counts[device]


def new_counters(like: Tensor, sums: int, blocks: int) -> Tensor:
    """Of tasks handed out, and of tasks done for each sum and block of samples."""
    return torch.zeros(1 + sums * blocks, dtype=torch.int32, device=like.device)
