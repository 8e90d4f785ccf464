"""Runs measuring processes and turns their answers into rows.

A process serves one implementation: all of its points (a GPU, where start-up and compilation are
slow) or one (a CPU, where memory is that of the process). A point that takes too long ends its
process; the next point starts another.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from implementations import IMPLEMENTATIONS, Unavailable, interpreter, version
from points import NUM_SAMPLES, Point

__all__ = ["SUBJECTS", "Absent", "run"]

HERE = Path(__file__).parent
MARK = "@measured "
START_UP_SECONDS = 120.0


@dataclass(frozen=True)
class Kind:
    """How an implementation is measured: in our process, or by a worker in its own environment."""

    module: str | None
    mode: str
    algorithm: str


SUBJECTS = {
    "einet": Kind("subjects.ours", "em", "em"),
    "baseline": Kind("subjects.log_domain", "em", "em"),
    "spflow-em": Kind("subjects.spflow_peer", "em", "em"),
    "spflow-adam": Kind("subjects.spflow_peer", "adam", "adam"),
    "pyjuice": Kind("subjects.pyjuice_peer", "em", "em"),
    "libspn": Kind(None, "graph", "em"),
    "libspn-xla": Kind(None, "xla", "em"),
}


class Absent(Exception):
    """An implementation cannot be measured here; the message says why."""


class _Died(Exception):
    """The measuring process ended or was ended; the message says why."""


def run(name: str, points: Sequence[Point], args: argparse.Namespace) -> Generator[dict[str, Any]]:
    """The rows of one implementation, as they are measured."""
    # Precision is a choice of einet's alone.
    mine = [point for point in points if name == "einet" or point.precision == "highest"]
    measured = _by_worker if SUBJECTS[name].module is None else _by_process
    for point, found, result in measured(name, mine, args):
        row = {"implementation": name, "version": found, "algorithm": SUBJECTS[name].algorithm}
        row |= point.as_row() | {"device": args.device_name}
        if args.device == "cpu":
            row["threads"] = args.threads
        if name != "einet":
            row["precision"] = "float32"
        blank = dict.fromkeys(
            ("train_ms", "train_epoch_s", "peak_mib", "infer_ms", "infer_us_per_sample")
        )
        yield row | {"error": None} | (blank if "error" in result else {}) | result


def _by_process(
    name: str, points: Sequence[Point], args: argparse.Namespace
) -> Iterator[tuple[Point, str, dict[str, Any]]]:
    process: _Process | None = None
    try:
        for point in points:
            if process is None:
                process = _Process(name, args)
            found = process.version
            try:
                result = process.ask(point, args.limit)
            except _Died as reason:
                process.close()
                process, result = None, {"error": str(reason)}
            yield point, found, result
            if process is not None and not args.in_process:
                process.close()
                process = None
    finally:
        if process is not None:
            process.close()


class _Process:
    """A running `measure.py`."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        kind = SUBJECTS[name]
        command = [sys.executable, str(HERE / "measure.py"), f"--module={kind.module}"]
        command += [f"--mode={kind.mode}", f"--device={args.device}"]
        command += [f"--threads={args.threads}", f"--seconds={args.seconds}"]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed in close()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=_environment(args),
        )
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            first = self._receive(START_UP_SECONDS)
        except _Died as reason:
            self.close()
            raise Absent(str(reason)) from None
        if "absent" in first:
            self.close()
            raise Absent(first["absent"])
        self.version: str = first["version"]

    def ask(self, point: Point, limit: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(point.as_row()) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise _Died(self._last_words()) from None
        return self._receive(limit)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                self._answers.put(json.loads(line.removeprefix(MARK)))
        self._answers.put(None)

    def _receive(self, limit: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=limit)
        except queue.Empty:
            raise _Died(f"longer than {limit:.0f} s") from None
        if answer is None:
            raise _Died(self._last_words())
        return answer

    def _last_words(self) -> str:
        code = self._process.wait()
        if code == -9:
            return "out of memory (killed)"
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1][:200] if lines else f"exit status {code}"


def _by_worker(
    name: str, points: Sequence[Point], args: argparse.Namespace
) -> Iterator[tuple[Point, str, dict[str, Any]]]:
    """LibSPN: TensorFlow in an environment of its own, on the CPU."""
    if args.device != "cpu":
        raise Absent("measured on the CPU only")
    implementation = IMPLEMENTATIONS[name]
    try:
        python = interpreter(implementation, HERE / ".envs", sys.executable)
        found = version(implementation, python)
    except Unavailable as error:
        raise Absent(str(error)) from error
    for point in points:
        if not point.is_random_trees:
            yield point, found, {"error": "unsupported: random binary trees only"}
            continue
        command = [str(python), str(implementation.script), f"--mode={implementation.mode}"]
        command += [f"--num-sums={point.num_sums}", f"--depth={point.depth}"]
        command += [f"--replicas={point.replicas}", f"--threads={args.threads}"]
        command += [f"--budget={args.seconds}", f"--memory-limit={args.memory_limit}"]
        yield point, found, _from_worker(command, point, args)


def _from_worker(command: list[str], point: Point, args: argparse.Namespace) -> dict[str, Any]:
    """A worker evaluates the batch it trains on: another batch takes another process."""
    results = {}
    for batch in {point.batch, point.infer_batch}:
        try:
            done = subprocess.run(
                [*command, f"--batch={batch}"],
                env=_environment(args, without=("PYTHONPATH",)),
                capture_output=True,
                text=True,
                timeout=args.limit,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"longer than {args.limit:.0f} s"}
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            return {"error": lines[-1][:200]}
        results[batch] = json.loads(done.stdout.strip().splitlines()[-1])
        if "error" in results[batch]:
            return results[batch]
    train, infer = results[point.batch], results[point.infer_batch]
    return {
        "parameters": train["parameters"],
        "train_ms": round(train["train_ms"], 3),
        "train_epoch_s": round(train["train_ms"] * NUM_SAMPLES / point.batch / 1e3, 4),
        "peak_mib": round(train["peak_mib"], 1),
        "infer_ms": round(infer["forward_ms"], 3),
        "infer_us_per_sample": round(1e3 * infer["forward_ms"] / point.infer_batch, 3),
        "log_likelihood": round(train["log_likelihood_after"], 3),
        "note": "trained on one batch",
    }


def _environment(args: argparse.Namespace, without: Sequence[str] = ()) -> dict[str, str]:
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    result = os.environ | (dict.fromkeys(threads, str(args.threads)) if args.threads else {})
    return {key: value for key, value in result.items() if key not in without}
