"""How much memory each kind of work may take at a time: all budgets, and what fits them.

Work that grows with the number of rows, leaves or entries is cut into parts. How large those are
decides the speed as much as the memory, so that the numbers are measured ones, and stand in one
table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

__all__ = [
    "BUDGETS",
    "Budget",
    "available",
    "budget",
    "check_memory",
    "check_room",
    "chunks",
    "fitting",
]

_CPU = torch.device("cpu")
# Where Linux tells what memory there is, for all and for a container.
_MEMORY, _CONTAINER = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
# Whoever needs no more than this need not ask.
_UNASKED = 64 << 20


@dataclass(frozen=True)
class Budget:
    """Bytes on a CPU and on a GPU.

    Where ``gpu_most`` is given, a GPU's budget is ``1 / gpu_share`` of its memory, within
    ``gpu`` and ``gpu_most``.
    """

    cpu: int
    gpu: int
    gpu_most: int | None = None
    gpu_share: int = 16

    def on(self, device: torch.device) -> int:
        """The budget on a device."""
        if device.type == "cpu":
            return self.cpu
        if self.gpu_most is None:
            return self.gpu
        return min(max(self.gpu, _memory_of(device) // self.gpu_share), self.gpu_most)


@cache
def _memory_of(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        # Not every system tells; what no machine has is refused all the same.
        return 1 << 44


def check_memory(what: str, nbytes: int, device: torch.device = _CPU) -> None:
    """Raise a ``ValueError`` where something cannot fit all memory that there is.

    Better than to be told by an allocator, or to have all other programs pushed out.

    Args:
        what: The arguments that ask for so much, for the error.
        nbytes: How many bytes they ask for, at least.
        device: Where.

    Example:
        >>> check_memory("n", 1000)
    """
    room = _memory_of(device)
    if nbytes > room:
        # Integers of any size: what is asked for may be beyond what a float can hold.
        asked, there = nbytes >> 30, room / (1 << 30)
        shown = str(asked) if asked < 10**9 else f"2**{asked.bit_length() - 1}"
        raise ValueError(
            f"{what} would take {shown} GiB of memory or more, and {device} has {there:.3g}"
        )


#: The budget of each kind of work, by name.
BUDGETS: dict[str, Budget] = {
    # Temporaries of one kernel. On a server core (1 MiB of L2 cache, 32 MiB of shared L3) about
    # 1 MiB is best: less loses to the overhead of each call, more to memory traffic. A GPU wants
    # to be filled.
    "block": Budget(1 << 20, 256 << 20),
    # A block may take more than that where it would hold too few rows to give every core some.
    "rows at once": Budget(32 << 20, 32 << 20),
    # Weights that a choice is made by, of some nodes on the way down.
    "choices": Budget(16 << 20, 4 << 30),
    # Parameters that are updated together: they stay in a core's cache through all passes.
    "update": Budget(8 << 16, 8 << 26),
    # Values of all nodes for some rows, where no gradients are asked for. A training step in one
    # piece is faster, so that on a GPU it depends on its memory; the most is what kernels can
    # number by 32 bits.
    "values": Budget(256 << 20, 1 << 30, gpu_most=1 << 32),
    # Choices of samples that are drawn together.
    "samples": Budget(64 << 20, 64 << 20),
    # Statistics T(x) of rows: for the first parameters of leaves, for clusters, for a prior.
    "statistics": Budget(256 << 20, 256 << 20),
    "cluster statistics": Budget(128 << 20, 128 << 20),
    "prior statistics": Budget(64 << 20, 64 << 20),
    # What the recorded passes of a model's posteriors keep, all shapes together; and no more than
    # that is recorded, as larger passes take longer than their launches.
    "recorded queries": Budget(64 << 20, 1 << 30),
    # Tables of the bins of leaves: one of them, and all that are kept.
    "table": Budget(64 << 20, 1 << 30),
    "kept tables": Budget(1 << 30, 8 << 30),
    # Rows of data for the information between variables.
    "information": Budget(128 << 20, 128 << 20),
    "one-hot rows": Budget(256 << 20, 1 << 30),
    # Counts of pairs of states: as products; as tables that the caches of a core, or of a GPU,
    # hold; and the rows that are looked up in these.
    "pair counts": Budget(32 << 20, 512 << 20),
    "pair tables": Budget(1 << 20, 64 << 20),
    "pair codes": Budget(16 << 20, 256 << 20),
    # Columns whose values are put into levels.
    "levels": Budget(128 << 20, 2 << 30),
    # Images that are measured together, by tables of bins and by densities.
    "images": Budget(32 << 20, 32 << 20),
    "image densities": Budget(32 << 20, 512 << 20),
    # Images that are read together.
    "image files": Budget(64 << 20, 64 << 20),
    # A part of a set of rows on its way through a device.
    "rows": Budget(32 << 20, 256 << 20),
    # Rows among which the first centres of clusters are sought.
    "seeds": Budget(64 << 20, 64 << 20),
    # Values, or data, of clusters that are trained side by side.
    "side by side": Budget(1 << 30, 1 << 30),
    # Rows of a source that does not fit memory: those that are shuffled together, those that are
    # read at a time, and those that a structure is learnt from.
    "shuffled rows": Budget(128 << 20, 128 << 20),
    "read rows": Budget(16 << 20, 16 << 20),
    "structure rows": Budget(512 << 20, 512 << 20),
    # Rows that initial leaves are read off.
    "first rows": Budget(128 << 20, 128 << 20),
}


def budget(name: str, device: torch.device = _CPU) -> int:
    """The bytes that one kind of work may take on a device.

    Example:
        >>> budget("table", torch.device("cpu"))
        67108864
    """
    return BUDGETS[name].on(device)


def fitting(name: str, bytes_each: int, device: torch.device = _CPU, least: int = 1) -> int:
    """How many things of ``bytes_each`` fit a budget; at least ``least``, however large they are.

    Example:
        >>> fitting("block", bytes_each=1000), fitting("block", bytes_each=1 << 30, least=64)
        (1048, 64)
    """
    return max(least, budget(name, device) // max(1, bytes_each))


def chunks(
    count: int, name: str, bytes_each: int, device: torch.device = _CPU, least: int = 1
) -> Iterator[slice]:
    """Cut ``count`` things of ``bytes_each`` into slices that fit a budget.

    Args:
        count: How many there are.
        name: The kind of work, one of :data:`BUDGETS`.
        bytes_each: What one of them takes.
        device: Where the work is done.
        least: So many are done at a time even if they do not fit.

    Example:
        >>> list(chunks(5, "block", bytes_each=400_000))
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = fitting(name, bytes_each, device, least)
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def available() -> int | None:
    """The bytes of main memory that are free, or would be if they were asked for.

    None where the system does not tell.
    """
    free = [number for number in (_free_here(), _free_in_container()) if number is not None]
    return min(free, default=None)


