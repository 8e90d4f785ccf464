"""Gaussian leaves far from 0: differences first, densities and statistics alike."""

import math
from unittest.mock import patch

import pytest
import torch

import einet
from einet.kernels.torch import leaf_centred
from einet.kernels.torch.leaf_product import ProductKernel
from tests.budgets import limit
from tests.kernels.triton.leaf_check import graph_of
from tests.oracle import Oracle, close


def far_model(offset: float, seed: int = 0) -> tuple[einet.Einet, torch.Tensor]:
    """Leaves of one to three variables that lie where their rows do."""
    model = einet.Einet(graph_of(1, 3, 2), einet.Gaussian(), 2, num_leaves=3, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    for block in model.leaf.leaf_blocks:
        with torch.no_grad():
            block.stored[..., 0] += offset
            block.stored[..., 1].uniform_(0.01, 4.0, generator=generator)
    x = offset + torch.randn(40, 6, generator=generator, dtype=torch.float64)
    x[torch.rand(x.shape, generator=generator) < 0.2] = math.nan
    x[3] = math.nan
    return model, x


def run(model: einet.Einet, x: torch.Tensor) -> tuple[list, torch.Tensor, torch.Tensor]:
    evidence = model.leaf.evidence(x, ~x.isnan())
    v = torch.empty(model.leaf.num_nodes, 3, len(x), dtype=torch.float64)
    m = torch.empty(model.leaf.num_nodes, len(x), dtype=torch.float64)
    with torch.no_grad():
        model.leaf.propagate_(evidence, v, m)
    return evidence, v, m


@pytest.mark.parametrize("small", [False, True], ids=["whole", "in blocks"])
@pytest.mark.parametrize("offset", [0.0, 1e6, 1.7e9, -1e13])
def test_values(offset: float, small: bool, monkeypatch):
    if small:
        limit(monkeypatch, "block")
    model, x = far_model(offset)
    _, v, m = run(model, x)
    expected = Oracle(model).log_values(x)
    for leaf in range(model.leaf.num_nodes):
        close((v[leaf].log() + m[leaf]).T, expected["body", leaf], rtol=1e-9, atol=1e-6)
    # By θ and A, too, which are what gradients are asked for.
    natural = [block.natural() for block in model.leaf.leaf_blocks]
    again_v, again_m = torch.empty_like(v), torch.empty_like(m)
    with torch.no_grad():
        model.leaf.propagate_(model.leaf.evidence(x, ~x.isnan()), again_v, again_m, False, natural)
    # Means as quotients of θ are right to their last digit, which is 2e-3 at 1e13.
    atol = 1e-6 + 4e-15 * abs(offset)
    close(again_v.log() + again_m.unsqueeze(1), v.log() + m.unsqueeze(1), rtol=1e-9, atol=atol)


def test_impossible_values_stay_impossible():
    model, x = far_model(1.7e9)
    x[5, 2] = math.inf
    x[6, 2] = 1e31
    _, _, m = run(model, x)
    with_it = [n for n, r in enumerate(model.graph.leaves) if 2 in model.graph.variables(r)]
    assert (m[with_it][:, 5:7] == -math.inf).all()
    assert m[:, 7].isfinite().all()


@pytest.mark.parametrize("small", [False, True], ids=["whole", "in blocks"])
@pytest.mark.parametrize("offset", [0.0, 1e6, 1.7e9])
def test_statistics(offset: float, small: bool, monkeypatch):
    if small:
        limit(monkeypatch, "block")
    model, x = far_model(offset)
    evidence, v, _ = run(model, x)
    flow = torch.rand(v.shape, generator=torch.manual_seed(0), dtype=torch.float64)
    found = model.leaf.statistics(evidence, flow)
    model.leaf.statistics(evidence, flow, found)
    for block, statistic in zip(model.leaf.leaf_blocks, found, strict=True):
        assert statistic.origin is not None
        assert torch.equal(statistic.origin, block.stored[..., 0].detach())
        size = block.columns.shape[1]
        for pair in range(block.columns.numel()):
            column = int(block.columns[pair // size, pair % size])
            seen = ~x[:, column].isnan()
            p = 2 * flow[int(block.leaves[pair // size])][:, seen]
            away = x[seen, column] - statistic.origin[:, pair, None]
            close(statistic.total[:, pair], p.sum(1))
            close(statistic.sums[:, pair, 0], (p * away).sum(1), rtol=1e-6, atol=1e-6)
            close(statistic.sums[:, pair, 1], (p * away * away).sum(1), rtol=1e-6, atol=1e-6)


def test_data_in_their_own_units_take_the_product():
    """The fast way is the usual one: differences are for what it would get wrong."""
    x = 1.7e9 + torch.randn(200, 6, generator=torch.manual_seed(0), dtype=torch.float64)
    model = einet.Einet(graph_of(1, 3, 2), einet.Gaussian(), 2, dtype=torch.float64)
    differences = patch.object(
        leaf_centred.CentredKernel, "by_differences", side_effect=RuntimeError
    )
    with differences, patch.object(leaf_centred, "_pieces", side_effect=RuntimeError):
        model.initialize(x)
        for _ in range(3):
            model.em_step(x)
    with differences, pytest.raises(RuntimeError):
        einet.Einet(graph_of(1, 3, 2), einet.Gaussian(), 2).log_prob(x)
    assert issubclass(leaf_centred.CentredKernel, ProductKernel)
