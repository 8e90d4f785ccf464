"""Where kernels work: blocks of bounded size, scratch memory, and nodes without copies."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from einet._memory import budget

__all__ = ["NodeRows", "block_bytes", "blocks", "rows_at_once", "scratch", "spacing"]

# One row alone may be larger than a block, as matrix products of few columns are slow.
_ROW_FACTOR = 3
_FEWEST_COLUMNS = 64

_kept = threading.local()

# glibc hands freed memory back to the system early, and taking it again costs a page fault for
# every 4 KiB: up to a tenth of a training step. It adapts to what a program frees (mallopt(3),
# M_MMAP_THRESHOLD): having seen one block of this size, of which no page is ever touched, it keeps
# up to twice as much. Elsewhere this does nothing.
_ = torch.empty(31 << 20, dtype=torch.uint8, device="cpu")
del _


def block_bytes(device: torch.device) -> int:
    """How large a temporary block may be on ``device``."""
    return budget("block", device)


def rows_at_once(device: torch.device) -> int:
    """How many matrix products a block should hold at least, to give every core some."""
    return 2 * torch.get_num_threads() if device.type == "cpu" else 1


def blocks(
    rows: int, batch: int, bytes_each: int, room: int, at_once: int = 1
) -> tuple[list[slice], list[slice]]:
    """Cut ``rows × batch`` cells of ``bytes_each`` into blocks of about ``room`` bytes.

    The batch is cut only where a single row would be much larger than that. Blocks hold
    ``at_once`` rows even if they exceed that, up to a limit.

    Example:
        >>> blocks(rows=3, batch=100, bytes_each=1000, room=250_000)
        ([slice(0, 2, None), slice(2, 3, None)], [slice(0, 100, None)])
    """
    columns = max(_FEWEST_COLUMNS, _ROW_FACTOR * room // max(1, bytes_each))
    pieces = max(1, -(-batch // columns))
    columns = max(1, -(-batch // pieces))
    size = max(1, bytes_each * columns)
    height = max(1, room // size, min(at_once, budget("rows at once") // size))
    return _slices(rows, height), _slices(batch, columns)


def _slices(total: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, total)) for start in range(0, total, step)]


def scratch(name: str, shape: Sequence[int], like: Tensor) -> Tensor:
    """An uninitialised tensor that lives until the next call with the same name.

    A fresh block of a megabyte costs as much in page faults as the arithmetic on it, so on a CPU
    each thread keeps its own. The CUDA allocator caches by itself.
    """
    if like.device.type != "cpu":
        return like.new_empty(shape)
    size = math.prod(shape)
    key = (name, like.dtype)
    tensors: dict[tuple[str, torch.dtype], Tensor] = _kept.__dict__.setdefault("tensors", {})
    if key not in tensors or tensors[key].numel() < size:
        with torch.inference_mode(False):
            tensors[key] = torch.empty(size, dtype=like.dtype)
    return tensors[key][:size].view(shape)


def spacing(index: Sequence[int]) -> int | None:
    """The common difference of equally spaced, increasing numbers; None for any others.

    Example:
        >>> spacing([1, 3, 5]), spacing([7]), spacing([0, 1, 3])
        (2, 1, None)
    """
    if len(index) == 1:
        return 1
    step = index[1] - index[0]
    if step > 0 and list(index) == list(range(index[0], index[-1] + 1, step)):
        return step
    return None


@dataclass
class NodeRows:
    """NodeRows of a tensor by number, taken as a view where the numbers are equally spaced.

    ``first`` is the number of the first row: kept as a Python number to spare a look at the device.
    """

    index: Int[Tensor, " rows"]
    first: int
    step: int | None

    def _slice(self, part: slice) -> slice:
        assert self.step is not None
        last = self.first + self.step * (part.stop - 1)
        return slice(self.first + self.step * part.start, last + 1, self.step)

    def take(self, tensor: Tensor, part: slice, name: str) -> Tensor:
        """``tensor[index[part]]``: a view, or a copy in the scratch memory of that name."""
        if self.step is not None:
            return tensor[self._slice(part)]
        index = self.index[part]
        out = scratch(name, (index.shape[0], *tensor.shape[1:]), tensor)
        return torch.index_select(tensor, 0, index, out=out)

    def view(self, tensor: Tensor, part: slice) -> Tensor | None:
        """``tensor[index[part]]`` as a view, if it can be had."""
        return None if self.step is None else tensor[self._slice(part)]

    def add_(self, tensor: Tensor, part: slice, values: Tensor) -> None:
        """``tensor[index[part]] += values``, adding up where a row occurs more than once."""
        if self.step is not None:
            tensor[self._slice(part)] += values
        else:
            tensor.index_add_(0, self.index[part], values)

    def put_(self, tensor: Tensor, part: slice, values: Tensor) -> None:
        """``tensor[index[part]] = values`` for rows that do not repeat."""
        if self.step is not None:
            tensor[self._slice(part)] = values
        else:
            tensor.index_copy_(0, self.index[part], values)
