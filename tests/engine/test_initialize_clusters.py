"""Starting from clusters of rows."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

import einet
from einet import Einet
from einet.data.batch import as_batch
from einet.engine.initialize_clusters import _trees

GRAPHS = {
    "trees": einet.random_trees(6, depth=2, replicas=2, seed=0),
    "grid": einet.poon_domingos((2, 3), delta=1),
}
FAMILIES = {
    "Bernoulli": einet.Bernoulli(),
    "Categorical": einet.Categorical(3),
    "Gaussian": einet.Gaussian(),
    "Binomial": einet.Binomial(4),
}


def blobs(rows: int = 60, clusters: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of zeros, of ones and so on, each with some cells that are another cluster's."""
    generator = torch.Generator().manual_seed(seed)
    which = torch.arange(rows) % clusters
    odd = torch.rand(rows, 6, generator=generator) < 0.05
    x = torch.where(odd, (which.unsqueeze(1) + 1) % clusters, which.unsqueeze(1).expand(-1, 6))
    return x.float(), which


def total(model: Einet, states: int) -> float:
    cells = torch.tensor(list(itertools.product(range(states), repeat=6)), dtype=torch.float32)
    with torch.no_grad():
        return float(model.log_prob(cells).double().logsumexp(0))


@pytest.mark.parametrize("sums", ["einsum", "linear"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_entries_are_clusters(graph: str, sums: str) -> None:
    """The K rows that are most typical of an entry are those of one cluster."""
    x, which = blobs()
    model = Einet(GRAPHS[graph], einet.Categorical(3), 3, sums=sums).initialize(x, clusters=True)
    start = Einet(GRAPHS[graph], einet.Categorical(3), 3, sums=sums).initialize(x)
    assert model.initialized
    assert model.log_prob(x).mean() > start.log_prob(x).mean()
    assert total(model, 3) == pytest.approx(0, abs=1e-5)
    values, _ = model.upward(as_batch(x, 6))
    for layer in model.circuit.sum_layers:
        if layer.target == "body":
            found = values.body.v[layer.slots, :3].argmax(1)
            # Every node has the same opinion, up to rows that have odd cells in its scope.
            agree = (found[:, :, None] == found[:, None, :]) == (which[:, None] == which[None, :])
            assert agree.float().mean() > 0.85


@pytest.mark.parametrize("family", FAMILIES)
def test_leaves_move_to_the_statistics_of_their_cluster(family: str) -> None:
    x, which = blobs(clusters=2)
    model = Einet(GRAPHS["trees"], FAMILIES[family], 2).initialize(x, clusters=True)
    for block in model.leaf.leaf_blocks:
        expected = block.family.phi_of(block.stored.detach().double())[..., 0]
        T = block.group.family.T(x.double())[..., 0]
        averages = torch.stack([T[which == cluster].mean(0) for cluster in (0, 1)])
        averages = averages[:, block.columns.reshape(-1)]
        # One of the two orders of clusters; a fifth of a leaf is drawn at random.
        order = [(expected - averages[list(p)]).abs().mean() for p in ((0, 1), (1, 0))]
        spread = (averages[0] - averages[1]).abs().mean()
        assert min(order) < 0.3 * spread < max(order)


def test_sums_stay_distributions() -> None:
    x, _ = blobs()
    for sums, (leaves, K) in itertools.product(("einsum", "linear"), ((3, 3), (2, 5), (5, 2))):
        if sums == "linear" and leaves != K:
            continue
        model = Einet(GRAPHS["grid"], einet.Bernoulli(), K, num_leaves=leaves, sums=sums)
        model.initialize(x.clamp(max=1), clusters=True)
        for layer in model.circuit.sum_layers:
            for simplex in layer.simplices(layer.weight.detach()):
                ones = torch.ones(simplex.shape[:-1])
                torch.testing.assert_close(simplex.sum(-1), ones)
                assert (simplex > 0).all()


def test_trees_have_clusters_of_their_own() -> None:
    """As far as they do not share any region but the root."""
    assert len(_trees(GRAPHS["trees"])) == 2
    assert len(_trees(GRAPHS["grid"])) == 1
    assert len(_trees(einet.random_trees(6, depth=0, replicas=1))) == 1
    x = torch.rand(200, 6, generator=torch.Generator().manual_seed(0)).round()
    model = Einet(einet.random_trees(6, depth=1, replicas=3, seed=0), einet.Bernoulli(), 2)
    model.initialize(x, clusters=True)
    p = torch.cat([block.stored.detach() for block in model.leaf.leaf_blocks], 1)[..., 0]
    nodes = torch.cat([b.leaves.repeat_interleave(3) for b in model.leaf.leaf_blocks])
    columns = torch.cat([block.columns.reshape(-1) for block in model.leaf.leaf_blocks])
    each = []
    for tree in _trees(model.graph):
        mine = tree[nodes]
        assert columns[mine].sort().values.equal(torch.arange(6))
        each.append((p[0] - p[1])[mine][columns[mine].argsort()].abs())
    # There is nothing to find in these rows: every clustering finds another thing.
    assert not torch.allclose(each[0], each[1], atol=0.1)


def test_a_seed_decides_all() -> None:
    """Also when called again."""
    x, _ = blobs()
    a, b = (Einet(GRAPHS["trees"], einet.Gaussian(), 4, seed=seed) for seed in (0, 1))
    a.initialize(x, clusters=True, seed=3)
    b.initialize(x, clusters=True, seed=3).initialize(x, clusters=True, seed=3)
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        assert p.equal(q)
    b.initialize(x, clusters=True, seed=4)
    assert not a.circuit.weights[0].equal(b.circuit.weights[0])


def test_missing_cells_and_few_rows() -> None:
    x, _ = blobs(rows=5)
    x[0, 0], x[:, 3] = math.nan, math.nan
    model = Einet(GRAPHS["trees"], einet.Gaussian(), 8)
    model.initialize(x, clusters=True)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert model.log_prob(x).isfinite().all()


def test_of_a_hidden_tree_em_finds_a_better_maximum() -> None:
    """Six copies of one noisy cluster number, a tree of latent variables above them."""
    x, _ = blobs(rows=300, clusters=2, seed=1)
    graph = einet.chow_liu(x.long())
    scores = []
    for clusters in (False, True):
        model = Einet(graph, einet.Bernoulli(), 4, sums="linear").initialize(x, clusters=clusters)
        for _ in range(5):
            model.em_step(x)
        scores.append(float(model.log_prob(x).detach().mean()))
    assert scores[1] > scores[0]


@pytest.mark.gpu
@pytest.mark.parametrize("sums", ["einsum", "linear"])
def test_on_a_gpu(sums: str) -> None:
    """The same start as on a CPU."""
    x, _ = blobs()
    here = Einet(GRAPHS["grid"], einet.Gaussian(), 3, sums=sums)
    there = Einet(GRAPHS["grid"], einet.Gaussian(), 3, sums=sums, device="cuda")
    here.initialize(x, clusters=True)
    there.initialize(x.cuda(), clusters=True)
    for p, q in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(p, q.cpu(), rtol=1e-4, atol=1e-5)
