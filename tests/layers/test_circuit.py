"""What a region graph is compiled into."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import einet
from einet import RegionGraph
from einet.layers import Circuit, EinsumLayer, LinearLayer, MixingLayer
from tests.oracle import Mix, Oracle, close, random_model, random_rows
from tests.structures.strategies import region_graphs


class Names:
    """A number for everything that is built alike, however large it is."""

    def __init__(self) -> None:
        self.known: dict[tuple, int] = {}

    def __call__(self, *parts: object) -> int:
        return self.known.setdefault(parts, len(self.known))


def names_in_graph(graph: RegionGraph, name: Names) -> tuple[int, Counter]:
    """The root's name and how often each inner region's occurs, from the graph alone."""
    graph = graph.binarized()
    known = {region: name("leaf", leaf) for leaf, region in enumerate(graph.leaves)}
    found = Counter()
    for region in (region for layer in graph.layers()[1:] for region in layer):
        sums = []
        for partition in graph.partitions_of(region):
            children = [known[child] for child in graph.partitions[partition].children]
            sums.append(name("sum", *sorted(children)))
        known[region] = sums[0] if len(sums) == 1 else name("mix", *sorted(sums))
        found.update([*sums, known[region]] if len(sums) > 1 else sums)
    return known[graph.root], found


def names_in_circuit(oracle: Oracle, name: Names) -> tuple[int, Counter]:
    """The same, from the compiled layers."""
    known = {("body", leaf): name("leaf", leaf) for leaf in range(oracle.num_leaves)}
    for node, inner in oracle.inner.items():
        kind = "mix" if isinstance(inner, Mix) else "sum"
        known[node] = name(kind, *sorted(known[child] for child in inner.children))
    return known[oracle.root], Counter(known[node] for node in oracle.inner)


@given(
    graph=region_graphs(max_variables=6, max_children=4),
    num_sums=st.integers(1, 3),
    num_leaves=st.integers(1, 3),
    num_classes=st.sampled_from([1, 1, 3]),
)
def test_every_partition_has_its_place(
    graph: RegionGraph, num_sums: int, num_leaves: int, num_classes: int
):
    model = random_model(
        graph, einet.Bernoulli(), num_sums, num_leaves=num_leaves, num_classes=num_classes
    )
    oracle, name = Oracle(model), Names()
    if len(graph.leaves) == len(graph.scopes):
        # The root is a leaf: one sum over its entries.
        assert [layer.weight.shape for layer in model.circuit.sum_layers] == [
            (1, num_classes, num_leaves)
        ]
    else:
        assert names_in_circuit(oracle, name) == names_in_graph(graph, name)
    x = random_rows(model, 5, seed=num_sums)
    close(model.class_log_prob(x), oracle.class_log_prob(x))
    # Every sum is a distribution over its children.
    for layer in model.circuit.sum_layers:
        for simplex in layer.simplices(layer.weight):
            close(simplex.sum(-1), torch.ones(simplex.shape[:-1]))
        views = layer.simplices(layer.weight)
        assert layer.from_simplices(views).equal(layer.weight)


def kinds(model: einet.Einet) -> list[str]:
    return [type(layer).__name__ for layer in model.circuit.sum_layers]


def test_one_einsum_layer_for_each_layer_of_the_graph():
    graph = einet.random_trees(16, depth=3, replicas=5)
    model = einet.Einet(graph, einet.Bernoulli(), 3)
    # Only the root has several partitions.
    assert kinds(model) == ["EinsumLayer"] * 3 + ["MixingLayer"]
    assert [layer.num_nodes for layer in model.circuit.sum_layers] == [20, 10, 5, 1]
    assert [layer.weight.shape for layer in model.circuit.sum_layers] == [
        (20, 3, 9), (10, 3, 9), (5, 1, 9), (5, 1),
    ]  # fmt: skip


def test_no_mixing_layer_without_several_partitions():
    model = einet.Einet(einet.random_trees(8, depth=3, replicas=1), einet.Bernoulli(), 2)
    assert kinds(model) == ["EinsumLayer"] * 3


def test_mixing_layers_of_poon_domingos_hold_only_what_is_mixed():
    graph = einet.poon_domingos((4, 4), delta=1)
    model = einet.Einet(graph, einet.Bernoulli(), 2)
    inner = [region for region in range(len(graph.scopes)) if graph.partitions_of(region)]
    several = [region for region in inner if len(graph.partitions_of(region)) > 1]
    layers = model.circuit.sum_layers
    mixing = [layer for layer in layers if isinstance(layer, MixingLayer)]
    einsum = [layer for layer in layers if isinstance(layer, EinsumLayer)]
    assert len(einsum) == len(graph.layers()) - 1
    assert sum(layer.num_nodes for layer in mixing) == len(several)
    assert sum(layer.num_nodes for layer in einsum) == len(graph.partitions)
    edges = sum(len(graph.partitions_of(region)) for region in several)
    assert sum(layer.weight.shape[0] for layer in mixing) == edges


def test_layers_are_split_only_where_entries_differ():
    # The second of three layers holds one sum over a sum and a leaf, and one over two leaves.
    builder = einet.RegionGraphBuilder(5)
    a, b, c, d, e = (builder.leaf([variable]) for variable in range(5))
    abc = builder.partition([builder.partition([a, b]), c])
    builder.partition([abc, builder.partition([d, e])])
    graph = builder.build()
    assert [len(layer) for layer in graph.layers()] == [5, 1, 2, 1]
    for num_leaves, expected in (
        (3, [(1, 3, 3), (2, 3, 3), (1, 3, 3)]),
        (4, [(1, 4, 4), (1, 4, 3), (1, 4, 4), (1, 3, 3)]),
    ):
        model = einet.Einet(graph, einet.Bernoulli(), 3, num_leaves=num_leaves)
        layers = [layer for layer in model.circuit.sum_layers if isinstance(layer, EinsumLayer)]
        found = [(layer.num_nodes, layer.num_left, layer.num_right) for layer in layers]
        assert Counter(found) == Counter(expected)


@pytest.mark.parametrize(
    ("replicas", "K", "count"),
    [(1, 10, 24_340), (10, 10, 243_410), (10, 20, 1_328_810), (10, 40, 9_385_610)],
)
def test_number_of_parameters(replicas: int, K: int, count: int):
    """512 variables, depth 4: 2·K·512·R of Gaussians, and the weights of the sums."""
    graph = einet.random_trees(512, depth=4, replicas=replicas)
    with torch.device("meta"):
        circuit = Circuit(graph, K, K, 1)
    weights = sum(weight.numel() for weight in circuit.weights)
    assert weights + 2 * K * 512 * replicas == count
    if K == 10:
        assert einet.Einet(graph, einet.Gaussian(), K).num_parameters == count


@settings(max_examples=20)
@given(
    graph=region_graphs(max_variables=6, max_children=4),
    num_leaves=st.integers(2, 3),
    linear=st.booleans(),
)
def test_layers_that_a_descent_may_pass_by(graph: RegionGraph, num_leaves: int, linear: bool):
    if linear:
        circuit = Circuit(graph, 2, 2, 1, "linear", graph.leaves[::2])
    else:
        circuit = Circuit(graph, num_leaves, 2, 1)
    offset = {"body": 0, "top": circuit.num_body}
    pending = {circuit.num_body + circuit.num_top - 1}
    for layer, passed_by in zip(reversed(circuit.sum_layers), circuit._passed_by, strict=True):
        begin = layer.start + offset[layer.target]
        mine = {node for node in pending if begin <= node < begin + layer.num_nodes}
        assert passed_by == (mine != pending)
        assert mine
        for node in mine:
            if isinstance(layer, EinsumLayer):
                read = [layer.left[node - begin], layer.right[node - begin]]
            else:
                assert isinstance(layer, LinearLayer | MixingLayer)
                index = layer.children_index.split(layer.counts.tolist())
                read = index[node - begin]
            pending |= {int(child) + offset[layer.source] for child in read if child >= 0}
        pending -= mine
    assert pending == set(range(circuit.num_leaf_nodes))


def test_no_layer_of_random_trees_is_passed_by():
    circuit = einet.Einet(einet.random_trees(32, 3, 4), einet.Bernoulli(), 2).circuit
    assert not any(circuit._passed_by)


@settings(max_examples=10)
@given(graph=region_graphs(max_variables=5))
def test_the_circuit_alone_from_values_at_its_leaves(graph: RegionGraph):
    model = random_model(graph, einet.Categorical(3), 2, num_leaves=3, num_classes=2)
    x = random_rows(model, 4)
    with torch.no_grad():
        v, m = model.leaf.values(x.double(), ~x.isnan())
        close(model.circuit.root_from(v, m).T, Oracle(model).class_log_prob(x))
        # Any scale will do, not only one with a largest entry of 1.
        close(model.circuit.root_from(v / 4, m + math.log(4)).T, Oracle(model).class_log_prob(x))


@pytest.mark.parametrize("sums", ["einsum", "linear"])
@given(graph=region_graphs(max_variables=6, max_children=4), num_leaves=st.integers(1, 3))
@settings(max_examples=30)
def test_what_flows_need_not_find(graph: RegionGraph, num_leaves: int, sums: str):
    """Only where flows are added to do they have to be 0 before."""
    leaves = 2 if sums == "linear" else num_leaves
    model = random_model(graph, einet.Gaussian(), 2, num_leaves=leaves, sums=sums)
    x = torch.randn(5, graph.num_variables, dtype=torch.float64)
    circuit = model.circuit
    expected = model.e_step(x).tensors()
    parents = Counter(
        node for layer in circuit.sum_layers if layer.source == "body" for node in layer.sources()
    )
    is_tree = max(parents.values()) == 1
    assert all(layer.first for layer in circuit.sum_layers) == is_tree
    empty_flow = circuit.empty_flow

    def polluted(values, consume=False):
        return {
            name: flow.fill_(math.nan) if is_tree else flow
            for name, flow in empty_flow(values, consume).items()
        }

    circuit.empty_flow = polluted
    try:
        for found, exact in zip(model.e_step(x).tensors(), expected, strict=True):
            torch.testing.assert_close(found, exact, rtol=0, atol=0)
    finally:
        del circuit.empty_flow
