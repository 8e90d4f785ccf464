"""Sums over leaf densities, one leaf after the other."""

from __future__ import annotations

import pytest
import torch

import einet
from einet.data.batch import as_batch
from einet.layers.expectation import expectation, input_gradient
from tests.oracle import CONTINUOUS, close, random_model, random_rows

GRAPH = einet.random_trees(4, depth=2, replicas=3, seed=1)


def flow_of(model: einet.Einet, rows: int) -> torch.Tensor:
    shape = (model.leaf.num_nodes, model.num_leaves, rows)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("some", [False, True])
def test_expectation(some: bool):
    model = random_model(GRAPH, [einet.Gaussian(), einet.Bernoulli()] * 2, 3)
    flow = flow_of(model, 5)
    chosen = model.leaf.leaf_blocks[: 1 if some else None]
    of = {block: torch.rand(block.stored.shape[:2]).double() for block in chosen}
    wanted = torch.zeros(4, 5, dtype=torch.float64)
    for block in chosen:
        n, s = block.columns.shape
        for leaf in range(n):
            for position in range(s):
                variable = block.group.variables[block.columns[leaf, position]]
                numbers = of[block][:, leaf * s + position]
                wanted[variable] += numbers @ flow[block.leaves[leaf]]
    close(expectation(model.leaf, flow, of), wanted)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_input_gradient(name: str):
    """For weights of any sign on the leaves, which need not come from a circuit."""
    model = random_model(GRAPH, CONTINUOUS[name], 2)
    x = random_rows(model, 3, missing=0.3)
    flow = flow_of(model, 3)
    natural = [block.natural() for block in model.leaf.leaf_blocks]
    found = input_gradient(model.leaf, flow, as_batch(x, 4), natural)
    rows = x.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for block in model.leaf.leaf_blocks:
        n, s = block.columns.shape
        for leaf in range(n):
            for position in range(s):
                column = block.columns[leaf, position]
                cells = rows[:, block.group.variables[column]]
                known = ~cells.isnan()
                stored = block.stored[:, leaf * s + position].unsqueeze(1)
                log_f = block.group.family.at(column).log_prob(cells[known], stored)
                total = total + (log_f * flow[block.leaves[leaf]][:, known]).sum()
    total.backward()
    close(found, rows.grad.nan_to_num())  # type: ignore[union-attr]
    assert (found[x.isnan()] == 0).all()
