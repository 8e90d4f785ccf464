"""`einet` beside LibSPN and SPFlow on a CPU: one EM step, the forward pass, peak memory.

The workload is the paper's: 512 Gaussian variables, random binary trees of depth 4, 10 replicas,
K in {10, 20, 40}. Every measurement runs in a fresh process; within a round the implementations
take turns, and the results are medians over three rounds.

    python benchmarks/cpu.py                # the whole comparison -> results/cpu.json
    python benchmarks/cpu.py --scaling      # einet, batch 100 to 2000 -> results/cpu-scaling.json
    python benchmarks/cpu.py --resume       # go on with a comparison that was interrupted
    python benchmarks/cpu.py --quick        # one small point, printed only
    python benchmarks/cpu.py --implementations einet libspn --num-sums 10 --batches 100 --threads 1
    python benchmarks/cpu.py --table        # show what is stored, and renew the tables in the docs

Results are written after every measurement, and the first line says how long the rest will take by
what is stored already. A part of the comparison is printed only, unless `--output` names a file for
it. The peers' environments are made on first use; a peer that cannot be installed is named, not
left out silently.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import comparison_tables
import pages
from cpu_rows import Point, expected_seconds, load, samples_of, summarise, write
from implementations import IMPLEMENTATIONS, Unavailable, interpreter, version

HERE = Path(__file__).parent
RESULTS = HERE / "results"

NUM_SUMS = (10, 20, 40)
BATCHES = (100, 500)
SCALING_BATCHES = (100, 200, 500, 1000, 2000)
THREADS = (1, 2)


def main() -> None:
    args = parse_arguments()
    if args.table:
        print(comparison_tables.comparison(load(RESULTS / "cpu.json")))
        print(comparison_tables.scaling(load(RESULTS / "cpu-scaling.json")))
        pages.renew()
        return
    points = [(k, b, t) for k in args.num_sums for b in args.batches for t in args.threads]
    available, absent = find_implementations(args)
    versions = {name: found["version"] for name, found in available.items()}
    stored = load(args.output) if args.output else []
    check_nothing_is_lost(stored, absent, args.output)
    samples = samples_of(stored, versions) if args.resume else {}
    rows = summarise(samples, points, versions, absent)
    announce(rows, stored, args)
    for number in range(args.rounds):
        for point in points:
            names = list(available)
            start = number % len(names) if names else 0
            for name in names[start:] + names[:start]:
                history = samples.setdefault((name, point), [])
                if len(history) > number or is_done(history, args.once_above):
                    continue
                history.append(measure(available[name]["python"], name, point, args))
                report(number, name, point, history[-1])
                rows = summarise(samples, points, versions, absent)
                if args.output:  # after every measurement: an interrupted run is not lost
                    write(rows, args.output)
    for name, reason in absent.items():
        print(f"absent: {name}: {reason}")
    print(comparison_tables.scaling(rows) if args.scaling else comparison_tables.comparison(rows))
    if args.output and args.output.parent == RESULTS:
        pages.renew()


def check_nothing_is_lost(stored: list[dict], absent: dict[str, str], output: Path | None) -> None:
    """Leave a file alone that has rows of what cannot be measured here."""
    lost = sorted({row["implementation"] for row in stored if row["train_ms"]} & absent.keys())
    if lost:
        sys.exit(
            f"{output} has rows of {', '.join(lost)}, which cannot be measured here: name another "
            "file with --output"
        )


def is_done(history: list[dict], once_above: float | None) -> bool:
    """Whether no further round is wanted: it would fail again, or is too slow to wait for again."""
    slowest = float("inf") if once_above is None else once_above
    return any("error" in sample or sample["process_s"] > slowest for sample in history)


def announce(rows: list[dict], stored: list[dict], args: argparse.Namespace) -> None:
    """Say how long it will take, as far as the stored rows tell."""
    of_point = {_key(row): row for row in stored}
    seconds, unknown = 0.0, 0
    for row in rows:
        rounds = 0 if is_done(row["samples"], args.once_above) else args.rounds - row["rounds"]
        if row.get("note") == "absent" or rounds <= 0:
            continue
        earlier = of_point.get(_key(row))
        if earlier is None:
            unknown += rounds
            continue
        rounds = rounds if earlier["train_ms"] else 1  # what fails is not tried again
        seconds += rounds * expected_seconds([earlier], args.repeats, args.budget)
    line = f"about {seconds / 60:.0f} minutes by what is stored"
    if unknown:
        line += f", and {unknown} processes of points that were never measured"
    print(line, file=sys.stderr)


def _key(row: dict) -> tuple:
    return tuple(row[field] for field in ("implementation", "K", "batch", "threads"))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--implementations",
        nargs="+",
        choices=tuple(IMPLEMENTATIONS),
        metavar="NAME",
        help=f"of {', '.join(IMPLEMENTATIONS)} (default: all)",
    )
    parser.add_argument("--num-sums", nargs="+", type=int, metavar="K")
    parser.add_argument("--batches", nargs="+", type=int, metavar="N")
    parser.add_argument("--threads", nargs="+", type=int, metavar="N")
    parser.add_argument("--rounds", type=int, help="default 3 (1 with --quick)")
    parser.add_argument("--repeats", type=int, default=20, help="at most so many calls a process")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds for these calls")
    parser.add_argument(
        "--once-above", type=float, help="seconds; slower processes run one round (default: none)"
    )
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for a process")
    parser.add_argument(
        "--memory-limit", type=float, help="MiB for a process (default: 80%% of what is free)"
    )
    parser.add_argument("--environments", type=Path, default=HERE / ".envs")
    parser.add_argument("--python", default=sys.executable, help="makes the environments (3.11)")
    parser.add_argument("--output", type=Path, help="where to write the rows")
    parser.add_argument("--resume", action="store_true", help="keep the rounds of the output file")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--scaling", action="store_true", help="einet alone over the batch size")
    what.add_argument("--quick", action="store_true", help="K 10, batch 100, one thread, one round")
    what.add_argument("--table", action="store_true", help="stored rows, into the docs too")
    args = parser.parse_args()

    chosen = (args.implementations, args.num_sums, args.batches, args.threads)
    is_whole = not args.quick and all(option is None for option in chosen)
    if args.output is None and is_whole:
        args.output = RESULTS / ("cpu-scaling.json" if args.scaling else "cpu.json")
    if args.resume and args.output is None:
        parser.error("--resume needs the whole comparison or --output, a file to go on with")
    if args.scaling and args.implementations not in (None, ["einet"]):
        parser.error("--scaling measures einet alone")
    names = ("einet",) if args.scaling else tuple(IMPLEMENTATIONS)
    args.implementations = args.implementations or names
    args.num_sums = args.num_sums or (NUM_SUMS[:1] if args.quick or args.scaling else NUM_SUMS)
    batches = SCALING_BATCHES if args.scaling else BATCHES
    args.batches = args.batches or (batches[:1] if args.quick else batches)
    args.threads = args.threads or (THREADS[:1] if args.quick else THREADS)
    args.rounds = args.rounds or (1 if args.quick else 3)
    if args.memory_limit is None:
        args.memory_limit = 0.8 * free_memory_mib()
    return args


def find_implementations(args: argparse.Namespace) -> tuple[dict[str, dict], dict[str, str]]:
    """Interpreter and version of those that can be measured, and why the others cannot."""
    available: dict[str, dict] = {}
    absent: dict[str, str] = {}
    for name in args.implementations:
        implementation = IMPLEMENTATIONS[name]
        try:
            python = interpreter(implementation, args.environments, args.python)
            available[name] = {"python": python, "version": version(implementation, python)}
        except Unavailable as error:
            absent[name] = str(error)
            print(f"absent: {name}: {error}", file=sys.stderr)
    return available, absent


def measure(python: Path, name: str, point: Point, args: argparse.Namespace) -> dict:
    """Run one worker in a fresh process; a failure comes back as {"error": reason}."""
    implementation = IMPLEMENTATIONS[name]
    num_sums, batch, threads = point
    command = [str(python), str(implementation.script), f"--mode={implementation.mode}"]
    command += [f"--num-sums={num_sums}", f"--batch={batch}", f"--threads={threads}"]
    command += [f"--repeats={args.repeats}", f"--budget={args.budget}"]
    command += [f"--memory-limit={args.memory_limit}"]
    variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = os.environ | dict.fromkeys(variables, str(threads))
    if implementation.environment is not None:
        environment.pop("PYTHONPATH", None)  # what is meant for einet must not reach a peer
    began = time.perf_counter()
    try:
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=args.timeout
        )
    except subprocess.TimeoutExpired:
        return {"error": f"longer than {args.timeout:.0f} s"}
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
        return {"error": lines[-1]}
    sample = json.loads(result.stdout.strip().splitlines()[-1])
    if sample.get("error") == "out of memory":
        sample["error"] += f" (more than {args.memory_limit:,.0f} MiB)"
    return sample | {"process_s": time.perf_counter() - began}


def report(number: int, name: str, point: Point, sample: dict) -> None:
    """One line of progress, with a warning where the model did not learn."""
    line = "round {} K {} batch {} threads {} {}: ".format(number + 1, *point, name)
    if "error" in sample:
        line += sample["error"]
    else:
        line += "train {train_ms:.1f} ms, forward {forward_ms:.1f} ms, {peak_mib:.0f} MiB".format(
            **sample
        )
        if not sample["log_likelihood_after"] > sample["log_likelihood_before"]:
            line += " (warning: training did not raise the log-likelihood)"
    print(line, file=sys.stderr)


def free_memory_mib() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
