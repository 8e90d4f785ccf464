"""Whole models on the fused kernels, in float32, beside the torch path in float64."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

import einet
from einet.data import as_batch
from einet.kernels import dispatch
from tests.budgets import limit
from tests.kernels.triton.leaf_check import DEVICES
from tests.oracle import random_rows, tracked
from tests.structures.strategies import region_graphs
from tests.twins import Twins, engine, near

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
on_devices = pytest.mark.parametrize("device", DEVICES)

INF, NAN = math.inf, math.nan
FAMILIES = [
    einet.Gaussian(), einet.Bernoulli(), einet.Categorical(3), einet.Binomial(3), einet.Gamma(),
    einet.Categorical(3),
]  # fmt: skip
GRAPHS = {
    "trees": lambda: einet.random_trees(6, depth=2, replicas=2, seed=0),
    # Its regions have many parents, and many partitions.
    "grid": lambda: einet.poon_domingos((2, 3), delta=1),
}
on_graphs = pytest.mark.parametrize("graph", GRAPHS)


# -- structures ------------------------------------------------------------------------------------


@on_devices
@on_graphs
def test_structures(graph: str, device: str) -> None:
    twins = Twins(GRAPHS[graph](), FAMILIES, 4, device, num_leaves=3, num_classes=2)
    x = twins.rows(7)
    labels = torch.tensor([0, 1, -1, 1, 0, -1, -1])
    weights = torch.tensor([0.0, 1.0, 2.5, 0.5, 1.0, 0.0, 3.0])
    twins.densities(x, labels=labels)
    twins.statistics(x, labels=labels, weights=weights)
    twins.step(x, 1.0, labels=labels, weights=weights)
    twins.follow()
    twins.step(x, torch.tensor(0.1))


# A hidden tree whose root has six children, one of them shared with a second partition.
TREE = einet.RegionGraph(
    8,
    [*(1 << d for d in range(8)), 0b110, 0b1000, 0b11111111, 0b11110001],
    [(8, (1, 2)), (10, (0, 4, 5, 6, 7, 8, 3)), (10, (11, 8, 9)), (11, (0, 4, 5, 6, 7))],
)


@on_devices
def test_linear_sums(device: str) -> None:
    twins = Twins(TREE, [*FAMILIES, *FAMILIES[:2]], 4, device, sums="linear", num_classes=2)
    x = twins.rows(7)
    labels = torch.tensor([0, 1, -1, 1, 0, -1, -1])
    weights = torch.tensor([0.0, 1.0, 2.5, 0.5, 1.0, 0.0, 3.0])
    twins.densities(x, labels=labels)
    twins.statistics(x, labels=labels, weights=weights)
    twins.gradients(x)
    full = random_rows(twins.exact, 7, seed=3, missing=0.0)
    twins.queries(x, full, labels=labels)
    twins.step(x, 1.0, labels=labels, weights=weights)
    twins.follow()
    twins.step(x, torch.tensor(0.1))
    with engine(device), torch.no_grad():
        assert twins.model.given(twins.on(x)).sample(3, seed=0).isfinite().all()
        assert twins.model.given(twins.on(x)).mode().isfinite().all()


@on_devices
def test_linear_sums_of_other_structures(device: str) -> None:
    """Bernoulli leaves are multiplied as they are, Gaussian ones are not."""
    grid, trees = einet.poon_domingos((2, 2), delta=1), einet.random_trees(4, 2, 2)
    for graph, family in ((grid, einet.Bernoulli()), (trees, einet.Gaussian())):
        twins = Twins(graph, family, 3, device, sums="linear")
        x = twins.rows(5)
        twins.densities(x)
        twins.step(x)


@on_devices
def test_linear_sums_far_away(device: str) -> None:
    """Leaves that disagree, each of them sure beyond float32, and many of them."""
    graph = einet.RegionGraph(6, [1, 2, 4, 8, 16, 32, 63], [(6, (0, 1, 2, 3, 4, 5))])
    twins = Twins(graph, einet.Gaussian(), 3, device, sums="linear")
    x = twins.rows(6)
    x[1, 3], x[3, :4], x[4, 5] = 1e6, -1e6, 1e4
    assert twins.densities(x).isfinite().all()
    with engine(device):
        assert twins.model.em_step(twins.on(x), step_size=0.5).isfinite()
    assert all(p.isfinite().all() for p in twins.model.parameters())
    twins.follow()
    assert twins.densities(x).isfinite().all()


@on_devices
@on_graphs
def test_queries(graph: str, device: str) -> None:
    twins = Twins(GRAPHS[graph](), FAMILIES, 3, device, num_leaves=4, num_classes=2)
    full = random_rows(twins.exact, 5, seed=3, missing=0.0)
    twins.queries(twins.rows(5), full, labels=torch.tensor([0, 1, -1, -1, 1]))


@on_devices
@on_graphs
def test_gradients(graph: str, device: str) -> None:
    twins = Twins(GRAPHS[graph](), FAMILIES, 3, device, num_leaves=4, num_classes=2)
    twins.gradients(twins.rows(5))


@on_devices
def test_gradients_can_be_asked_for_again(device: str) -> None:
    """A backward pass writes over flows; it must leave values as they are."""
    twins = Twins(GRAPHS["grid"](), einet.Gaussian(), 3, device)
    with engine(device):
        loss = tracked(twins.model).log_prob(twins.on(twins.rows(5))).sum()
    parameters = list(twins.model.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    second = torch.autograd.grad(loss, parameters)
    assert all(a.equal(b) for a, b in zip(first, second, strict=True))


@on_devices
@settings(max_examples=5)
@given(
    graph=region_graphs(max_variables=5, max_regions=8, max_partitions=2),
    num_sums=st.sampled_from([1, 3]),
    num_leaves=st.sampled_from([1, 3]),
    num_classes=st.sampled_from([1, 2]),
    shift=st.integers(0, 5),
)
def test_random_structures(
    graph: einet.RegionGraph,
    num_sums: int,
    num_leaves: int,
    num_classes: int,
    shift: int,
    device: str,
) -> None:
    families = [FAMILIES[(i + shift) % 6] for i in range(graph.num_variables)]
    twins = Twins(graph, families, num_sums, device, num_leaves=num_leaves, num_classes=num_classes)
    x = twins.rows(4)
    twins.densities(x)
    twins.gradients(x)
    twins.step(x)


@on_devices
def test_several_steps(device: str) -> None:
    """Without a correction on the way: errors do not grow."""
    twins = Twins(GRAPHS["trees"](), einet.Gaussian(), 4, device)
    x = twins.rows(20)
    before = twins.densities(x).sum()
    for number in range(4):
        with engine(device):
            twins.model.em_step(twins.on(x), step_size=0.5 / (1 + number))
        twins.exact.em_step(x, step_size=0.5 / (1 + number))
    twins.parameters(rtol=2e-3)
    twins.follow()
    assert twins.densities(x).sum() > before
    with engine(device):
        assert abs(twins.model.log_normalizer().item()) < 1e-5


@on_devices
@pytest.mark.parametrize("K", [1, 10])
def test_numbers_of_entries(K: int, device: str) -> None:
    twins = Twins(einet.random_trees(4, 2, 2, seed=1), einet.Gaussian(), K, device)
    x = twins.rows(9)
    twins.densities(x)
    twins.statistics(x, twice=True)
    twins.step(x)


@on_devices
@pytest.mark.filterwarnings("ignore:nodes of 257 entries")
@pytest.mark.parametrize(("sums", "leaves"), [(257, 3), (3, 257)])
def test_more_entries_than_fit_a_tile(sums: int, leaves: int, device: str) -> None:
    """They are left to torch, all but leaves on their own."""
    graph = einet.random_trees(4, 2, 1, seed=1)
    twins = Twins(graph, einet.Gaussian(), sums, device, num_leaves=leaves)
    x = twins.rows(4)
    with engine(device):
        batch = as_batch(twins.on(x.float()), 4)
        assert not twins.model.upward(batch)[0].fused
    twins.densities(x)
    twins.statistics(x)
    twins.gradients(x)
    twins.step(x)


@on_devices
def test_the_kernels_are_in_use(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), einet.Gaussian(), 3, device)
    with engine(device):
        batch = as_batch(twins.on(twins.rows(3)), 6)
        assert twins.model.upward(batch)[0].fused
        assert not twins.model.upward(batch, maximise=True)[0].fused
    with dispatch.backend("torch"):
        assert not twins.model.upward(batch)[0].fused


# -- rows ------------------------------------------------------------------------------------------


@on_devices
def test_a_batch_in_pieces(device: str, monkeypatch) -> None:
    limit(monkeypatch, "values")
    twins = Twins(einet.random_trees(4, 1, 2), einet.Gaussian(), 3, device)
    x = twins.rows(70)
    assert len(twins.model.pieces(70)) == 2
    twins.densities(x)
    twins.step(x)


@on_devices
def test_log_likelihoods_in_one_launch(device: str) -> None:
    """What is replayed on a GPU."""
    twins = Twins(GRAPHS["grid"](), FAMILIES, 3, device, num_classes=3)
    x, labels = twins.rows(5), torch.tensor([0, -1, 2, -1, 1])
    batch = as_batch(twins.on(x), 6, labels=twins.on(labels), num_classes=3)
    with engine(device):
        found = twins.model.piece_log_prob(batch)
    assert found.dtype == torch.float64
    near(found.cpu(), twins.exact.log_prob(x, labels=labels).detach(), 1e-5)


@on_devices
def test_impossible_rows_add_nothing(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), FAMILIES, 3, device, num_classes=2)
    x = twins.rows(7)
    x[1, 0], x[3, 1], x[4, 2], x[6, 4] = INF, 0.5, 3.0, -1.0
    good = [0, 2, 5]
    found = twins.densities(x)
    assert (found == -INF).tolist() == [row not in good for row in range(7)]
    with engine(device):
        statistics = twins.model.e_step(twins.on(x))
        without = twins.model.e_step(twins.on(x[good]))
        assert statistics.impossible == 4
        assert statistics.log_likelihood == -INF
        for one, two in zip(statistics.tensors()[3:], without.tensors()[3:], strict=True):
            near(one.double(), two.double(), 1e-5)
        mean = twins.model.em_step(twins.on(x), step_size=0.5)
    assert mean == -INF
    twins.exact.em_step(x[good], step_size=0.5)
    twins.parameters()


@on_devices
def test_a_batch_of_impossible_rows_changes_nothing(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), einet.Bernoulli(), 3, device, num_classes=2)
    before = [p.detach().clone() for p in twins.model.parameters()]
    with engine(device):
        twins.model.em_step(torch.full((3, 6), 0.5, device=device), step_size=1.0)
    after = list(twins.model.parameters())
    assert all(p.isfinite().all() for p in after)
    assert all(a.equal(b) for a, b in zip(before, after, strict=True))


@on_devices
def test_rows_that_count_for_nothing_add_nothing(device: str) -> None:
    """Not even where they hold infinite, impossible or missing values."""
    twins = Twins(GRAPHS["grid"](), [einet.Gaussian(), *[einet.Bernoulli()] * 5], 3, device)
    x = twins.rows(6)
    x[1, 0], x[2, 1], x[4] = INF, 0.5, NAN
    weights = torch.tensor([1.0, 0.0, 0.0, 2.0, 0.0, 1.0])
    with engine(device):
        statistics = twins.model.e_step(twins.on(x), weights=twins.on(weights))
        assert statistics.impossible == 0
        assert statistics.rows == 4
        mean = twins.model.em_step(twins.on(x), weights=twins.on(weights), step_size=0.5)
    kept = [0, 3, 5]
    exact = twins.exact.em_step(x[kept], weights=weights[kept], step_size=0.5)
    near(mean.double().cpu(), exact)
    twins.parameters()


@on_devices
def test_classes_without_rows_keep_their_weights(device: str) -> None:
    twins = Twins(GRAPHS["trees"](), einet.Gaussian(), 3, device, num_classes=2)
    x = twins.rows(5)
    before = copy.deepcopy(twins.model)
    twins.step(x, 0.5, labels=torch.zeros(5, dtype=torch.long))
    layers = zip(twins.model.circuit.sum_layers, before.circuit.sum_layers, strict=True)
    tops = [(layer, old) for layer, old in layers if layer.target == "top"]
    assert tops
    for layer, old in tops:
        assert layer.weight[:, 1].equal(old.weight[:, 1])
        assert not layer.weight[:, 0].equal(old.weight[:, 0])


@on_devices
def test_far_away(device: str) -> None:
    """Log-densities of −1e12, and finite parameters after learning from them."""
    twins = Twins(GRAPHS["trees"](), einet.Gaussian(), 3, device)
    x = twins.rows(6)
    x[1, 3], x[3, :4], x[4, 5] = 1e6, -1e6, 1e4
    found = twins.densities(x)
    assert found[1] < -1e10
    with engine(device):
        statistics = twins.model.e_step(twins.on(x))
        assert all(t.isfinite().all() for t in statistics.tensors())
        assert statistics.impossible == 0
        assert twins.model.em_step(twins.on(x), step_size=0.5).isfinite()
    assert all(p.isfinite().all() for p in twins.model.parameters())
    twins.follow()
    twins.densities(x)


@on_devices
def test_nothing_observed(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), FAMILIES, 3, device, num_classes=2)
    x = torch.full((3, 6), NAN, dtype=torch.float64)
    leaves = [block.stored.detach().clone() for block in twins.model.leaf.leaf_blocks]
    twins.step(x)
    for block, old in zip(twins.model.leaf.leaf_blocks, leaves, strict=True):
        assert block.stored.equal(old)
    assert twins.densities(x).abs().max() < 1e-5


@on_devices
def test_a_mask(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), einet.Categorical(3), 3, device)
    x = random_rows(twins.exact, 5, missing=0.0).long()
    observed = torch.arange(30).view(5, 6) % 3 > 0
    exact = twins.exact.log_prob(x, observed)
    with engine(device), torch.no_grad():
        found = twins.model.log_prob(twins.on(x), twins.on(observed))
        # What lies under a mask is never looked at.
        x[~observed] = 99
        assert twins.model.log_prob(twins.on(x), twins.on(observed)).equal(found)
    near(found.double().cpu(), exact.detach(), 1e-5)


@on_devices
def test_one_row_at_a_time_is_all_at_once(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), einet.Gaussian(), 3, device)
    x = twins.on(twins.rows(3))
    with engine(device), torch.no_grad():
        alone = torch.cat([twins.model.log_prob(row[None]) for row in x])
        torch.testing.assert_close(alone, twins.model.log_prob(x), rtol=1e-6, atol=1e-5)


@on_devices
def test_samples(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), FAMILIES, 3, device, num_classes=2)
    x = twins.rows(4)
    with engine(device), torch.no_grad():
        posterior = twins.model.given(twins.on(x))
        drawn = posterior.sample(3, seed=0)
        assert drawn.isfinite().all()
        assert posterior.mode().isfinite().all()
        assert twins.model.log_prob(twins.model.sample(4, seed=0)).isfinite().all()
    known = ~x.isnan()
    torch.testing.assert_close(drawn[0].cpu()[known].double(), x[known], rtol=1e-6, atol=0)


@on_devices
def test_no_rows(device: str) -> None:
    twins = Twins(GRAPHS["trees"](), FAMILIES, 3, device, num_classes=2)
    nothing = torch.empty(0, 6, device=device)
    with engine(device):
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                assert twins.model.log_prob(nothing).shape == (0,)
                assert twins.model.class_posterior(nothing).shape == (0, 2)
        assert twins.model.e_step(nothing).rows == 0
        with pytest.raises(ValueError, match="x must have at least one row"):
            twins.model.em_step(nothing)


@on_devices
def test_mixtures(device: str) -> None:
    parts = [Twins(GRAPHS["trees"](), einet.Gaussian(), 3, device, seed=s).model for s in (0, 1)]
    model = einet.Mixture(parts, [0.3, 0.7]).to(device)
    exact = copy.deepcopy(model).double().cpu()
    x = random_rows(parts[0], 6, missing=0.3)
    with engine(device):
        with torch.no_grad():
            near(model.log_prob(x.to(device)).double().cpu(), exact.log_prob(x), 1e-5)
        model.em_step(x.to(device), step_size=0.5)
    exact.em_step(x, step_size=0.5)
    for mine, other in zip(model.parameters(), exact.parameters(), strict=True):
        near(mine.detach().double().cpu(), other.detach())
