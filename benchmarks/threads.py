"""One model, many threads: how many questions a second are answered.

Every thread asks the same model, one question after the other, each of a batch of rows with half of
their cells missing, few or many. Torch computes each call with one thread of its own, so that what
is gained comes from ours. A row holds the calls a second of one question with so many threads, and
the ratio to one thread; the file says on how many cores.

    python benchmarks/threads.py             # -> results/threads.json
    python benchmarks/threads.py --quick     # a short look, printed only
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

import einet

RESULTS = Path(__file__).parent / "results" / "threads.json"

QUESTIONS: dict[str, Callable[[einet.Model, torch.Tensor], torch.Tensor]] = {
    "log_prob": lambda model, x: model.log_prob(x),
    "mean": lambda model, x: model.given(x).mean(),
    "sample": lambda model, x: model.given(x).sample(4),
    "impute": lambda model, x: model.given(x).impute(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask one model from many threads.")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 5000], help="in a question")
    parser.add_argument("--variables", type=int, default=64)
    parser.add_argument("--num-sums", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0, help="time for each measurement")
    parser.add_argument("--quick", action="store_true", help="a short look; nothing is kept")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.quick:
        args.seconds = min(args.seconds, 1.0)
    torch.set_num_threads(1)
    rows = []
    for number in args.rows:
        model, x = build(args, number)
        for name, ask in QUESTIONS.items():
            measured = measure(name, lambda ask=ask, m=model, x=x: ask(m, x), args)
            rows += [{"rows": number, **row} for row in measured]
            for row in rows[-len(measured) :]:
                print(row, flush=True)
    if not args.quick:
        args.output.write_text(
            json.dumps({"machine": machine(args), "rows": rows}, indent=1) + "\n"
        )


def build(args: argparse.Namespace, rows: int) -> tuple[einet.Einet, torch.Tensor]:
    """A model with variables of three families, and rows with holes."""
    kinds = [einet.Gaussian(), einet.Categorical(5), einet.Bernoulli()]
    families = [kinds[variable % 3] for variable in range(args.variables)]
    graph = einet.random_trees(args.variables, depth=3, replicas=5)
    model = einet.Einet(graph, families, args.num_sums)
    x = model.sample(rows, seed=0)
    hidden = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    return model, torch.where(hidden, torch.nan, x)


def measure(name: str, ask: Callable[[], object], args: argparse.Namespace) -> list[dict]:
    """Calls a second with each number of threads."""
    ask()
    rows = []
    for threads in args.threads:
        rate = calls_per_second(ask, threads, args.seconds)
        alone = rows[0]["calls_per_s"] if rows else rate
        row = {"question": name, "threads": threads, "calls_per_s": round(rate, 2)}
        rows.append(row | {"ratio": round(rate / alone, 2)})
    return rows


def calls_per_second(ask: Callable[[], object], threads: int, seconds: float) -> float:
    """Questions answered by all threads together, until the time is up."""
    counts, start = [0] * threads, threading.Barrier(threads + 1)
    over = threading.Event()

    def work(number: int) -> None:
        torch.set_num_threads(1)
        start.wait()
        while not over.is_set():
            ask()
            counts[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter()
    time.sleep(seconds)
    over.set()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - began)


def machine(args: argparse.Namespace) -> dict:
    """Where and how it was measured."""
    settings = {name: value for name, value in vars(args).items() if name != "output"}
    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "command": " ".join(["python benchmarks/threads.py", *sys.argv[1:]]),
        "settings": settings,
    }


if __name__ == "__main__":
    main()
