"""Clocks and memory meters for a CPU and for a CUDA device."""

from __future__ import annotations

import gc
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import cycle

import torch
from torch import Tensor
from workers import common

__all__ = ["CpuMeter", "CudaMeter", "Meter", "time_steps"]

MIB = 2**20
WARM_UP_MIN, WARM_UP_MAX = 8, 30
SLOW_SECONDS = 1.0
BLOCK_SECONDS = 0.03
MIN_BLOCKS, MAX_BLOCKS = 5, 25


class Meter(ABC):
    """Seconds of a call, and memory above what was there when the meter was started."""

    @abstractmethod
    def start(self) -> None:
        """Drop what earlier measurements left, take the baseline, reset the peak."""

    @abstractmethod
    def reset_peak(self) -> None:
        """Forget the peak, keep the baseline."""

    @abstractmethod
    def peak_mib(self) -> float: ...

    @abstractmethod
    def reserved_mib(self) -> float | None:
        """Peak of what an allocator took from the device, where there is one."""

    @abstractmethod
    def seconds(self, call: Callable[[], object]) -> float: ...


class CpuMeter(Meter):
    """Peak resident memory; wall-clock time."""

    def start(self) -> None:
        gc.collect()
        common.reset_peak()
        self.baseline = common.status_mib("VmRSS")

    def reset_peak(self) -> None:
        common.reset_peak()

    def peak_mib(self) -> float:
        return common.status_mib("VmHWM") - self.baseline

    def reserved_mib(self) -> None:
        return None

    def seconds(self, call: Callable[[], object]) -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began


class CudaMeter(Meter):
    """Peak of allocated device memory; CUDA events, so that queued work counts."""

    def start(self) -> None:
        gc.collect()
        torch.cuda.synchronize()
        # cuBLAS keeps a workspace of some MiB: whoever calls it first would pay for all.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self.baseline = torch.cuda.memory_allocated()

    def reset_peak(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()

    def peak_mib(self) -> float:
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - self.baseline) / MIB

    def reserved_mib(self) -> float:
        return torch.cuda.max_memory_reserved() / MIB

    def seconds(self, call: Callable[[], object]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3


def time_steps(
    call: Callable[[Tensor], object],
    batches: Sequence[Tensor],
    meter: Meter,
    budget: float,
    before: Callable[[], object] | None = None,
) -> dict[str, float]:
    """Milliseconds of one call: the median over blocks of calls that go through the batches.

    Calls are first repeated until they take no longer than before (compilation, capture of graphs).
    Where something must precede each call untimed, a block is a single call.
    """
    turn = cycle(batches)

    def once() -> float:
        if before is not None:
            before()
        x = next(turn)
        return meter.seconds(lambda: call(x))

    warm = [once()]
    while len(warm) < WARM_UP_MAX:
        latest = warm[-1]
        settled = len(warm) >= WARM_UP_MIN and latest <= 1.3 * statistics.median(warm[-4:])
        if settled or (len(warm) >= 2 and latest > SLOW_SECONDS):
            break
        warm.append(once())

    step = min(warm[-4:])
    size = 1 if before is not None else max(1, min(200, round(BLOCK_SECONDS / step)))

    def block() -> None:
        for _ in range(size):
            call(next(turn))

    least = MIN_BLOCKS if step < SLOW_SECONDS else 2
    seconds: list[float] = []
    while len(seconds) < least or (sum(seconds) * size < budget and len(seconds) < MAX_BLOCKS):
        seconds.append(once() if before is not None else meter.seconds(block) / size)
    return {
        "ms": 1e3 * statistics.median(seconds),
        "low_ms": 1e3 * min(seconds),
        "high_ms": 1e3 * max(seconds),
        "calls": len(seconds) * size,
    }
