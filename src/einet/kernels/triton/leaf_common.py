"""What the kernels of all leaves share: how tiles are cut, and where values go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = [
    "Out",
    "Pairs",
    "as_step",
    "cdiv",
    "forward_tile",
    "launch",
    "power_of_2",
    "scale",
    "statistics_tile",
    "store_values",
]

# Programs that fill a large GPU (an H200 has 132 multiprocessors) with some to spare.
_ENOUGH = 512
# Terms that are added in float32 before their sum is added in float64.
_CHUNK = 8


@dataclass
class Pairs:
    """The (leaf, variable) pairs of one block: ``n`` leaves with ``s`` variables each.

    ``columns[leaf, position]`` is a variable's number within its family, by which the
    hyper-parameters ``hyper[name][V]`` are found.
    """

    leaves: Tensor
    columns: Tensor
    stored: Tensor
    hyper: dict[str, Tensor]

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """n, s, K and the number of pairs."""
        n, s = self.columns.shape
        return n, s, self.stored.shape[0], n * s


@dataclass
class Out:
    """Where log values go: scaled into ``v`` and ``m``, or added to ``total`` if there is one.

    ``total`` is float64: the values of leaves whose variables belong to several families.
    """

    v: Tensor
    m: Tensor
    total: Tensor | None = None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What :func:`store_values` wants to know."""
        total = self.m if self.total is None else self.total
        node, entry = (0, 0) if self.total is None else total.stride()[:2]
        return (self.v, *self.v.stride()[:2], self.m, self.m.stride(0), total, node, entry)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **tile: Any) -> None:
    """Run a kernel: all of its programs, one for each point of the grid."""
    kernel[grid](*arguments, **tile)


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def power_of_2(n: int) -> int:
    """The smallest power of two that is not smaller than ``n ≥ 1``."""
    return 1 << (n - 1).bit_length()


def forward_tile(n: int, s: int, K: int, batch: int) -> dict[str, int]:
    """The tile of a forward program, which holds all K entries of a leaf for some samples.

    It has three axes, as Triton gives the first of them to single threads: many entries are cut in
    halves, of which each thread takes both and needs to read its samples only once.
    """
    entries = power_of_2(K)
    halves = 2 if entries >= 64 else 1
    fewest = 16 if entries < 512 else 8
    columns = max(fewest, min(128, 2048 // entries, power_of_2(batch)))
    while columns > fewest and n * cdiv(batch, columns) < _ENOUGH:
        columns //= 2
    each = 16 if n * cdiv(batch, columns) >= _ENOUGH else 4
    warps = max(1, min(8, entries * columns // (32 * each)))
    # Vectors shorter than the program has threads are read in place, longer ones with a detour.
    while entries >= 16 and warps < 16 and max(entries, columns) >= 32 * warps:
        warps *= 2
    chunk = min(_CHUNK, power_of_2(s))
    return {
        "CHUNK": chunk,
        "BC": halves,
        "BK": entries // halves,
        "BB": columns,
        "num_warps": warps,
    }


def statistics_tile(n: int, rows: int, K: int, batch: int, most_rows: int = 4) -> dict[str, int]:
    """The tile of a program that sums over the batch: some entries of some ``rows`` of a leaf."""
    entries = power_of_2(K)
    if entries > 16:
        # Of two sizes the one that wastes less on entries that do not exist.
        entries = 32 if -(-K // 32) * 32 <= -(-K // 16) * 16 else 16
    columns = max(16, min(1024 // entries, 256, power_of_2(batch)))
    together = min(most_rows, power_of_2(rows))
    parts = n * cdiv(K, entries)
    while together > 1 and parts * cdiv(rows, together) < _ENOUGH:
        together //= 2
    warps = max(1, min(4, entries * columns // 256))
    return {"BR": together, "BK": entries, "BB": columns, "num_warps": warps}


@triton.jit
def store_values(
    log_values,
    node,
    k,
    b,
    K,
    batch,
    v,
    v_node,
    v_k,
    m,
    m_node,
    total,
    t_node,
    t_k,
    ALONE: tl.constexpr,
):
    """Put the log values ``[halves, samples, entries]`` of one node where they belong."""
    entry = (k < K)[:, None, :]
    there = (b < batch)[None, :, None] & entry
    if ALONE:
        value = tl.where(entry, log_values, float("-inf"))
        largest = tl.max(tl.max(value, 2), 0)
        shift = tl.where(largest > float("-inf"), largest, 0.0)
        ratio = tl.exp((value - shift[None, :, None]).to(tl.float32))
        at = v + node * v_node + k[:, None, :] * v_k + b[None, :, None]
        tl.store(at, ratio, mask=there)
        tl.store(m + node * m_node + b, largest, mask=b < batch)
    else:
        at = total + node * t_node + k[:, None, :] * t_k + b[None, :, None]
        tl.store(at, tl.load(at, mask=there, other=0.0) + log_values, mask=there)


@triton.jit
def _scale(
    v,
    v_node,
    v_k,
    m,
    m_node,
    total,
    t_node,
    t_k,
    K,
    batch,
    BC: tl.constexpr,
    BK: tl.constexpr,
    BB: tl.constexpr,
):
    node = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * BB + tl.arange(0, BB)
    k = tl.arange(0, BC)[:, None] * BK + tl.arange(0, BK)[None, :]
    at = total + node * t_node + k[:, None, :] * t_k + b[None, :, None]
    there = (b < batch)[None, :, None] & (k < K)[:, None, :]
    values = tl.load(at, mask=there, other=0.0)
    store_values(values, node, k, b, K, batch, v, v_node, v_k, m, m_node, total, t_node, t_k, True)


def scale(out: Out) -> None:
    """Turn the sums in ``total`` into scaled values."""
    nodes, K, batch = out.v.shape
    tile = forward_tile(nodes, 1, K, batch)
    tile.pop("CHUNK")
    launch(_scale, (nodes, cdiv(batch, tile["BB"])), *out.arguments, K, batch, **tile)


def as_step(step_size: float | Tensor, like: Tensor) -> Tensor:
    """λ as a tensor on the device, where kernels read it."""
    if isinstance(step_size, Tensor):
        return step_size.to(like.device)
    return torch.full((), step_size, dtype=torch.float64, device=like.device)
