"""Models with linear sums: what they are compiled into, and what they compute."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import einet
from einet import Einet, RegionGraph
from einet.layers import Circuit, LinearLayer, MixingLayer
from einet.storage.reference import Reference
from tests.layers.test_circuit import Names, names_in_circuit
from tests.oracle import Joint, Oracle, close, random_model, random_rows
from tests.structures.strategies import region_graphs


def star(count: int) -> RegionGraph:
    """One partition with so many leaves."""
    scopes = [1 << variable for variable in range(count)]
    return RegionGraph(count, [*scopes, (1 << count) - 1], [(count, tuple(range(count)))])


def names_in_graph(graph: RegionGraph, name: Names) -> int:
    """The root's name, from the graph alone: leaves of several variables are steep."""
    known = {region: name("leaf", leaf) for leaf, region in enumerate(graph.leaves)}
    for region in (region for layer in graph.layers()[1:] for region in layer):
        sums = []
        for partition in graph.partitions_of(region):
            children = graph.partitions[partition].children
            steep = [c for c in children if c in graph.leaves and len(graph.variables(c)) > 1]
            parts = [
                name("sum", known[c]) if c in steep and len(steep) > 1 else known[c]
                for c in children
            ]
            sums.append(name("sum", *sorted(parts)))
        known[region] = sums[0] if len(sums) == 1 else name("mix", *sorted(sums))
    return known[graph.root]


@given(
    graph=region_graphs(max_variables=6, max_children=6),
    num_sums=st.integers(1, 3),
    num_classes=st.sampled_from([1, 1, 3]),
)
def test_every_partition_has_its_place(graph: RegionGraph, num_sums: int, num_classes: int):
    model = random_model(graph, einet.Bernoulli(), num_sums, num_classes=num_classes, sums="linear")
    oracle, name = Oracle(model), Names()
    layers = model.circuit.sum_layers
    if len(graph.leaves) == len(graph.scopes):
        assert [layer.weight.shape for layer in layers] == [(1, num_classes, num_sums)]
    else:
        assert names_in_circuit(oracle, name)[0] == names_in_graph(graph, name)
        # One layer for each level, and one over steep leaves where there are some.
        linear = [layer for layer in layers if isinstance(layer, LinearLayer)]
        assert len(linear) - (len(graph.layers()) - 1) in (0, 1)
    joint = Joint(model)
    close(joint.density.sum(), 1.0)
    x = random_rows(model, 5, seed=num_sums)
    close(model.class_log_prob(x), oracle.class_log_prob(x))
    close(model.log_prob(x), joint.log_prob(x))
    for layer in layers:
        for simplex in layer.simplices(layer.weight):
            close(simplex.sum(-1), torch.ones(simplex.shape[:-1]))
        assert layer.from_simplices(layer.simplices(layer.weight)).equal(layer.weight)


def test_partitions_of_any_size_share_a_layer():
    # Below the root: partitions of one pair, of three and of two leaves with a shared one.
    scopes = [1 << variable for variable in range(6)]
    graph = RegionGraph(
        6,
        [*scopes, 0b000011, 0b011100, 0b000111, 0b111111],
        [(6, (0, 1)), (7, (2, 3, 4)), (8, (0, 1, 2)), (9, (6, 7, 5)), (9, (8, 3, 4, 5))],
    )
    model = Einet(graph, einet.Bernoulli(), 4, sums="linear")
    below, top, mixing = model.circuit.sum_layers
    assert isinstance(below, LinearLayer)
    assert isinstance(top, LinearLayer)
    assert isinstance(mixing, MixingLayer)
    assert below.counts.tolist() == [3, 3, 2]
    assert top.counts.tolist() == [4, 3]
    assert [layer.weight.shape for layer in (below, top, mixing)] == [(3, 4, 4), (2, 1, 4), (2, 1)]
    assert "L=3, K=4, I=4, children=2-3" in repr(below)


# -- steep leaves ----------------------------------------------------------------------------------


def test_which_leaves_get_a_sum_of_their_own():
    families = [einet.Bernoulli(), einet.Categorical(3), einet.Gaussian(), einet.Gaussian()]
    graph = RegionGraph(4, [1, 2, 4, 8, 0b1001, 15], [(5, (0, 1, 2, 3)), (5, (4, 1, 2))])
    first, *others = Einet(graph, families, 2, sums="linear").circuit.sum_layers
    # Leaves 2, 3 and 4 are steep, and both partitions have two of them.
    assert isinstance(first, LinearLayer)
    assert first.children_index.tolist() == [2, 3, 4]
    assert isinstance(others[0], LinearLayer)
    assert others[0].children_index.tolist() == [0, 1, 5, 6, 7, 1, 5]
    # One steep leaf in a partition does no harm.
    families[3] = einet.Bernoulli()
    graph = RegionGraph(4, [1, 2, 4, 8, 15], [(4, (0, 1, 2, 3))])
    assert len(Einet(graph, families, 2, sums="linear").circuit.sum_layers) == 1


