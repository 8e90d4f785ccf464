"""What the kernels of all leaves share: how tiles are cut, and where values go."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from einet.kernels.leaf_kernel import Out

__all__ = [
    "ENOUGH",
    "as_step",
    "cdiv",
    "combine",
    "forward_tile",
    "launch",
    "power_of_2",
    "scale",
    "scope_part",
    "statistics_tile",
    "store_values",
]

#: Programs that fill a large GPU (an H200 has 132 multiprocessors) with some to spare.
ENOUGH = 512
# Variables of a leaf that are worth a program of their own.
_FEWEST_VARIABLES = 32
# Cells of a tile that fit in the registers of a program.
_MOST_CELLS = 1 << 14
# Terms that are added in float32 before their sum is added in float64.
_CHUNK = 4


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

    A thread has 32 cells of a tile, or fewer where there are too few programs to fill a GPU.
    """
    entries = power_of_2(K)
    columns = 16 if s > 1 else max(16, min(128, 2048 // entries))
    columns = min(columns, max(1, _MOST_CELLS // entries))
    cells = entries * columns
    warps = max(1, min(8, cells // 1024))
    while warps < 8 and cells // (32 * warps) > 4 and n * cdiv(batch, columns) < ENOUGH:
        warps *= 2
    return {"CHUNK": min(_CHUNK, power_of_2(s)), "BK": entries, "BB": columns, "num_warps": warps}


def scope_part(programs: int, s: int) -> int:
    """How many variables of a leaf one program takes: 0 for all, where there are enough programs.

    A few leaves of many variables, as in images, would otherwise keep a GPU waiting.
    """
    if programs >= ENOUGH or s < 4 * _FEWEST_VARIABLES:
        return 0
    parts = min(cdiv(ENOUGH, programs), s // _FEWEST_VARIABLES)
    return cdiv(cdiv(s, parts), _CHUNK) * _CHUNK


def statistics_tile(rows: int, K: int) -> dict[str, int]:
    """The tile of a program that sums over the batch: some entries of some ``rows`` of a leaf.

    Few entries a program and one warp: what counts is that many programs run at once.
    """
    if rows == 1:
        return {"BR": 1, "BK": min(16, power_of_2(K)), "BB": 64, "num_warps": 4}
    if K <= 16:
        return {"BR": 1, "BK": power_of_2(K), "BB": 32, "num_warps": 2 if K > 4 else 1}
    return {"BR": 4, "BK": 8, "BB": 32, "num_warps": 1}


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
    """Put the log values ``[samples, entries]`` of one node where they belong."""
    there = (b < batch) & (k < K)
    if ALONE:
        value = tl.where(k < K, log_values, float("-inf"))
        largest = tl.max(value, 1, keep_dims=True)
        shift = tl.where(largest > float("-inf"), largest, 0.0)
        ratio = tl.exp((value - shift).to(tl.float32))
        tl.store(v + node * v_node + k * v_k + b, ratio, mask=there)
        tl.store(m + node * m_node + b, largest, mask=b < batch)
    else:
        at = total + node * t_node + k * t_k + b
        tl.store(at, tl.load(at, mask=there, other=0.0) + log_values, mask=there)


@triton.jit
def _scale(
    v, v_node, v_k, m, m_node, total, t_node, t_k, K, batch, BK: tl.constexpr, BB: tl.constexpr
):
    node = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * BB + tl.arange(0, BB)[:, None]
    k = tl.arange(0, BK)[None, :]
    at = total + node * t_node + k * t_k + b
    values = tl.load(at, mask=(b < batch) & (k < K), other=0.0)
    store_values(values, node, k, b, K, batch, v, v_node, v_k, m, m_node, total, t_node, t_k, True)


@triton.jit
def _combine(
    parts, count, leaves, v, v_node, v_k, m, m_node, total, t_node, t_k, K, batch,
    ALONE: tl.constexpr, BK: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    leaf = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * BB + tl.arange(0, BB)[:, None]
    k = tl.arange(0, BK)[None, :]
    there = (b < batch) & (k < K)
    sums = tl.zeros([BB, BK], tl.float64)
    for part in range(count):
        row = part * tl.num_programs(0) + leaf
        sums += tl.load(parts + (row * K + k) * batch + b, mask=there, other=0.0)
    node = tl.load(leaves + leaf)
    store_values(sums, node, k, b, K, batch, v, v_node, v_k, m, m_node, total, t_node, t_k, ALONE)


def combine(parts: Tensor, leaves: Tensor, out: Out) -> None:
    """Add up log values ``[parts, leaves, K, batch]`` and put them where they belong."""
    count, n, K, batch = parts.shape
    tile = forward_tile(n, 1, K, batch)
    tile.pop("CHUNK")
    launch(
        _combine, (n, cdiv(batch, tile["BB"])), parts, count, leaves, *out.arguments, K, batch,
        ALONE=out.total is None, **tile,
    )  # fmt: skip


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
