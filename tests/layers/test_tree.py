"""Trees of linear layers in one launch: which layers they are, and that numbers stay the same."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import einet
from einet.layers import tree
from einet.layers.tree import find_trees
from einet.structures import RegionGraph
from tests.kernels.triton.leaf_check import interpreted
from tests.twins import Twins, engine

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def hidden_tree(parents: list[int]) -> RegionGraph:
    """The hidden tree in which variable i + 1 hangs from ``parents[i]``, an earlier one."""
    num = len(parents) + 1
    below: list[list[int]] = [[] for _ in range(num)]
    for child, parent in enumerate(parents, start=1):
        below[parent].append(child)
    scopes, partitions, region = [], [], {}
    masks = [1 << i for i in range(num)]
    for i in reversed(range(num)):
        masks[i] |= sum(masks[c] for c in below[i])
    for i in range(num):
        region[i] = len(scopes)
        scopes.append(masks[i])
    for i in range(num):
        if below[i]:
            scopes.append(1 << i)
            partitions.append((region[i], (len(scopes) - 1, *(region[c] for c in below[i]))))
    return RegionGraph(num, scopes, partitions)


CHAIN = hidden_tree([0, 1, 2, 3, 4, 5])
SMALL = hidden_tree([0, 1, 2, 1])
BUSHY = hidden_tree([0, 0, 0, 1, 1, 4, 4, 2, 8, 9, 9])
FAMILIES = {
    "table": einet.Categorical(5),
    "gaussian": einet.Gaussian(),
    "binary": einet.Bernoulli(),
}
_ON_CPU = [(CHAIN, 3, "table"), (BUSHY, 5, "binary"), (BUSHY, 3, "gaussian"), (SMALL, 70, "table")]
_ON_GPU = [
    *((BUSHY, K, "table") for K in (1, 3, 10, 16, 64, 100, 128, 200, 256, 300, 512, 1024)),
    *((graph, K, name) for graph in (CHAIN, BUSHY) for K in (5, 130) for name in FAMILIES),
]
on_models = pytest.mark.parametrize(
    ("device", "graph", "num_sums", "family"),
    [
        *(pytest.param("cpu", *case, marks=interpreted) for case in _ON_CPU),
        *(pytest.param("cuda", *case, marks=pytest.mark.gpu) for case in _ON_GPU),
    ],
    ids=lambda value: "" if isinstance(value, RegionGraph) else str(value),
)


def twins(graph: RegionGraph, num_sums: int, family: str, device: str, classes: int = 1) -> Twins:
    result = Twins(graph, FAMILIES[family], num_sums, device, sums="linear", num_classes=classes)
    assert len(result.model.circuit.trees) == 1
    return result


# -- which layers ----------------------------------------------------------------------------------


def test_a_hidden_tree_is_all_layers_but_the_root():
    model = einet.Einet(CHAIN, einet.Bernoulli(), 3, sums="linear")
    (tree,) = find_trees(model.circuit.sum_layers)
    assert tree.slots == slice(0, len(model.circuit.layers) - 1)
    assert tree.parents.tolist() == [1, 2, 3, 4, -1]
    assert tree.order.tolist() == [0, 1, 2, 3, 4]


def test_children_come_before_their_parents():
    model = einet.Einet(BUSHY, einet.Bernoulli(), 3, sums="linear")
    (tree,) = find_trees(model.circuit.sum_layers)
    place = {number: at for at, number in enumerate(tree.order.tolist())}
    parents = tree.parents.tolist()
    assert sorted(place) == list(range(len(parents)))
    assert all(place[c] < place[p] for c, p in enumerate(parents) if p >= 0)


@pytest.mark.parametrize(
    "graph",
    [einet.poon_domingos((3, 3), delta=1), einet.random_trees(4, 1, 2)],
    ids=["shared regions", "one layer"],
)
def test_other_layers_stay_alone(graph: RegionGraph):
    model = einet.Einet(graph, einet.Bernoulli(), 3, sums="linear")
    assert not find_trees(model.circuit.sum_layers)


def test_outer_products_stay_alone():
    model = einet.Einet(CHAIN, einet.Bernoulli(), 3)
    assert not find_trees(model.circuit.sum_layers)


# -- the same numbers ------------------------------------------------------------------------------


@on_models
def test_densities_statistics_and_steps(device, graph, num_sums, family):
    pair = twins(graph, num_sums, family, device)
    x = pair.rows(19 if device == "cpu" else 300)
    pair.densities(x)
    pair.statistics(x, twice=True)
    for size in (0.4, 1.0):
        pair.step(x, size, weights=torch.linspace(0.0, 2.0, len(x)))
        pair.follow()
    pair.densities(x)


@on_models
def test_gradients_and_queries(device, graph, num_sums, family):
    pair = twins(graph, num_sums, family, device, classes=2)
    x = pair.rows(9)
    pair.gradients(x)
    pair.queries(x, pair.exact.sample(9, seed=3))


@interpreted
@settings(max_examples=5)
@given(
    parents=st.lists(st.integers(0, 30), min_size=2, max_size=9),
    num_sums=st.integers(1, 20),
    rows=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_random_trees(parents: list[int], num_sums: int, rows: int, seed: int):
    graph = hidden_tree([parent % (i + 1) for i, parent in enumerate(parents)])
    pair = Twins(graph, einet.Categorical(3), num_sums, "cpu", sums="linear", seed=seed)
    x = pair.rows(rows, seed=seed)
    pair.densities(x)
    pair.step(x, 0.5)


@pytest.mark.parametrize(
    "device",
    [pytest.param("cpu", marks=interpreted), pytest.param("cuda", marks=pytest.mark.gpu)],
)
def test_impossible_rows(device):
    """Values outside of the support reach the root as zeros, and teach nothing."""
    pair = twins(BUSHY, 3, "table", device)
    x = pair.rows(6)
    x[1, 4], x[3, 0] = 7.0, -1.0
    found = pair.densities(x)
    assert (found == -torch.inf).tolist() == [False, True, False, True, False, False]
    pair.step(x)


@pytest.mark.parametrize(
    "device",
    [pytest.param("cpu", marks=interpreted), pytest.param("cuda", marks=pytest.mark.gpu)],
)
def test_a_step_repeats_bit_by_bit(device):
    results = []
    for _ in range(2):
        pair = twins(BUSHY, 6, "table", device)
        x = pair.rows(20)
        with engine(device):
            for _ in range(3):
                pair.model.em_step(pair.on(x), step_size=0.3)
        results.append([p.detach().cpu().clone() for p in pair.model.parameters()])
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


# -- wide sums -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "num_sums", "most_divided"),
    [
        pytest.param("cpu", 20, 16, marks=interpreted),
        pytest.param("cuda", 300, 256, marks=pytest.mark.gpu),
    ],
)
def test_wide_layers_that_are_no_tree(
    device, num_sums, most_divided, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("einet.kernels.triton.linear._MOST_DIVIDED", most_divided)
    graph = einet.poon_domingos((2, 2), delta=1)
    pair = Twins(graph, einet.Bernoulli(), num_sums, device, sums="linear")
    assert not pair.model.circuit.trees
    x = pair.rows(20 if device == "cuda" else 5)
    pair.densities(x)
    pair.statistics(x)
    pair.step(x, 0.5)


@pytest.mark.parametrize(
    "device",
    [pytest.param("cpu", marks=interpreted), pytest.param("cuda", marks=pytest.mark.gpu)],
)
def test_some_rows_of_a_posterior(device):
    """What is kept of a pass is cut to the rows that are asked for."""
    for num_sums in (3, 70):
        pair = twins(CHAIN, num_sums, "binary", device)
        x = pair.rows(9)
        with engine(device):
            whole = pair.model.given(pair.on(x))
            means = whole.mean()
            rows = torch.tensor([1, 4, 7], device=pair.on(x).device)
            torch.testing.assert_close(whole.at(rows).mean(), means[rows])


def test_tasks_come_after_what_they_need():
    from einet.kernels.triton.tree_parts import TreeEdges
    from einet.kernels.triton.wide_parts import backward_order, forward_order

    model = einet.Einet(BUSHY, einet.Bernoulli(), 70, sums="linear")
    (tree,) = find_trees(model.circuit.sum_layers)
    edges: TreeEdges = tree._edges()
    parents = tree.parents.tolist()
    for slots in (1, 2, 7, 1000):
        up = forward_order(edges, 2, 3, slots).tolist()
        assert sorted(up) == list(range(5 * len(parents)))
        place = {task: at for at, task in enumerate(up)}
        for row, parent in enumerate(parents):
            made, added = [[place[5 * row + w] for w in part] for part in ((0, 1), (2, 3, 4))]
            assert max(made) < min(added)
            if parent >= 0:
                assert max(added) < min(place[5 * parent], place[5 * parent + 1])
        down = backward_order(edges, 2, slots).tolist()
        place = {task: at for at, task in enumerate(down)}
        assert sorted(down) == list(range(2 * len(parents)))
        for row, parent in enumerate(parents):
            if parent >= 0:
                assert max(place[2 * parent], place[2 * parent + 1]) < place[2 * row]


def test_what_a_recording_reads_is_kept(monkeypatch: pytest.MonkeyPatch):
    """Places of weights are, however many other tensors come after them."""
    circuit = einet.Einet(CHAIN, einet.Bernoulli(), 3, sums="linear").circuit
    (found,) = circuit.trees
    assert isinstance(found, tree.LinearTree)
    own = [layer.weight.detach() for layer in circuit.sum_layers[found.slots]]
    first = found._weights(own).offsets
    with monkeypatch.context() as recording:
        recording.setattr(tree, "_is_recorded", lambda _: True)
        assert found._weights(own).offsets is first
    others = [[torch.empty_like(each) for each in own] for _ in range(9)]
    for each in others:
        found._weights(each)
    assert found._weights(own).offsets is first
    assert len(found._places) <= 4
