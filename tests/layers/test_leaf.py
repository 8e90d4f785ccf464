"""How leaves are laid out: parameters for each pair of a leaf and a variable, none to spare."""

import copy

import pytest
import torch

import einet
from einet.engine.initialize import initialize_leaves
from einet.layers import LeafLayer
from tests.oracle import CONTINUOUS, DISCRETE


def test_parameters_live_for_each_leaf_and_variable():
    graph = einet.random_trees(10, depth=2, replicas=3)
    leaf = LeafLayer(graph, einet.Gaussian(), num_entries=4)
    # Each replica covers every variable once.
    assert sum(p.numel() for p in leaf.parameters()) == 3 * 10 * 4 * 2
    seen = []
    for block in leaf.leaf_blocks:
        assert block.stored.shape == (4, block.columns.numel(), 2)
        for leaf_number, columns in zip(block.leaves.tolist(), block.columns.tolist(), strict=True):
            seen.append((leaf_number, tuple(columns)))
    assert sorted(seen) == [(i, graph.variables(r)) for i, r in enumerate(graph.leaves)]


def test_a_block_holds_leaves_of_one_size():
    graph = einet.random_trees(10, depth=2, replicas=3)
    sizes = {len(graph.variables(region)) for region in graph.leaves}
    leaf = LeafLayer(graph, einet.Bernoulli(), 2)
    assert {block.columns.shape[1] for block in leaf.leaf_blocks} == sizes
    assert len(leaf.leaf_blocks) == len(sizes)


def test_variables_of_one_family_share_a_group():
    families = [einet.Categorical(3), einet.Gaussian(), einet.Categorical(3), einet.Gaussian(0.1)]
    leaf = LeafLayer(einet.random_trees(4, 1, 2), families, 2)
    groups = {tuple(group.variables.tolist()) for group in leaf.family_groups}
    assert groups == {(0, 2), (1, 3)}
    gaussian = leaf.family_groups[1].family
    assert gaussian.hyper["min_variance"].isnan().tolist() == [True, False]


def test_each_family_is_a_group_of_its_own():
    families = list((DISCRETE | CONTINUOUS).values())
    leaf = LeafLayer(einet.random_trees(8, 2, 2), families, 2)
    assert [type(group.family) for group in leaf.family_groups] == [type(f) for f in families]


def test_hyperparameters_move_with_the_model():
    model = einet.Einet(einet.random_trees(4, 1, 1), einet.Binomial([1, 2, 3, 4]), 2)
    state = model.state_dict()
    (name,) = [name for name in state if name.endswith(".n")]
    assert state[name].tolist() == [1, 2, 3, 4]
    # They are not rounded when a model is cast, be it when it is made or later.
    for cast in (model.float(), model.double().half(), copy.deepcopy(model).bfloat16()):
        assert cast.state_dict()[name].dtype == torch.float64
        assert cast.leaf.family_groups[0].family.hyper["n"].dtype == torch.float64
    made = einet.Einet(einet.random_trees(4, 1, 1), einet.Gaussian(), 2, dtype=torch.float32)
    made.initialize(torch.tensor([[1.7e9 + 0.25] * 4], dtype=torch.float64))
    (name,) = [name for name in made.state_dict() if name.endswith(".location")]
    assert made.float().state_dict()[name].tolist() == [1.7e9 + 0.25] * 4
    meta = made.to("meta").state_dict()[name]
    assert meta.device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_is_statistics_and_an_update(dtype: torch.dtype):
    families = list((DISCRETE | CONTINUOUS).values())
    first = LeafLayer(einet.random_trees(8, 2, 2), families, 3)
    initialize_leaves(first, None, torch.Generator().manual_seed(0))
    first = first.to(dtype)
    second = copy.deepcopy(first)
    evidence = first.evidence(torch.ones(5, 8, dtype=torch.uint8) * 0.5, None)
    flow = torch.rand(first.num_nodes, 3, 5, dtype=dtype)
    flow[0] = 0
    first.step_(evidence, flow, torch.tensor(0.25))
    statistics = second.statistics(evidence, flow)
    for block, statistic in zip(second.leaf_blocks, statistics, strict=True):
        before = block.stored.detach().clone()
        with torch.no_grad():
            block.update_(statistic, 0.25)
        unreached = statistic.total == 0
        assert before[unreached].equal(block.stored[unreached])
    for mine, other in zip(first.parameters(), second.parameters(), strict=True):
        assert mine.equal(other)


def test_integers_are_taken_as_they_are():
    leaf = einet.Einet(einet.random_trees(4, 1, 2), einet.Binomial(9), 3).leaf
    x = torch.arange(12, dtype=torch.uint8).view(3, 4) % 10
    observed = x != 4
    values = []
    for data in (x, x.double()):
        v, m = torch.full((leaf.num_nodes, 3, 3), 9.0), torch.zeros(leaf.num_nodes, 3).double()
        with torch.no_grad():
            leaf.propagate_(leaf.evidence(data, observed), v, m)
        values.append((v, m))
    assert all(a.equal(b) for a, b in zip(*values, strict=True))
