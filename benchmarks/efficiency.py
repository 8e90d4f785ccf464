"""The paper's efficiency study (sec. 4.1, Fig. 3, appendix C): `einet` beside its peers.

Random binary trees on 512 Gaussian variables; K, D and R vary one at a time around K = 10, D = 4,
R = 10, with 2000 samples of Gaussian noise. Measured are a training step (and so an epoch), the
peak memory of training, and the evaluation of 100 samples.

    python benchmarks/efficiency.py --device cuda              # the sweep, every implementation
    python benchmarks/efficiency.py --peers einet --sweep K --precision highest high medium
    python benchmarks/efficiency.py --peers pyjuice --append   # add to (or renew in) the file
    python benchmarks/efficiency.py --goals                    # the points with a goal on one H200
    python benchmarks/efficiency.py --growth                   # exponents over K, 2^D, R and batch
    python benchmarks/efficiency.py --figures-only             # from the stored rows
    python benchmarks/efficiency.py --quick                    # one point, printed only

Rows go to `results/efficiency-DEVICE.json` after every point, so that an interrupted run is not
lost. An implementation that cannot be imported is named as absent, there and on the screen.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import report
import store
from growth import exponents
from points import GOALS, SWEEPS, Point, growth_points, sweep_points
from runner import SUBJECTS, Absent, run

RESULTS = Path(__file__).parent / "results"
PRECISIONS = ("highest", "high", "medium")


def main() -> None:
    args = parse_arguments()
    rows = store.load(args.output) if args.output and (args.append or args.figures_only) else []
    if not args.figures_only:
        rows = measure(rows, args)
    if args.goals:
        print(report.goals(rows, args.device))
    elif args.growth:
        write_growth(rows, args)
    else:
        print(report.sweep(rows))
        if args.output and rows and not args.no_figures:
            import figures

            stem = args.output.with_suffix("")
            for path in figures.draw(rows, stem, args.batch):
                print(path)


def measure(rows: list[dict[str, Any]], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the points of every implementation; write the file after each."""
    points = chosen_points(args)
    absent: dict[str, str] = {}
    began = time.monotonic()
    args.device_name = store.device_name(args.device)
    if args.output:
        # At once: a call that is cut short leaves its rows with what made them.
        machine = store.describe(args.device, absent)
        store.write(args.output, rows, machine, append=args.append)
    for name in args.peers:
        todo = store.missing(rows, name, points) if args.missing else points
        results = run(name, todo, args)
        while True:
            if args.budget and time.monotonic() - began > args.budget:
                print(f"{name}: stopped, the budget of {args.budget:.0f} s is spent")
                results.close()
                break
            try:
                row = next(results, None)
            except Absent as reason:
                absent[name] = str(reason)
                print(f"{name}: absent: {reason}")
                break
            if row is None:
                break
            print(report.line(row), flush=True)
            rows = store.merge(rows, row)
            if args.output:
                store.write(args.output, rows)
    if args.output:
        store.write(args.output, rows, store.describe(args.device, absent), args.append)
    return rows


def chosen_points(args: argparse.Namespace) -> list[Point]:
    if args.goals:
        points = [goal.point for goal in GOALS if goal.point.precision in args.precision]
    elif args.growth:
        points = growth_points(args.batch, args.precision)
    elif args.quick:
        points = [Point(num_sums=4, depth=2, replicas=2, batch=args.batch)]
    else:
        points = sweep_points(args.sweep, args.batch, args.precision)
    if args.points:
        points = [points[index] for index in args.points if index < len(points)]
    return points


def write_growth(rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    """Fit the exponents to these rows and to those of the sweep."""
    for row in store.load(RESULTS / f"efficiency-{args.device}.json"):
        if store.missing(rows, row["implementation"], [Point.from_row(row)]):
            rows = [*rows, row]
    laws = exponents(rows)
    if args.output:
        store.write(args.output.with_name(f"growth-{args.device}.json"), laws)
    print(report.growth(laws))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    add(
        "--peers",
        nargs="+",
        choices=tuple(SUBJECTS),
        metavar="NAME",
        help=f"of {', '.join(SUBJECTS)} (default: all; growth: einet)",
    )
    add("--sweep", nargs="+", choices=tuple(SWEEPS), default=tuple(SWEEPS))
    add("--points", nargs="+", type=int, metavar="I", help="only these of the points, from 0")
    add("--batch", type=int, help="of a training step (default 100; growth 500)")
    add("--precision", nargs="+", choices=PRECISIONS, help="of einet (default: highest; goals all)")
    add("--seconds", type=float, help="for the timed calls of a point, train and infer each")
    add("--limit", type=float, help="seconds for a point (default: cuda 90, cpu 900)")
    add("--budget", type=float, help="seconds after which no further point is begun")
    add("--threads", type=int, default=0, help="on a CPU (default: all)")
    add("--in-process", action=argparse.BooleanOptionalAction, help="default: on cuda")
    add("--append", action="store_true", help="keep the file's rows; replace what is measured anew")
    add("--missing", action="store_true", help="with --append: measure only what has no row yet")
    add("--output", type=Path, help="the file of the rows")
    add("--no-figures", action="store_true")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--goals", action="store_true", help="the points with a goal")
    what.add_argument("--growth", action="store_true", help="growth of time and memory")
    what.add_argument("--quick", action="store_true", help="K 4, D 2, R 2: a trial, not stored")
    add(
        "--figures-only", action="store_true", help="measure nothing; figures, tables and fits only"
    )
    args = parser.parse_args()

    if args.missing and not args.append:
        parser.error("--missing needs --append")
    if args.device is None:
        import torch

        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = args.device == "cuda"
    args.peers = args.peers or (("einet",) if args.growth else tuple(SUBJECTS))
    args.batch = args.batch or (500 if args.growth else 100)
    args.precision = args.precision or (PRECISIONS if args.goals and on_gpu else PRECISIONS[:1])
    args.seconds = args.seconds or (0.1 if args.quick else 0.5 if on_gpu else 2.0)
    args.limit = args.limit or (90.0 if on_gpu else 900.0)
    args.threads = args.threads or (0 if on_gpu else os.cpu_count() or 1)
    args.in_process = on_gpu if args.in_process is None else args.in_process
    args.memory_limit = 0.0
    if args.output is None and not args.quick:
        name = "goals" if args.goals else "growth" if args.growth else "efficiency"
        suffix = "-rows" if args.growth else ""
        args.output = RESULTS / f"{name}-{args.device}{suffix}.json"
    return args


if __name__ == "__main__":
    main()