def test_leaves_that_disagree():
    """Each is sure beyond float32 that another entry is right: no product of them is left."""
    for graph in (star(2), einet.random_trees(8, depth=1, replicas=1)):
        model = Einet(graph, einet.Gaussian(), 2, sums="linear", dtype=torch.float32)
        with torch.no_grad():
            for block in model.leaf.leaf_blocks:
                block.stored[0, :, 0], block.stored[1, :, 0] = -10.0, 10.0
                block.stored[..., 1] = 0.01
        x = torch.full((3, graph.num_variables), -10.0)
        x[1:, graph.variables(graph.leaves[1])] = 10.0
        x[2, 0] = -9.0
        expected = Oracle(model).log_prob(x)
        close(model.log_prob(x), expected, rtol=1e-5)
        assert (abs(expected[:2]) < 40).all()
        assert model.em_step(x).isfinite()


def test_many_factors_that_disagree(tmp_path):
    """Sixty of them, each with entries of 1e-30: beyond what a float32, or a float64, can hold."""
    graph = star(60)
    circuit = Circuit(graph, 4, 4, 1, "linear")
    circuit.randomize(torch.Generator().manual_seed(0))
    log_v = -60 * torch.rand(60, 4, 5, generator=torch.Generator().manual_seed(1))
    log_v -= log_v.amax(1, keepdim=True)
    with torch.no_grad():
        found = circuit.root_from(log_v.exp(), torch.zeros(60, 5, dtype=torch.float64))
    weight = circuit.weights[0][0].double().log()
    exact = (weight.unsqueeze(-1) + log_v.double().sum(0)).logsumexp(1)
    assert exact.max() < -750
    close(found, exact, rtol=1e-7)

    family = einet.Bernoulli(min_probability=1e-12)
    model = Einet(graph, family, 4, sums="linear", dtype=torch.float32)
    with torch.no_grad():
        stored = model.leaf.leaf_blocks[0].stored
        draws = torch.rand(stored.shape, generator=torch.Generator().manual_seed(2))
        stored.copy_(torch.where(draws < 0.5, 1e-12, 0.9))
    x = torch.randint(0, 2, (6, 60), generator=torch.Generator().manual_seed(3)).float()
    model.save(tmp_path / "model.einet")
    expected = Reference(tmp_path / "model.einet").log_prob(x)
    assert expected.max() < -150
    close(model.log_prob(x), expected, rtol=1e-5)


# -- learning --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "graph",
    [star(5), einet.random_trees(6, 2, 3), einet.poon_domingos((2, 3), delta=1)],
    ids=["star", "trees", "grid"],
)
def test_em_increases_the_likelihood(graph: RegionGraph):
    x = random_rows(random_model(graph, einet.Categorical(3), 4, seed=5), 40, missing=0.2)
    model = random_model(graph, einet.Categorical(3), 3, sums="linear", num_classes=2)
    found = [float(model.em_step(x)) for _ in range(12)]
    assert all(after > before - 1e-12 for before, after in pairwise(found))
    assert found[-1] > found[0] + 0.1
    close(model.log_normalizer(), 0.0)
    # The same by way of statistics, in one step from the same place.
    other = random_model(graph, einet.Categorical(3), 3, sums="linear", num_classes=2)
    other.m_step(other.e_step(x))
    close(other.log_prob(x).mean(), found[1])


def test_by_gradient():
    model = random_model(star(4), einet.Bernoulli(), 3, sums="linear")
    x = random_rows(model, 30, missing=0.1)
    before = model.log_prob(x).detach().mean()
    with einet.unconstrained(model):
        optimizer = torch.optim.Adam(model.parameters(), 0.05)
        for _ in range(30):
            optimizer.zero_grad()
            (-model.log_prob(x).mean()).backward()
            optimizer.step()
    assert model.log_prob(x).mean() > before + 0.05
    close(model.log_normalizer(), 0.0)


def test_a_hidden_chow_liu_tree():
    generator = torch.Generator().manual_seed(0)
    flips = torch.rand(400, 7, generator=generator) < 0.1
    x = (flips.cumsum(1) % 2).double()[:, torch.randperm(7, generator=generator)]
    model = Einet(einet.chow_liu(x), einet.Bernoulli(), 4, sums="linear", dtype=torch.float64)
    model.initialize(x)
    for _ in range(60):
        last = float(model.em_step(x))
    # Flips of a fair coin, then six of one with p = 0.1.
    assert last > math.log(0.5) + 6 * (0.1 * math.log(0.1) + 0.9 * math.log(0.9)) - 0.1
