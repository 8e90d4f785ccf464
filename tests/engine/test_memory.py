"""Memory is known before it is taken, and where it is short, fewer rows are in work at a time."""

from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import einet
from einet.engine.memory import LEAST_ROWS, halve_pieces
from einet.kernels import dispatch
from tests.budgets import limit

# What is measured and what was said differ by no more than this.
FACTOR = 2.0


class Peak(TorchDispatchMode):
    """The most bytes of tensors that were alive at a time, of those made in the block."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._alive: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._alive:
                    self._alive.add(storage._cdata)
                    self.now += storage.nbytes()
                    self.most = max(self.most, self.now)
                    weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
        return result

    def _gone(self, number: int, nbytes: int) -> None:
        self._alive.discard(number)
        self.now -= nbytes


def models() -> dict[str, tuple[einet.Einet, Tensor]]:
    x = torch.randn(500, 64, generator=torch.Generator().manual_seed(0))
    trees, states = einet.random_trees(64, 3, 5), (x > 0).float()
    tree = einet.chow_liu(states)
    return {
        "small": (einet.Einet(trees, einet.Gaussian(), 10), x),
        "wide": (einet.Einet(trees, einet.Gaussian(), 32, dtype=torch.float64), x.double()),
        "tree": (einet.Einet(tree, einet.Bernoulli(), 64, sums="linear"), states),
        "table": (einet.Einet(tree, einet.Categorical(20), 32, sums="linear"), states),
    }


@pytest.mark.parametrize(("K", "depth", "replicas"), [(10, 4, 10), (40, 4, 10), (10, 4, 40)])
def test_what_was_said_is_what_a_gpu_took(K: int, depth: int, replicas: int) -> None:
    """Peaks of steps on a GPU, as they were measured."""
    point = {"implementation": "einet", "structure": "random_trees", "precision": "highest"}
    point |= {"K": K, "depth": depth, "replicas": replicas, "batch": 500}
    path = Path(__file__).parents[2] / "benchmarks" / "results" / "goals-cuda.json"
    (row,) = (row for row in json.loads(path.read_text()) if point.items() <= row.items())
    model = einet.Einet(einet.random_trees(512, depth, replicas), einet.Gaussian(), K)
    with dispatch.backend("triton"):
        said = model.memory(500)
    # A step by itself keeps no copy to go back to.
    ratio = (said.total - said.copies) / 2**20 / row["peak_mib"]
    assert 1 / FACTOR < ratio < FACTOR


@pytest.mark.parametrize("full_batch", [False, True])
@pytest.mark.parametrize("name", ["small", "wide", "tree", "table"])
def test_what_was_said_is_what_it_takes(name: str, full_batch: bool) -> None:
    model, x = models()[name]
    said = model.memory(len(x), full_batch=full_batch)
    with Peak() as peak:
        if full_batch:
            model.e_step(x)
        else:
            model.em_step(x)
    measured = said.parameters + peak.most
    assert measured / FACTOR < said.total - said.copies < measured * FACTOR
    assert said.device == torch.device("cpu")


def test_large_batches_go_through_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = models()["small"]
    whole = model.memory(len(x))
    assert whole.rows == len(x)
    limit(monkeypatch, "values", 1 << 18)
    parts = model.memory(len(x))
    assert parts.rows < len(x)
    assert parts.values < whole.values
    # Statistics are kept from piece to piece.
    assert parts.statistics == model.memory(len(x), full_batch=True).statistics
    assert "MiB on cpu: parameters" in str(parts)


def test_a_mixture_keeps_the_statistics_of_all() -> None:
    model, x = models()["small"]
    other = einet.Einet(model.graph, einet.Gaussian(), 10, seed=1)
    both, one = einet.Mixture([model, other]).memory(len(x)), model.memory(len(x), full_batch=True)
    assert both.values == one.values
    assert both.statistics == 2 * one.statistics
    assert both.parameters > 2 * one.parameters


def test_halves_have_no_fewer_rows_than_pay() -> None:
    model, _ = models()["small"]
    halves = []
    while (rows := halve_pieces(model, 500)) is not None:
        halves.append(rows)
        assert max(piece.stop - piece.start for piece in model.pieces(500)) <= -(-rows // 16) * 16
    assert halves == [250, 128, LEAST_ROWS]


@pytest.mark.parametrize("name", ["batch_size", "full_batch"])
def test_mistakes(name: str) -> None:
    model, _ = models()["small"]
    with pytest.raises((TypeError, ValueError), match=name):
        model.memory(**{name: 0})  # type: ignore[arg-type]
