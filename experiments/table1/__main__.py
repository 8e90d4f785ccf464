"""The command line; see the package's docstring."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from einet.data import debd
from experiments.table1 import report
from experiments.table1.arguments import default_root, in_order
from experiments.table1.entry import Job, OutOfTime
from experiments.table1.pool import outcomes
from experiments.table1.settings import KINDS
from experiments.table1.store import Store, write_text

__all__ = ["main"]

_HERE = Path(__file__).resolve().parent
_QUICK = ("nltcs", "plants")


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parse(arguments)
    until = math.inf if args.minutes is None else time.time() + 60 * args.minutes
    store = Store(args.output)
    jobs = []
    for name in args.datasets:
        for kind in args.kinds:
            if args.again:
                store.forget(name, kind)
            elif store.is_finished(name, kind):
                continue
            root, seeds = str(args.root), args.seeds
            jobs.append(Job(name, kind, root, args.device, seeds, args.quick, args.workers, until))
    # The largest first, lest several workers wait for one at the end.
    jobs.sort(key=lambda job: debd.num_variables(job.name), reverse=True)
    console = Console(highlight=False, soft_wrap=True)
    skipped = len(args.datasets) * len(args.kinds) - len(jobs)
    if skipped:
        console.print(f"{skipped} of these are finished already (--again to redo them)")
    failed = unfinished = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("Table 1", total=len(jobs))

        def say(job: Job, text: str) -> None:
            progress.update(task, description=f"{job.name} {job.kind}")
            console.print(f"  {job.name} {job.kind}: {text}")

        for job, outcome in outcomes(jobs, store, say, args.workers):
            if isinstance(outcome, OutOfTime):
                unfinished += 1
                continue
            if isinstance(outcome, Exception):
                failed += 1
                shown = f"failed: {type(outcome).__name__}: {outcome}"
            else:
                store.finish(job.name, job.kind, outcome, list(debd.names()))
                write_text(store.folder / "results.md", report.markdown(store.results()))
                shown = (
                    f"test {outcome['test_ll']:.4f} ± {outcome['test_se']:.4f}, "
                    f"valid {outcome['valid_ll']:.4f} in {outcome['seconds']:.0f} s"
                )
            console.print(f"{job.name} {job.kind}: {shown}")
            progress.advance(task)
    if unfinished:
        console.print(f"Time is up. {unfinished} are not finished: the same command goes on")
    results = store.results()
    # Also where nothing was left to train: the report itself may have changed.
    write_text(store.folder / "results.md", report.markdown(results))
    console.print(report.summary(results))
    console.print(f"Written: {store.results_path} and results.md beside it")
    return 1 if failed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.table1",
        description="Train and measure Einets on the 20 binary data sets of Table 1.",
    )
    add = parser.add_argument
    add("--datasets", help="names, separated by commas (default: all 20)")
    add(
        "--kinds",
        nargs="+",
        choices=KINDS,
        default=list(KINDS),
        help="one Einsum Network, or mixtures on random or on learnt trees",
    )
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--seeds", type=int, default=3, help="final models for each entry (default: 3)")
    add("--quick", action="store_true", help=f"{' and '.join(_QUICK)} with few small models")
    add("--root", type=Path, help="folder of the data sets (default: $EINET_DEBD)")
    add("--output", type=Path, help="folder for results.json and results.md (default: this one)")
    add("--workers", type=int, help="data sets trained at a time (default: cores, or 1 on a GPU)")
    add("--minutes", type=float, help="begin no model after so long (default: no limit)")
    add("--again", action="store_true", help="train anew what is finished")
    args = parser.parse_args(arguments)
    if args.workers is None:
        args.workers = (os.cpu_count() or 1) if args.device == "cpu" else 1
    for name in ("seeds", "workers"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    if args.minutes is not None and not args.minutes > 0:
        parser.error(f"--minutes must be above 0, got {args.minutes:g}")
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("--device cuda: there is no CUDA device here")
    named = ",".join(_QUICK if args.quick else debd.names())
    try:
        args.datasets = in_order(args.datasets or named)
        args.root = args.root or default_root()
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    if args.output is None:
        args.output = _HERE / "quick" if args.quick else _HERE
    return args


if __name__ == "__main__":
    sys.exit(main())
