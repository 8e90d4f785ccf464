"""How far the precision modes of the fused kernels are from float64.

For random binary trees over 512 Gaussian variables (depth 4, 10 replicas, batch 500), the same
parameters are evaluated by the fused kernels in every mode and by the torch kernels in float64:
log densities before they are rounded to float32, the weights and leaves after one step of EM, and
the log of the total probability, which is 0.

    python benchmarks/precision.py [--device cuda] -> results/precision-cuda.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import einet
from einet.data.batch import as_batch
from einet.kernels import dispatch

RESULTS = Path(__file__).parent / "results"
NUM_SUMS = (10, 40, 64)
MODES: tuple[dispatch.Precision, ...] = ("highest", "high", "medium")
VARIABLES, BATCH, STEP_SIZE = 512, 500, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the precision modes.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--num-sums", type=int, nargs="+", default=NUM_SUMS)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    rows = [row for K in args.num_sums for row in measure(K, args.device)]
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    output = args.output or RESULTS / f"precision-{args.device}.json"
    output.write_text(json.dumps(rows, indent=1) + "\n")


def measure(num_sums: int, device: str) -> list[dict]:
    graph = einet.random_trees(VARIABLES, depth=4, replicas=10, seed=0)
    x = torch.randn(BATCH, VARIABLES, generator=torch.Generator().manual_seed(0)).to(device)
    start = einet.Einet(graph, einet.Gaussian(), num_sums, device=device).initialize(x)
    # A few steps first: the weights of a new model are nearly uniform.
    for _ in range(3):
        start.em_step(x, step_size=STEP_SIZE)
    state = {name: tensor.clone() for name, tensor in start.state_dict().items()}
    exact = einet.Einet(graph, einet.Gaussian(), num_sums, dtype=torch.float64, device=device)
    exact.load_state_dict(state)
    with torch.no_grad(), dispatch.backend("torch"):
        wanted = exact.log_prob(x)
        exact.em_step(x, step_size=STEP_SIZE)
    return [_compare(start, state, mode, x, wanted, exact) for mode in MODES]


def _compare(
    model: einet.Einet,
    state: dict[str, torch.Tensor],
    mode: dispatch.Precision,
    x: torch.Tensor,
    wanted: torch.Tensor,
    exact: einet.Einet,
) -> dict:
    model.load_state_dict(state)
    model.precision = mode
    got = model.piece_log_prob(as_batch(x, VARIABLES, scan=False))
    nothing = torch.full((1, VARIABLES), torch.nan, device=x.device)
    total = model.piece_log_prob(as_batch(nothing, VARIABLES, scan=False))
    model.em_step(x, step_size=STEP_SIZE)
    errors = [
        ((mine.double() - theirs).norm() / theirs.norm()).item()
        for mine, theirs in zip(model.parameters(), exact.parameters(), strict=True)
    ]
    device = torch.cuda.get_device_name() if x.is_cuda else "cpu"
    return {
        "K": model.num_sums,
        "precision": mode,
        "log_prob_max_error": (got - wanted).abs().max().item(),
        "log_prob_mean_error": (got - wanted).mean().item(),
        "log_prob_mean": wanted.mean().item(),
        "em_step_max_relative_error": max(errors),
        "log_total_probability": total.item(),
        "device": device,
    }


if __name__ == "__main__":
    main()
