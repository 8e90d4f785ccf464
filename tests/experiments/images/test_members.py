"""Mixtures of single Einets, and their structures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import einet
from einet.imaging.pixels import load_with_pixels
from experiments.images import panels, train
from experiments.images.datasets import Parts, Sets
from experiments.images.settings import Settings
from experiments.images.structure import member_seed, structure

LEARNT = Settings(
    structure="chow_liu",
    sums="linear",
    levels=4,
    clusters=1,
    num_sums=2,
    epochs=2,
    batch_size=20,
    valid_rows=20,
    family="categorical",
    prior_leaves=1.0,
)
CPU = torch.device("cpu")


@pytest.fixture
def parts(root: Path) -> Parts:
    return Sets("mnist", root / "mnist").parts(LEARNT)


def test_a_mixture_of_members(parts: Parts, tmp_path: Path):
    single = train.train(replace(LEARNT, finish=1), parts, "cpu", None, progress=False)
    settings = replace(LEARNT, finish=1, members=3)
    trained = train.train(settings, parts, "cpu", None, progress=False)
    model, record = trained.model, trained.record
    assert isinstance(model, einet.Mixture)
    assert torch.allclose(model.log_weights.exp(), torch.full((3,), 1 / 3))
    # The first member is what there would be without the others.
    test = parts.test.tensor()
    with torch.no_grad():
        each = torch.stack([part.log_prob(test) for part in model.models]).double()
        assert torch.equal(each[0], single.model.log_prob(test).double())
    assert not torch.equal(each[0], each[1])
    by_hand = (torch.logsumexp(each, 0) - torch.tensor(3.0).log()).mean().item()
    assert record["test_ll"] == pytest.approx(by_hand, rel=1e-5)
    # What is summed up, and what is said of each.
    members = record["members"]
    assert [len(member["history"]["valid"]) for member in members] == [3, 3, 3]
    for name in ("train_seconds", "structure_seconds"):
        assert record[name] == pytest.approx(sum(member[name] for member in members), abs=0.01)
    assert record["parameters"] == sum(part.num_parameters for part in model.models) + 3
    assert record["valid_images"] == 20
    # A model like any other: pictures and files.
    panels.draw(model, trained.pixels, parts.test, tmp_path / "pictures")
    assert {file.stem for file in (tmp_path / "pictures").iterdir()} == set(panels.PANELS)
    model.save(tmp_path / "members.einet", trained.pixels.metadata(settings=settings.to_dict()))
    loaded, _ = load_with_pixels(tmp_path / "members.einet")
    assert torch.equal(loaded.log_prob(test), model.log_prob(test))
    again = train.train(settings, parts, "cpu", None, progress=False)
    assert again.record["test_ll"] == record["test_ll"]


def test_members_have_trees_of_their_own(parts: Parts):
    found = [structure(LEARNT, parts.train, CPU, member) for member in range(3)]
    assert found[0] == structure(LEARNT, parts.train, CPU)
    assert len({graph.scopes for graph in found}) == 3
    random = replace(LEARNT, structure="random_trees", depth=2, replicas=1)
    found = [structure(random, parts.train, CPU, member) for member in range(3)]
    assert len({graph.scopes for graph in found}) == 3
    grid = replace(LEARNT, structure="poon_domingos", delta=(4,))
    assert structure(grid, parts.train, CPU, 1) == structure(grid, parts.train, CPU)


def test_seeds_of_members():
    seeds = [member_seed(replace(LEARNT, seed=seed), m) for seed in range(5) for m in range(5)]
    assert len(set(seeds)) == 25
    assert seeds[0::5] == list(range(5))
