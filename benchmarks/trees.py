"""Hidden trees: a step of EM, the forward pass and queries on one GPU, beside PyJuice.

    python benchmarks/trees.py --rows mnist.npy                       # categorical leaves
    python benchmarks/trees.py --rows svhn.npy --leaves gaussian --num-sums 64 256 512
    python benchmarks/trees.py --rows ad.npy --leaves bernoulli --peers einet
    python benchmarks/trees.py --rows mnist.npy --training 30         # seconds of a whole training

The tree is the Chow–Liu tree of the rows, `[rows, variables]` in numpy's format; a batch has 500 of
them. Rows of results go to `results/trees-cuda.json` after every point and replace earlier ones of
the same implementation, tree, leaves, K and precision. Rows with `earlier` were measured before
the kernels became what they are. `floor_ms` counts what no kernel can avoid on an
H200: the products of matrices at the measured rate of its tensor cores (bf16, 688 TFLOP/s; six
products hold the 24 bits of float32, three hold 16), and every parameter read for each pass and
written once at 4.27 TB/s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import store
import torch
from clock import CudaMeter, time_steps
from subjects import hidden_trees
from torch import Tensor

import einet
from einet.kernels.dispatch import Precision

RESULTS = Path(__file__).parent / "results"
PEERS = Path(__file__).parent / ".peers"
KEY = ("implementation", "leaves", "variables", "sums", "K", "precision")
PRODUCTS = {"highest": 6, "high": 3, "medium": 1}
BF16_FLOP, BANDWIDTH = 688e12, 4.27e12


def main() -> None:
    args = parse_arguments()
    # After all installed packages: the machine's own come first.
    sys.path.append(str(PEERS))
    x = torch.from_numpy(np.load(args.rows)).cuda()
    x = x.float() if x.is_floating_point() else x
    began = time.perf_counter()
    graph = einet.chow_liu(x, information="gaussian" if args.leaves == "gaussian" else "discrete")
    torch.cuda.synchronize()
    print(f"tree of {tuple(x.shape)}: {time.perf_counter() - began:.1f} s", flush=True)
    for num_sums in args.num_sums:
        for peer in args.peers:
            for precision in args.precision if peer == "einet" else [None]:
                row = measure(graph, x, num_sums, peer, precision, args)
                print({k: v for k, v in row.items() if k != "date"}, flush=True)
                keep(row, args.output)


def measure(
    graph: einet.RegionGraph,
    x: Tensor,
    num_sums: int,
    peer: str,
    precision: Precision | None,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """One row: times in milliseconds, memory in MiB; what went wrong in place of them."""
    row: dict[str, Any] = {
        "implementation": peer, "leaves": args.leaves, "variables": x.shape[1],
        "sums": len(graph.partitions), "K": num_sums, "precision": precision, "batch": args.batch,
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
    }  # fmt: skip
    meter = CudaMeter()
    meter.start()
    batches = list(x[: 8 * args.batch].split(args.batch))
    try:
        model = None
        if peer == "einet":
            row["version"] = einet.__version__
            subject, model = hidden_trees.ours(
                graph, args.leaves, num_sums, x, precision or "highest"
            )
        else:
            subject = hidden_trees.pyjuice(graph, args.leaves, num_sums, x)
            row["precision"] = subject.precision
            row["note"] = "; ".join(subject.notes)
        row["parameters"] = subject.parameters
        began = time.perf_counter()
        subject.train(batches[0])
        torch.cuda.synchronize()
        row["first_step_s"] = time.perf_counter() - began
        meter.reset_peak()
        train = time_steps(subject.train, batches, meter, args.budget)
        row |= {"train_ms": train["ms"], "train_low_ms": train["low_ms"]}
        row["peak_mib"] = meter.peak_mib()
        row["forward_ms"] = time_steps(subject.log_prob, batches, meter, args.budget)["ms"]
        if model is not None:
            row["floor_ms"] = floor(model, args.batch, precision or "highest")
            row |= queries(model, x)
            if args.training:
                row |= training(model, x, args)
    except (RuntimeError, ImportError) as error:
        row["error"] = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return row


def floor(model: einet.Einet, batch: int, precision: str) -> float:
    """Milliseconds of a step that no kernel can avoid; see above."""
    weights = sum(weight.numel() for weight in model.circuit.weights)
    tables = model.num_parameters - weights
    flop = 3 * 2 * weights * batch * PRODUCTS[precision]
    # Weights are read up, down and for their step, leaves up and for their step; both are written.
    moved = 4 * (4 * weights + 3 * tables)
    return 1e3 * (flop / BF16_FLOP + moved / BANDWIDTH)


def queries(model: einet.Einet, x: Tensor) -> dict[str, float]:
    """Milliseconds of wall clock, until the answer is there."""
    rows = x[:100].float().clone()
    rows[:, : rows.shape[1] // 2] = torch.nan
    return {
        "sample_1000_ms": wall(lambda: model.sample(1000, seed=0)),
        "given_100_sample_ms": wall(lambda: model.given(rows).sample(1, seed=0)),
        "given_100_mean_ms": wall(lambda: model.given(rows).variance()),
    }


def wall(call: Callable[[], object]) -> float:
    times = []
    for _ in range(8):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[3:])


def training(model: einet.Einet, x: Tensor, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of a whole training of so many epochs on all rows."""
    fresh = einet.Einet(
        model.graph, hidden_trees.FAMILIES[args.leaves](), model.num_sums, sums="linear",
        precision=model.precision, device=x.device,
    )  # fmt: skip
    torch.cuda.synchronize()
    began = time.perf_counter()
    einet.fit(fresh, x, epochs=args.training, batch_size=args.batch, progress=False)
    torch.cuda.synchronize()
    return {
        "training_rows": len(x),
        "training_epochs": args.training,
        "training_s": time.perf_counter() - began,
        "training_log_likelihood": float(fresh.log_prob(x[:5000]).mean()),
    }


def keep(row: dict[str, Any], path: Path | None) -> None:
    """Put a row in its file, in the place of an earlier one."""
    if path is None:
        return
    rows = json.loads(path.read_text()) if path.exists() else []
    same = [old for old in rows if all(old[k] == row[k] for k in KEY)]
    rows = [old for old in rows if old not in same] + [row]
    store.write(path, rows)
    machine = path.with_name(f"{path.stem}-machine.json")
    calls = json.loads(machine.read_text())["calls"] if machine.exists() else []
    call = store.describe("cuda", {}) | {"command": f"python benchmarks/trees.py {arguments()}"}
    calls = [old for old in calls if old["command"] != call["command"]] + [call]
    machine.write_text(json.dumps({"calls": calls}, indent=2) + "\n")


def arguments() -> str:
    """The command line without the folders that files were in."""
    return " ".join(Path(a).name if "/" in a else a for a in sys.argv[1:])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", type=Path, required=True, help="a .npy file of rows")
    add("--leaves", choices=tuple(hidden_trees.FAMILIES), default="categorical")
    add("--num-sums", type=int, nargs="+", default=[64, 256, 512, 1024], metavar="K")
    add("--peers", nargs="+", choices=("einet", "pyjuice"), default=["einet", "pyjuice"])
    add("--precision", nargs="+", default=["highest", "high"], choices=tuple(PRODUCTS))
    add("--batch", type=int, default=500)
    add("--budget", type=float, default=1.0, help="seconds for each clock")
    add("--training", type=int, default=0, metavar="EPOCHS", help="time whole trainings too")
    add("--output", type=Path, default=RESULTS / "trees-cuda.json")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no CUDA device here")
    return args


if __name__ == "__main__":
    main()
