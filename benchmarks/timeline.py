"""Which kernels a training step is made of, and how long each of them takes, on a CUDA device.

    python benchmarks/timeline.py               # points with a goal: results/timeline-cuda.json
    python benchmarks/timeline.py --points 0 6  # some of them, by number; see points.GOALS

A step is one CUDA graph replay, so that kernels of two streams may overlap: their sum then exceeds
the span from the first to the last. Times are those of the profiler, for one step after warm-up.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from points import GOALS, Point
from store import device_name
from subjects import ours
from torch.profiler import ProfilerActivity, profile

RESULTS = Path(__file__).parent / "results"
WARM_UP, STEPS = 20, 3


def main() -> None:
    parser = argparse.ArgumentParser(description="Take a training step apart.")
    parser.add_argument(
        "--points", type=int, nargs="+", metavar="I", help="of points.GOALS, from 0"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "timeline-cuda.json")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no CUDA device here")
    points = [goal.point for goal in GOALS]
    rows = []
    for point in points if args.points is None else [points[i] for i in args.points]:
        row = measure(point)
        rows.append(row)
        print(f"{point}: {row['span_us']:.0f} µs from the first kernel to the last")
        for name, (count, total) in row["kernels"].items():
            print(f"    {total:8.1f} µs  {count:3d} × {name}")
    args.output.write_text(json.dumps(rows, indent=1) + "\n")


def measure(point: Point) -> dict[str, Any]:
    """Count, total time and timeline of the kernels of one step."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(point.batch, point.num_variables, generator=generator).cuda()
    built = ours.build(point, "em", x)
    for _ in range(WARM_UP):
        built.train(x)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as found:
        for _ in range(STEPS):
            built.train(x)
        torch.cuda.synchronize()
    on_device = [event for event in found.events() or [] if event.device_type.name == "CUDA"]
    events = sorted(on_device, key=lambda event: event.time_range.start)
    # Every step launches the same kernels; the last one is shown.
    events = events[-(len(events) // STEPS) :]
    begin = events[0].time_range.start
    timeline = [
        [
            _short(event.name),
            _us(event.time_range.start - begin),
            _us(event.time_range.elapsed_us()),
        ]
        for event in events
    ]
    kernels: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for name, _, elapsed in timeline:
        kernels[name][0] += 1
        kernels[name][1] = _us(kernels[name][1] + elapsed)
    span = max(start + elapsed for _, start, elapsed in timeline)
    ordered = dict(sorted(kernels.items(), key=lambda item: -item[1][1]))
    return {
        **point.as_row(),
        "device": device_name("cuda"),
        "span_us": _us(span),
        "kernels": ordered,
        "timeline": timeline,
    }


def _us(value: float) -> float:
    return round(value, 1)


def _short(name: str) -> str:
    """Without the arguments of templates."""
    return name.partition("<")[0].removeprefix("void ")[:60]


if __name__ == "__main__":
    main()
