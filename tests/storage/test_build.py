"""A model is planned before it is filled: its size is that of the tensors that are there."""

from pathlib import Path

import pytest
import torch

import einet
from einet import Einet, FormatError, Mixture
from einet.data.files import read_tensors
from einet.storage.build import Content
from tests.layers.shared_layer import SharedLayer

GRAPH = einet.random_trees(4, depth=2, replicas=2)


def content(model: einet.Model, path: Path) -> tuple[dict, dict]:
    model.save(path)
    header, tensors = read_tensors(path, "einet")
    return header["model"], tensors


def test_a_plan_has_shapes_and_no_values():
    options = {"num_sums": 10**5, "num_leaves": 10**5, "sums": "einsum", "num_classes": 2}
    plan = Einet.unfilled(GRAPH, einet.Gaussian(), **options)
    assert all(p.is_meta for name, p in plan.named_parameters() if name != "log_class_prior")
    assert plan.circuit.sum_layers[0].weight.shape == (4, 10**5, 10**10)
    small = {"num_sums": 3, "num_leaves": 2, "sums": "einsum", "num_classes": 2}
    model = Einet(GRAPH, einet.Gaussian(), **small)
    plan = Einet.unfilled(GRAPH, einet.Gaussian(), **small)
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    assert {name: value.shape for name, value in plan.state_dict().items()} == shapes
    assert plan.compiled_order() == model.compiled_order()


def test_all_tensors_are_used_and_all_are_there(tmp_path: Path):
    description, tensors = content(Einet(GRAPH, einet.Gaussian(), 2), tmp_path / "a")
    surplus = {**tensors, "circuit.layers.9.weight": torch.zeros(2)}
    with pytest.raises(FormatError, match="circuit.layers.9.weight, which the model does not have"):
        Content(surplus).model(description)
    for name in tensors:
        some = {other: value for other, value in tensors.items() if other != name}
        with pytest.raises(ValueError, match=name.rpartition(".")[2]):
            Content(some).model(description)


def test_a_number_of_sums_that_nothing_has_costs_nothing(tmp_path: Path):
    # The root's children are leaves: no sum is an inner one, and so nothing tells how many entries.
    graph = einet.random_trees(4, depth=1, replicas=2)
    description, tensors = content(Einet(graph, einet.Gaussian(), 2), tmp_path / "a")
    model = Content(tensors).model({**description, "num_sums": 10**9})
    assert model.log_prob(torch.full((1, 4), torch.nan)).abs().item() < 1e-5
    assert model.sample(2).shape == (2, 4)


@pytest.mark.parametrize("levels", [31, 32])
def test_mixtures_within_mixtures(levels: int, tmp_path: Path):
    model: einet.Model = Einet(GRAPH, einet.Gaussian(), 2)
    for _ in range(levels):
        model = Mixture([model])
    if levels == 31:
        model.save(tmp_path / "a")
        assert torch.equal(einet.load(tmp_path / "a").sample(2, seed=0), model.sample(2, seed=0))
        return
    with pytest.raises(ValueError, match="at most 32 mixtures within mixtures to be saved, got 33"):
        model.save(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_sums_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = Einet(GRAPH, einet.Bernoulli(), 2, sums="shared")
    model.save(tmp_path / "a")
    assert torch.equal(einet.load(tmp_path / "a").sample(5, seed=0), model.sample(5, seed=0))
    # What a layer leaves without values is found, not used.
    plain = SharedLayer.__init__

    def half_filled(self, *arguments, **options):
        plain(self, *arguments, **options)
        self.register_buffer("kept", torch.empty(3), persistent=False)

    monkeypatch.setattr(SharedLayer, "__init__", half_filled)
    with pytest.raises(FormatError, match="kept is not in the file, and has no values"):
        einet.load(tmp_path / "a")
