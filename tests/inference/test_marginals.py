"""Sums over leaves in blocks, against a loop over single leaves."""

import math

import pytest
import torch
from torch import Tensor

import einet
from einet import Einet
from einet.data import Batch, as_batch
from einet.inference import marginals
from einet.layers import LeafLayer
from tests.oracle import CONTINUOUS, DISCRETE, close, random_model, random_rows

FAMILIES = DISCRETE | CONTINUOUS
GRAPHS = {
    # Every variable in several leaves of one block, and in leaves of several blocks.
    "trees": einet.random_trees(7, depth=1, replicas=5, seed=0),
    "grid": einet.poon_domingos((1, 7), delta=2),
}


def by_leaf(leaf: LeafLayer, flow: Tensor, query: Batch) -> Tensor:
    """Σ p_L p(x_d) in log space, one leaf and one variable at a time."""
    total = torch.full((flow.shape[-1], leaf.num_variables), -math.inf, dtype=torch.float64)
    for block in leaf.leaf_blocks:
        n, s = block.columns.shape
        stored = block.stored.detach().double().unflatten(1, (n, s))
        for number, position in torch.cartesian_prod(torch.arange(n), torch.arange(s)).tolist():
            column = block.columns[number, position]
            variable = int(block.group.variables[column])
            x = torch.where(query.mask, query.x.double(), block.group.family.filler)[:, variable]
            family = block.group.family.at(column)
            log_prob = family.log_prob(x.unsqueeze(0), stored[:, number, position].unsqueeze(1))
            p = flow[block.leaves[number]].double()
            mixed = torch.logsumexp(p.log() + log_prob, 0)
            total[:, variable] = torch.logaddexp(total[:, variable], mixed)
    return total


def case(graph: str, name: str) -> tuple[Einet, Tensor, Batch]:
    model = random_model(GRAPHS[graph], FAMILIES[name], 2, num_leaves=3)
    generator = torch.Generator().manual_seed(0)
    flow = torch.rand(model.leaf.num_nodes, 3, 9, generator=generator)
    flow[:, :, 4] = 0
    flow[0] = 0
    x = random_rows(model, 9)
    x[2] = 1e8
    x[3, 1] = -math.inf
    return model, flow, as_batch(x, 7)


@pytest.mark.parametrize("budget", [1 << 20, 1], ids=["at once", "in blocks"])
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_marginals(graph: str, name: str, budget: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(marginals, "block_bytes", lambda device: budget)
    if budget == 1:
        monkeypatch.setattr("einet.kernels.memory._FEWEST_COLUMNS", 2)
    model, flow, query = case(graph, name)
    found = marginals.marginals(model.leaf, flow, query)
    assert not found.isnan().any()
    # No leaf at all.
    assert (found[4] == -math.inf).all()
    close(found, by_leaf(model.leaf, flow, query))


def test_marginals_of_a_mixture_of_types():
    families = [
        einet.Gaussian(), einet.Categorical(3), einet.Binomial(4), einet.Gaussian(),
        einet.Categorical(5), einet.Bernoulli(), einet.Poisson(),
    ]  # fmt: skip
    model = random_model(GRAPHS["trees"], families, 2, num_leaves=3)
    flow = torch.rand(model.leaf.num_nodes, 3, 6)
    query = as_batch(random_rows(model, 6), 7)
    close(marginals.marginals(model.leaf, flow, query), by_leaf(model.leaf, flow, query))
