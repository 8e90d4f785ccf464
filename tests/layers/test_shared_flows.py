"""Flows of trees that are kept once for each sum, in the place of leaf values."""

from __future__ import annotations

import pytest
import torch

import einet
from einet.data.batch import Batch
from einet.layers.leaf_flow import LeafFlow
from einet.layers.tree import LinearTree
from tests.kernels.triton.leaf_check import interpreted
from tests.layers.test_tree import BUSHY, CHAIN, hidden_tree
from tests.twins import Twins, engine

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

# So many leaves below few sums that flows fit between the root's own leaves.
ROOMY = hidden_tree([0, 1, 1, 1, 1, 2, 2, 2, 2])


@pytest.mark.parametrize("graph", [CHAIN, BUSHY, ROOMY], ids=["chain", "bushy", "roomy"])
def test_every_leaf_has_a_row(graph: einet.RegionGraph):
    circuit = einet.Einet(graph, einet.Bernoulli(), 3, sums="linear").circuit
    shared, (tree,) = circuit._shared, circuit.trees
    assert isinstance(tree, LinearTree)
    assert shared is not None
    root = circuit.sum_layers[-1].sources()
    for leaf, row in enumerate(shared.leaf_rows.tolist()):
        if row < shared.num_sums:
            first, inner = tree.records[row, :2].tolist()
            assert leaf in tree.walk_children[first:inner].tolist()
        else:
            assert root[row - shared.num_sums] == leaf
    tops = [root[row - shared.num_sums] - tree.first_sum for row in shared.top_rows.tolist()]
    assert tops == tree.tops.tolist()


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (einet.poon_domingos((3, 3), delta=1), {"sums": "linear"}),
        (CHAIN, {}),
        (CHAIN, {"sums": "linear", "num_sums": 70}),
    ],
    ids=["shared regions", "outer products", "wide sums"],
)
def test_other_circuits_keep_the_flow_of_every_node(graph: einet.RegionGraph, options: dict):
    model = einet.Einet(graph, einet.Bernoulli(), **{"num_sums": 3, **options})
    assert model.circuit._shared is None


@interpreted
@pytest.mark.parametrize("graph", [BUSHY, ROOMY], ids=["new memory", "memory of leaves"])
def test_flows_are_those_of_every_leaf(graph: einet.RegionGraph):
    pair = Twins(graph, einet.Categorical(3), 4, "cpu", sums="linear", num_classes=2)
    model = pair.model
    circuit = model.circuit
    batch = Batch(pair.rows(11).float())
    with engine("cpu"), torch.no_grad():
        values = model.fill(batch)
        seed = torch.rand(2, 11, dtype=torch.float64)
        whole = circuit.backpropagate_(circuit.weights, values, seed, None)
        values.top.v[-1].clamp_(min=1e-30)
        flow = circuit.empty_flow(values, consume=True)
        assert set(flow) == {"top", "shared"}
        inside = flow["shared"].untyped_storage().data_ptr() == values.body.v.data_ptr()
        assert inside == (graph is ROOMY)
        flow["top"][-1] = seed / values.top.v[-1]
        found = circuit.flow_down_(circuit.weights, values, flow, None)
    assert isinstance(found, LeafFlow)
    torch.testing.assert_close(found.each(), whole)


@interpreted
def test_steps_in_the_memory_of_leaves():
    pair = Twins(ROOMY, einet.Categorical(3), 4, "cpu", sums="linear")
    x = pair.rows(20)
    for size in (0.4, 1.0):
        pair.step(x, size, weights=torch.linspace(0.0, 2.0, len(x)))
        pair.follow()
    pair.statistics(x, twice=True)