def check_room(what: str, needed: int) -> None:
    """Raise ``MemoryError`` if there is clearly no room for something, before it is made.

    A system that promises more memory than it has ends the process later, without a word.

    Args:
        what: What is to be made, in the plural.
        needed: The bytes that it takes.

    Example:
        >>> check_room("nine images", needed=9_000)
        >>> check_room("all images of the world", needed=1 << 60)
        Traceback (most recent call last):
        ...
        MemoryError: all images of the world take 1152921504.6 GB of memory, but ... GB are free
    """
    if needed <= _UNASKED:
        return
    free = available()
    if free is not None and needed > free:
        raise MemoryError(
            f"{what} take {needed / 1e9:.1f} GB of memory, but {free / 1e9:.1f} GB are free"
        )


def _free_here() -> int | None:
    try:
        lines = (line.split() for line in _MEMORY.read_text().splitlines())
        return next(1024 * int(words[1]) for words in lines if words[0] == "MemAvailable:")
    except (OSError, ValueError, IndexError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _free_in_container() -> int | None:
    try:
        most, used = (
            int((_CONTAINER / name).read_text()) for name in ("memory.max", "memory.current")
        )
        lines = (_CONTAINER / "memory.stat").read_text().splitlines()
        # Copies of files are given up where memory is short.
        files = next(int(line.split()[1]) for line in lines if line.startswith("file "))
        return max(0, most - used + files)
    except (OSError, ValueError, IndexError, StopIteration):
        return None
