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

__all__ = [
    "RECORD",
    "Flows",
    "Products",
    "TreeEdges",
    "Walk",
    "Weights",
    "new_counters",
    "programs",
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
class Walk:
    """How programs walk through the sums of a tree, upwards and downwards.

    Attributes:
        children: The children of each sum, those that are no sums of the tree first.
        records: ``RECORD`` numbers of each sum: where its children begin, where those among the
            sums begin, where all end; the sum above it, or −1 − t for the t-th of the topmost ones;
            the sum by which a path downwards goes on, −1 where it ends; how many children among the
            sums the one above has; and the first two children that are no sums, −1 for none.
        starts: The sums with none below them, those first that most has to wait for.
        heads: Where paths downwards begin, each after the path that it leaves.
        first_sum: The node of the first sum.
        num_leaf_nodes: Nodes with smaller numbers are leaves.
    """

    children: Int[Tensor, " edges"]
    records: Int[Tensor, "sums 8"]
    starts: Int[Tensor, " starts"]
    heads: Int[Tensor, " heads"]
    first_sum: int
    num_leaf_nodes: int

    def __len__(self) -> int:
        return len(self.records)


#: Numbers of a sum's record, which so begins where a part of a cache line does.
RECORD = 8


@dataclass
class Products:
    """What the sums are sums of: ``p[sum, entry, sample]``.

    They are divided by a power of two such that the largest of a sum and sample is in [1, 2).
    """

    p: Float[Tensor, "sums I batch"]

    @property
    def nbytes(self) -> int:
        """The memory of all of them."""
        return self.p.nbytes

    def at(self, rows: slice | Int[Tensor, " some"], batch: int) -> Products:
        """The same for some of ``batch`` samples."""
        return Products(self.p[..., rows].contiguous())


@dataclass
class Flows:
    """The flow of each sum into an entry of its children, ``f[sum, entry, sample]``.

    Into the topmost sums nothing flows from others: ``above`` has gradients of their values.
    """

    f: Float[Tensor, "sums K batch"]
    above: Float[Tensor, "tops K batch"]


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
