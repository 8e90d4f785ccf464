"""The paper's sanity check: an Einsum Network has the likelihoods of a RAT-SPN.

    python -m experiments.table1.sanity

Both are of the same structure, K and settings (the paper's defaults for stochastic EM). The RAT-SPN
keeps its values as logarithms and stores every product, ``benchmarks/baseline.py``. Each is trained
from starts of its own; and once from the same start, in float64, to see how far rounding leads them
apart. Written are `sanity.json` and `sanity.md`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import einet
from benchmarks.baseline import BernoulliLeaves, LogDomainNetwork
from einet.data import debd
from experiments.markdown import table
from experiments.table1.arguments import default_root
from experiments.table1.store import read_json, write_json, write_text

__all__ = ["CHECKS", "Check", "main", "markdown", "same_start"]

_HERE = Path(__file__).resolve().parent


class Check(NamedTuple):
    """A data set and a network whose leaves all have as many variables."""

    name: str
    depth: int
    replicas: int = 10
    num_sums: int = 10
    batch_size: int = 500
    step_size: float = 0.5
    epochs: int = 15


#: Depths for which 16, 100 and 180 variables can be cut into equal leaves.
CHECKS = (Check("nltcs", 4), Check("jester", 2), Check("dna", 2, batch_size=200))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.table1.sanity")
    parser.add_argument("--root", type=Path, help="folder of the data sets (default: $EINET_DEBD)")
    parser.add_argument("--output", type=Path, default=_HERE, help="folder for the results")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, default=3, help="starts of each network")
    parser.add_argument("--epochs", type=int, help="fewer, for a quick look")
    args = parser.parse_args(arguments)
    root, path = args.root or default_root(), args.output / "sanity.json"
    results = read_json(path, [])
    for check in CHECKS:
        if args.epochs is not None:
            check = check._replace(epochs=args.epochs)
        if any(row["check"] == check._asdict() for row in results):
            continue
        results.append(measure(check, root, args.device, args.seeds))
        write_json(path, results)
        write_text(args.output / "sanity.md", markdown(results))
        print(results[-1], flush=True)
    return 0


def measure(check: Check, root: Path, device: str, seeds: int) -> dict[str, Any]:
    """Train both networks, and read the test rows once for each of them."""
    train, test = (debd.read(check.name, split, root).to(device) for split in ("train", "test"))
    ours = [_learn(_einet(check, train, seed), train, check, seed) for seed in range(1, seeds + 1)]
    theirs = [
        _learn(_rat_spn(check, train, seed), train, check, seed) for seed in range(1, seeds + 1)
    ]
    same = _einet(check, train, 0).double()
    twin = same_start(same)
    few = check._replace(epochs=1)
    difference = _rows(_learn(same, train, few, 0), test) - _rows(_learn(twin, train, few, 0), test)
    return {
        "check": check._asdict(),
        "einet_test_ll": [float(_rows(model, test).mean()) for model in ours],
        "rat_spn_test_ll": [float(_rows(model, test).mean()) for model in theirs],
        "same_start_largest_difference": float(difference.abs().max()),
        "same_start_mean_difference": float(difference.mean()),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "torch": torch.__version__,
    }


def _graph(check: Check, train: Tensor, seed: int) -> einet.RegionGraph:
    return einet.random_trees(train.shape[1], check.depth, check.replicas, seed=seed)


def _einet(check: Check, train: Tensor, seed: int) -> einet.Einet:
    graph = _graph(check, train, seed)
    return einet.Einet(graph, einet.Bernoulli(), check.num_sums, seed=seed, device=train.device)


def _rat_spn(check: Check, train: Tensor, seed: int) -> LogDomainNetwork:
    graph = _graph(check, train, seed)
    return LogDomainNetwork(graph, check.num_sums, seed, BernoulliLeaves).to(train.device)


def same_start(model: einet.Einet) -> LogDomainNetwork:
    """The RAT-SPN with the parameters of an Einsum Network of Bernoulli leaves."""
    network = LogDomainNetwork(model.graph, model.num_sums, leaves=BernoulliLeaves)
    network = network.to(model.device, model.dtype)
    assert isinstance(network.leaves, BernoulliLeaves)
    (block,) = model.leaf.leaf_blocks
    network.columns.copy_(block.columns)
    probability = block.stored.detach().unflatten(1, network.columns.shape).squeeze(-1)
    network.leaves.set(probability.movedim(0, -1))
    with torch.no_grad():
        for theirs, ours in zip(network.log_weights, model.circuit.weights, strict=False):
            theirs.copy_(ours.log().reshape(theirs.shape))
    return network


def _learn(model: Any, train: Tensor, check: Check, seed: int) -> Any:
    """Stochastic EM, with mini-batches of the same order for both networks."""
    generator = torch.Generator().manual_seed(seed)
    rows = train.to(next(iter(model.parameters())).dtype)
    for _ in range(check.epochs):
        order = torch.randperm(len(rows), generator=generator).to(rows.device)
        for batch in rows[order].split(check.batch_size):
            model.em_step(batch, step_size=check.step_size)
    return model


@torch.no_grad()
def _rows(model: Any, test: Tensor) -> Tensor:
    dtype = next(iter(model.parameters())).dtype
    return torch.cat([model(part.to(dtype)) for part in test.split(500)]).double()


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """The table."""
    header = (
        "data set", "D", "R", "K", "EiNet", "RAT-SPN", "from one start: mean difference", "largest",
    )  # fmt: skip
    rows = []
    for row in results:
        check = Check(**row["check"])
        shown = [_mean_and_error(row[name]) for name in ("einet_test_ll", "rat_spn_test_ll")]
        apart = (row["same_start_mean_difference"], row["same_start_largest_difference"])
        sizes = (check.depth, check.replicas, check.num_sums)
        rows.append([check.name, *map(str, sizes), *shown, *(f"{value:.1e}" for value in apart)])
    return (
        "# The same network in the log domain\n\n"
        "Mean test log-likelihoods in nats, over starts ± the standard error of their mean; and "
        "how far one epoch of float64 leads the two apart that begin with the same parameters.\n\n"
        f"{table(header, rows)}\n"
    )


def _mean_and_error(values: Sequence[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.3f} ± {error:.3f}"


if __name__ == "__main__":
    sys.exit(main())
