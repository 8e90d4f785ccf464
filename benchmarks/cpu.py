"""`einet` beside LibSPN and SPFlow on a CPU: one EM step, the forward pass, peak memory.

The workload is the paper's: 512 Gaussian variables, random binary trees of depth 4, 10 replicas,
K in {10, 20, 40}. Every measurement runs in a fresh process; within a round the implementations
take turns, and the results are medians over the rounds.

    python benchmarks/cpu.py                # the whole comparison -> results/cpu.json
    python benchmarks/cpu.py --scaling      # einet, batch 100 to 2000 -> results/cpu-scaling.json
    python benchmarks/cpu.py --quick        # one small point, printed only
    python benchmarks/cpu.py --implementations einet libspn --num-sums 10 --batches 100 --threads 1
    python benchmarks/cpu.py --table        # show the stored comparison again

A part of the comparison is printed only, unless `--output` names a file for it. The peers'
environments are made on first use; a peer that cannot be installed is named, not left out silently.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import tables
from implementations import IMPLEMENTATIONS, Unavailable, interpreter, version

HERE = Path(__file__).parent
RESULTS = HERE / "results"

NUM_SUMS = (10, 20, 40)
BATCHES = (100, 500)
SCALING_BATCHES = (100, 200, 500, 1000, 2000)
THREADS = (1, 2)
MEASURED = ("train_ms", "forward_ms", "peak_mib")

Point = tuple[int, int, int]  # K, batch, threads


def main() -> None:
    args = parse_arguments()
    if args.table:
        print(tables.comparison(json.loads((RESULTS / "cpu.json").read_text())))
        return
    points = [(k, b, t) for k in args.num_sums for b in args.batches for t in args.threads]
    available, absent = find_implementations(args)
    rows: list[dict] = []
    samples: dict[tuple[str, Point], list[dict]] = {}
    for number in range(args.rounds):
        for point in points:
            names = list(available)
            start = number % len(names) if names else 0
            for name in names[start:] + names[:start]:
                history = samples.setdefault((name, point), [])
                # It would fail again, or is too slow to wait for again.
                done = any("error" in s or s["process_s"] > args.once_above for s in history)
                if not done:
                    history.append(measure(available[name], name, point, args))
                    report(number, name, point, history[-1])
        rows = summarise(samples, points, available, absent)
        if args.output:  # after every round: an interrupted run is not lost
            write(rows, args.output)
    for name, reason in absent.items():
        print(f"absent: {name}: {reason}")
    print(tables.scaling(rows) if args.scaling else tables.comparison(rows))


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
    parser.add_argument("--rounds", type=int, help="default 5 (1 with --quick)")
    parser.add_argument("--repeats", type=int, default=20, help="at most so many calls a process")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds for these calls")
    parser.add_argument(
        "--once-above", type=float, default=60.0, help="seconds; slower processes run one round"
    )
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for a process")
    parser.add_argument(
        "--memory-limit", type=float, help="MiB for a process (default: 80%% of what is free)"
    )
    parser.add_argument("--environments", type=Path, default=HERE / ".envs")
    parser.add_argument("--python", default=sys.executable, help="makes the environments (3.11)")
    parser.add_argument("--output", type=Path, help="where to write the rows")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--scaling", action="store_true", help="einet alone over the batch size")
    what.add_argument("--quick", action="store_true", help="K 10, batch 100, one thread, one round")
    what.add_argument("--table", action="store_true", help="print the stored comparison")
    args = parser.parse_args()

    chosen = (args.implementations, args.num_sums, args.batches, args.threads)
    is_whole = not args.quick and all(option is None for option in chosen)
    if args.output is None and is_whole:
        args.output = RESULTS / ("cpu-scaling.json" if args.scaling else "cpu.json")
    if args.scaling and args.implementations not in (None, ["einet"]):
        parser.error("--scaling measures einet alone")
    names = ("einet",) if args.scaling else tuple(IMPLEMENTATIONS)
    args.implementations = args.implementations or names
    args.num_sums = args.num_sums or (NUM_SUMS[:1] if args.quick else NUM_SUMS)
    batches = SCALING_BATCHES if args.scaling else BATCHES
    args.batches = args.batches or (batches[:1] if args.quick else batches)
    args.threads = args.threads or (THREADS[:1] if args.quick else THREADS)
    args.rounds = args.rounds or (1 if args.quick else 5)
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


def measure(found: dict, name: str, point: Point, args: argparse.Namespace) -> dict:
    """Run one worker in a fresh process; a failure comes back as {"error": reason}."""
    implementation = IMPLEMENTATIONS[name]
    num_sums, batch, threads = point
    command = [str(found["python"]), str(implementation.script), f"--mode={implementation.mode}"]
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


def summarise(
    samples: dict[tuple[str, Point], list[dict]],
    points: list[Point],
    available: dict[str, dict],
    absent: dict[str, str],
) -> list[dict]:
    """One row per point and implementation: medians over the rounds, or a note why none."""
    rows = []
    for point in points:
        for name in (*available, *absent):
            history = samples.get((name, point), [])
            row = {"implementation": name, "version": available.get(name, {}).get("version")}
            row |= dict(zip(("K", "batch", "threads"), point, strict=True))
            notes = [sample["error"] for sample in history if "error" in sample]
            if name in absent:
                notes.append("absent")
            if notes:
                row |= dict.fromkeys((*MEASURED, "train_ms_per_sample"))
                row |= {"note": notes[0]}
            else:
                for field in MEASURED:
                    row[field] = round(statistics.median(s[field] for s in history), 3)
                row["train_ms_per_sample"] = round(row["train_ms"] / row["batch"], 5)
                last = history[-1]
                row["parameters"] = last["parameters"]
                row["rounds"] = len(history)
                row["log_likelihood_before"] = round(last["log_likelihood_before"], 3)
                row["log_likelihood_after"] = round(last["log_likelihood_after"], 3)
            rows.append(row)
    return rows


def write(rows: list[dict], path: Path) -> None:
    """Write the rows, and the machine and command beside them in NAME-machine.json."""
    machine = {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_mib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": " ".join(("python benchmarks/cpu.py", *sys.argv[1:])),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n  " + ",\n  ".join(json.dumps(row) for row in rows) + "\n]\n")
    sibling = path.with_name(f"{path.stem}-machine.json")
    sibling.write_text(json.dumps(machine, indent=2) + "\n")


def cpu_model() -> str:
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name", platform.processor())
    return f"{name} (family {fields.get('cpu family')}, model {fields.get('model')})"


def free_memory_mib() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
