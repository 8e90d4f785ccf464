"""Averages and dropped inputs of sums."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import einet
from einet.data import as_batch
from experiments.table1 import discarded


def model_and_rows() -> tuple[einet.Einet, torch.Tensor]:
    x = torch.randint(0, 2, (60, 5), generator=torch.manual_seed(0), dtype=torch.uint8)
    graph = einet.random_trees(5, depth=2, replicas=2, seed=0)
    model = einet.Einet(graph, einet.Bernoulli(), 4, dtype=torch.float64, seed=0)
    return model.initialize(x, seed=0), x


def parameters(model: einet.Einet) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def test_averages_are_of_late_steps() -> None:
    model, x = model_and_rows()
    learner = discarded.Averaged(0.5)
    late = []
    for progress in (0.0, 0.5, 0.8, 1.0):
        learner.step(model, x, progress=progress)
        late.append(parameters(model))
    learner.put_means(model)
    for found, one, two in zip(model.parameters(), late[2], late[3], strict=True):
        torch.testing.assert_close(found.detach(), (one + two) / 2)
    every = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 5)
    assert model.log_prob(every).exp().sum().item() == pytest.approx(1.0)


def test_nothing_dropped_is_a_step_of_em() -> None:
    (model, x), (other, _) = model_and_rows(), model_and_rows()
    batch = as_batch(x, 5)
    mean = discarded.DropSums(0.3, None, share=0.0, seed=0).step(model, batch)
    assert mean == pytest.approx(float(other.em_step(batch, step_size=0.3)))
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.detach(), two.detach())


def test_what_is_dropped_keeps_its_share() -> None:
    model, x = model_and_rows()
    before = parameters(model)
    learner = discarded.DropSums(1.0, None, share=0.5, seed=0)
    learner.step(model, as_batch(x, 5))
    layer = next(iter(model.circuit.sum_layers))
    old = next(b for b in before if b.shape == layer.weight.shape)
    same = (layer.weight - old).abs() < 1e-9
    # Every weight of a step of EM moves.
    assert 0.25 < same.double().mean() < 0.75
    for sums in layer.simplices(layer.weight.detach()):
        torch.testing.assert_close(sums.sum(-1), torch.ones_like(sums.sum(-1)))


def test_the_command(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--root", str(root), "--output", str(tmp_path), "--device", "cpu", "--seeds", "1"]
    arguments += ["--datasets", "nltcs", "--epochs", "4"]
    assert discarded.main(arguments) == 0
    rows = json.loads((tmp_path / "discarded.json").read_text())
    assert len({(row["kind"], row["variant"]) for row in rows}) == len(rows) == 2 * (3 + 3 + 2 + 2)
    assert "| as it is, averaged |" in (tmp_path / "discarded.md").read_text()
    monkeypatch.setattr(discarded, "train", None)
    assert discarded.main(arguments) == 0
    assert json.loads((tmp_path / "discarded.json").read_text()) == rows
