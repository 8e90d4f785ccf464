"""What every worker shares: arguments, clock, memory meter and the order of the measurement.

A worker is a script that measures one implementation once, in a process of its own, and prints
one JSON line. It hands `main` a function `prepare(args)`, which imports the implementation, sets
its threads, and returns a function `build(data)`, which makes a fresh `Workload` from a batch. The
order is the same for all:

1. `prepare`, then the resident memory is taken as the baseline and the peak meter is reset;
2. `build`, warm-up and the timed training steps; the peak above the baseline is read;
3. the timed forward passes of the same batch;
4. the log-likelihood after training, and that of a newly built model, to show that it learns.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = [
    "DEPTH",
    "REPLICAS",
    "STEP_SIZE",
    "VARIABLES",
    "Workload",
    "is_out_of_memory",
    "main",
    "reset_peak",
    "status_mib",
]

VARIABLES = 512
DEPTH = 4
REPLICAS = 10
STEP_SIZE = 0.05

MIN_REPEATS = 3
WARM_UP_STEPS = 2
SLOW_STEP_SECONDS = 2.0


@dataclass
class Workload:
    """One model with one batch, ready to be measured.

    Attributes:
        train_step: one training step on the whole batch.
        forward: the log-likelihoods of the batch, as a numpy array.
        parameters: number of parameters of the distribution.
        before_step: what must precede every training step but is no part of it (not timed).
    """

    train_step: Callable[[], object]
    forward: Callable[[], np.ndarray]
    parameters: int
    before_step: Callable[[], object] | None = None


Build = Callable[[np.ndarray], Workload]


def main(name: str, prepare: Callable[[argparse.Namespace], Build], modes: tuple[str, ...]) -> None:
    """Measure one implementation as the command line says; print the result as one JSON line."""
    args = _parse_arguments(name, modes)
    if args.memory_limit:
        # Private memory only: address space that is reserved but never written does not count.
        limit = int(args.memory_limit * 2**20)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        print(json.dumps(_measure(args, prepare)))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        print(json.dumps({"error": "out of memory"}))


def _parse_arguments(name: str, modes: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Measure {name} once.")
    parser.add_argument("--mode", choices=modes, default=modes[0])
    parser.add_argument("--num-sums", type=int, required=True, metavar="K")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--depth", type=int, default=DEPTH)
    parser.add_argument("--replicas", type=int, default=REPLICAS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=20, help="at most so many timed calls")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds for the timed calls")
    parser.add_argument("--memory-limit", type=float, default=0.0, help="MiB; 0 = no limit")
    return parser.parse_args()


def _measure(args: argparse.Namespace, prepare: Callable[[argparse.Namespace], Build]) -> dict:
    build = prepare(args)
    gc.collect()
    reset_peak()
    baseline = status_mib("VmRSS")

    shape = (args.batch, VARIABLES)
    data = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    workload = build(data)
    _warm_up(workload)
    train = _time_calls(workload.train_step, workload.before_step, args.repeats, args.budget)
    peak = status_mib("VmHWM") - baseline

    workload.forward()
    forward = _time_calls(workload.forward, None, args.repeats, args.budget)
    trained = float(np.mean(workload.forward()))
    parameters = workload.parameters
    del workload
    untrained = float(np.mean(build(data).forward()))
    return {
        "train_ms": 1e3 * statistics.median(train),
        "forward_ms": 1e3 * statistics.median(forward),
        "peak_mib": peak,
        "parameters": parameters,
        "repeats": len(train),
        "log_likelihood_before": untrained,
        "log_likelihood_after": trained,
    }


def _warm_up(workload: Workload) -> None:
    """Run untimed steps (tracing, caches, thread pools), fewer where a step is slow."""
    for _ in range(WARM_UP_STEPS):
        seconds = _time_calls(workload.train_step, workload.before_step, repeats=1, budget=0.0)[0]
        if seconds > SLOW_STEP_SECONDS:
            return


def _time_calls(
    call: Callable[[], object],
    before: Callable[[], object] | None,
    repeats: int,
    budget: float,
) -> list[float]:
    """Seconds of each call: `repeats` calls, or as many as fit in the budget but at least three."""
    seconds: list[float] = []
    while len(seconds) < repeats:
        if len(seconds) >= MIN_REPEATS and sum(seconds) > budget:
            break
        if before is not None:
            before()
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def reset_peak() -> None:
    """Set the process's peak resident memory back to the current value (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def status_mib(field: str) -> float:
    """A memory field of the kernel's status page: VmRSS (now) or VmHWM (peak), in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    sys.exit(f"no field {field} in /proc/self/status: this benchmark needs Linux")


def is_out_of_memory(error: Exception) -> bool:
    """Torch raises RuntimeError and TensorFlow ResourceExhaustedError where memory is short."""
    text = f"{type(error).__name__}: {error}".lower()
    signs = ("memoryerror", "can't allocate memory", "bad_alloc", "resourceexhausted")
    return any(sign in text for sign in signs)
