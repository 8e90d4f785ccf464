"""Smooth tables of grey values."""

from __future__ import annotations

import math

import pytest
import torch

import einet
from experiments.images.soften import Softened, neighbours


def test_neighbours_by_hand():
    # All values as frequent as one another: r = ½ throughout.
    found = neighbours(torch.ones(3).double(), 1.0)
    near = torch.tensor([1.0, math.exp(-0.5), math.exp(-2.0)]).double()
    expected = 0.5 * near / near.sum() + torch.tensor([0.5, 0.0, 0.0]).double()
    assert torch.allclose(found[0], expected)


def test_frequent_values_stay_as_they_are():
    counts = torch.ones(50).double()
    counts[10] = 1e6
    found = neighbours(counts, 2.0)
    assert torch.allclose(found.sum(1), torch.ones(50).double())
    assert found[10, 10] > 0.98
    # Nor do their neighbours become like them.
    assert found[11, 10] < 0.02 * found[11, 12]
    # Values near others that are just as frequent become alike.
    assert found[30, 31] > 0.1
    assert torch.allclose(found[30, 31], found[31, 30])


def test_a_step_by_hand():
    x = torch.tensor([[3], [3], [4], [9]], dtype=torch.uint8)
    model = einet.Einet(einet.random_trees(1, 0, 1), einet.Categorical(16), num_sums=1)
    (block,) = model.leaf.leaf_blocks
    before = block.stored.detach().clone().view(16)
    learner = Softened(0.25, None, width=1.0)
    einet.fit(model, x, epochs=1, optimizer=learner, initialize=False, progress=False)
    counts = torch.bincount(x.flatten(), minlength=16).double()
    smooth = (counts / 4) @ neighbours(counts, 1.0)
    expected = 0.75 * before + 0.25 * smooth
    assert torch.allclose(block.stored.detach().view(16), expected.float(), atol=2e-5)


def test_what_is_near_becomes_likely():
    # One variable has the even values and the other one the odd ones: neighbours all the same.
    even = torch.arange(40, 200, 2, dtype=torch.uint8).repeat(4)
    x = torch.stack([even, even + 1], 1)

    def trained(learner: einet.StochasticEM) -> einet.Einet:
        model = einet.Einet(einet.random_trees(2, 0, 1), einet.Categorical(256), num_sums=1)
        einet.fit(model, x, epochs=5, batch_size=80, optimizer=learner, progress=False)
        return model

    with torch.no_grad():
        plain = trained(einet.StochasticEM(0.2)).log_prob(x.flip(1))
        soft = trained(Softened(0.2, None, 8.0))
        assert soft.log_prob(x.flip(1)).mean() > plain.mean() + 5
    for block in soft.leaf.leaf_blocks:
        assert torch.allclose(block.stored.sum(-1), torch.ones(()), atol=1e-6)
        assert block.stored.min() >= 0.99e-6


def test_wrong_widths_and_leaves():
    with pytest.raises(ValueError, match="width must be a positive number, got 0"):
        Softened(0.5, None, width=0.0)
    model = einet.Einet(einet.random_trees(1, 0, 1), einet.Bernoulli(), num_sums=1)
    with pytest.raises(TypeError, match="leaves must be Categorical to be softened, got Bernoulli"):
        Softened(0.5, None, width=1.0).start(model, [])


@pytest.mark.gpu
def test_between_recorded_steps_of_a_gpu():
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(30, 60, (90, 1), generator=generator)
    x = (x + torch.randint(20, (90, 6), generator=generator)).byte()
    graph = einet.chow_liu(x)
    found = []
    for device in ("cpu", "cuda"):
        model = einet.Einet(graph, einet.Categorical(256), num_sums=4, sums="linear", device=device)
        model.initialize(x, seed=0)
        learner = Softened(einet.linear(1.0, 0.1), einet.Prior(1.0, 1.0), width=2.0)
        options = {"epochs": 4, "batch_size": 30, "optimizer": learner, "initialize": False}
        found.append(einet.fit(model, x, progress=False, **options).train)
    assert found[1] == pytest.approx(found[0], rel=1e-4)
