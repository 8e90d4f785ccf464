"""The measuring process: one implementation, one device, the points on its standard input.

Started by `runner.py`; it answers each point with one line, so that the parent can stop it when a
point takes too long. The order is the same for all:

1. data on the device, then the memory baseline is taken;
2. the network is built, warmed up and trained for the clock; the peak is read;
3. evaluation of batches for the clock, with a peak of its own;
4. the mean log-likelihood after training, to show that it learns.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# The peers come last, so that nothing of theirs hides an installed package.
sys.path += [str(HERE.parent / "src"), str(HERE / ".peers")]

MARK = "@measured "


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure one implementation.")
    parser.add_argument("--module", required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    # What libraries print must not mix with the answers.
    answers, sys.stdout = sys.stdout, sys.stderr

    def answer(content: dict[str, Any]) -> None:
        print(MARK + json.dumps(content), file=answers, flush=True)

    try:
        subject = prepare(args)
    except Exception as error:
        answer({"absent": _short(error)})
        return
    answer({"version": subject.version()})

    from points import Point

    for line in sys.stdin:
        point = Point.from_row(json.loads(line))
        result, fatal = attempt(subject, point, args)
        answer(result)
        if fatal:
            sys.exit(1)


def prepare(args: argparse.Namespace) -> Any:
    """Import the implementation; an exception says why it is absent."""
    import torch

    if args.threads:
        torch.set_num_threads(args.threads)
    if args.device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("no CUDA device")
    if args.module.endswith("pyjuice_peer") and args.device != "cuda":
        raise RuntimeError("runs on CUDA devices only")
    return importlib.import_module(args.module)


def attempt(subject: Any, point: Any, args: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """Measure one point; a failure becomes {"error": reason}. Also whether the process is lost."""
    import torch
    from subjects.base import Unsupported
    from workers import common

    try:
        return measure(subject, point, args), False
    except Unsupported as reason:
        return {"error": f"unsupported: {reason}"}, False
    except Exception as error:
        is_memory = isinstance(error, torch.OutOfMemoryError) or common.is_out_of_memory(error)
        message = "out of memory" if is_memory else _short(error)
    gc.collect()
    if args.device != "cuda":
        return {"error": message}, False
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except Exception:  # an illegal access leaves the whole context unusable
        return {"error": message}, True
    return {"error": message}, False


def measure(subject: Any, point: Any, args: argparse.Namespace) -> dict[str, Any]:
    import torch
    from clock import CpuMeter, CudaMeter, time_steps
    from points import NUM_SAMPLES

    rows = max(NUM_SAMPLES, point.batch)
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(rows, point.num_variables, generator=generator).to(args.device)
    batches = list(data.split(point.batch)[: rows // point.batch])
    test = list(data[:NUM_SAMPLES].split(point.infer_batch)[: NUM_SAMPLES // point.infer_batch])

    meter = CudaMeter() if args.device == "cuda" else CpuMeter()
    meter.start()
    built = subject.build(point, args.mode, data)
    train = time_steps(built.train, batches, meter, args.seconds, built.before_step)
    result = {
        "precision": built.precision,
        "parameters": built.parameters,
        "train_ms": train["ms"],
        "train_low_ms": train["low_ms"],
        "train_high_ms": train["high_ms"],
        "train_epoch_s": train["ms"] * NUM_SAMPLES / point.batch / 1e3,
        "train_calls": train["calls"],
        "peak_mib": meter.peak_mib(),
        "reserved_mib": meter.reserved_mib(),
    }
    if built.before_step is not None:
        built.before_step()
        built.train(batches[0])
    meter.reset_peak()
    infer = time_steps(built.log_prob, test, meter, args.seconds)
    result |= {
        "infer_ms": infer["ms"],
        "infer_low_ms": infer["low_ms"],
        "infer_high_ms": infer["high_ms"],
        "infer_us_per_sample": 1e3 * infer["ms"] / point.infer_batch,
        "infer_peak_mib": meter.peak_mib(),
        "log_likelihood": float(built.log_prob(test[0]).mean()),
        "note": "; ".join(built.notes) or None,
    }
    return {key: _rounded(value) for key, value in result.items()}


def _rounded(value: Any) -> Any:
    """Five digits are more than the clock has; NaN is no JSON."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.5g}") if value == value else None


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]


if __name__ == "__main__":
    main()
