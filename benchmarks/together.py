"""Clusters' Einets trained one after the other, and several at the same time.

The paper's recipe for images (100 clusters, K 40, vertical cuts at every quarter of the width, 25
epochs of stochastic EM with batches of 500) on bytes that are random: what they are does not change
the time. Clusters are given, in sizes that differ as those of k-means do (a few times more or less
than the average). For each ``together`` the model is trained ``--runs`` times, in turn with the
others. A row holds all times, the first of which may contain compilation, the memory on top of the
data and the model, and the ratio of the best time alone to the best time together.

    python benchmarks/together.py [--device cuda] -> results/together-cuda.json
    python benchmarks/together.py --device cpu --quick --runs 5 \\
        --output benchmarks/results/together-cpu.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

import einet
from einet.imaging import Recipe

RESULTS = Path(__file__).parent / "results"
#: Images, their height and width.
WORKLOADS = {"svhn": (73_257, 32), "celeba": (9_000, 64)}
CLUSTERS, NUM_SUMS, EPOCHS = 100, 40, 25


def main() -> None:
    parser = argparse.ArgumentParser(description="Train clusters together.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--together", type=int, nargs="+", default=[1, 4, 8, 16, 32])
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a small part of it; nothing is kept")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    args.together = sorted({1, *args.together})
    rows = [row for name in args.workloads for row in measure(name, args)]
    if not args.quick or args.output:
        output = args.output or RESULTS / f"together-{args.device}.json"
        output.write_text("[\n " + ",\n ".join(map(json.dumps, rows)) + "\n]\n")


def measure(name: str, args: argparse.Namespace) -> list[dict]:
    images, side = WORKLOADS[name]
    clusters, num_sums, epochs = CLUSTERS, NUM_SUMS, EPOCHS
    if args.quick:
        images, clusters, num_sums, epochs = images // 100, 10, 4, 2
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (images, side * side * 3), generator=generator, dtype=torch.uint8)
    share = torch.empty(clusters).log_normal_(0.0, 0.5, generator=generator)
    assignment = torch.multinomial(share, images, replacement=True, generator=generator)
    x = x.to(args.device)
    model = Recipe.paper(num_sums=num_sums).model((side, side, 3), clusters, device=args.device)
    found = {together: {"seconds": [], "peak_mib": 0.0} for together in args.together}
    for _ in range(args.runs):
        for together, row in found.items():
            before = _start(args.device)
            began = time.perf_counter()
            history = model.fit(
                x,
                clusters=assignment,
                optimizer=einet.StochasticEM(0.5),
                epochs=epochs,
                together=together,
                progress=False,
            )
            row["seconds"].append(round(history.training_seconds, 3))
            row["peak_mib"] = round(_peak(args.device, before), 1)
            print(name, "together", together, row, f"{time.perf_counter() - began:.2f} s in all")
    device = torch.cuda.get_device_name() if args.device == "cuda" else args.device
    common = {"workload": name, "images": images, "clusters": clusters, "K": num_sums}
    common |= {"epochs": epochs, "device": device, "torch": torch.__version__}
    alone = min(found[1]["seconds"])
    return [
        {**common, "together": together, **row, "ratio": round(alone / min(row["seconds"]), 2)}
        for together, row in found.items()
    ]


def _start(device: str) -> int:
    if device != "cuda":
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _peak(device: str, before: int) -> float:
    return (torch.cuda.max_memory_allocated() - before) / 2**20 if device == "cuda" else 0.0


if __name__ == "__main__":
    main()
