"""Chow–Liu trees: the tree against scipy's, the graph against its definition."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from torch import Tensor

import einet
from einet.data.batch import as_batch
from einet.structures import RegionGraph, chow_liu, mutual_information
from einet.structures.chow_liu import central_root, maximum_spanning_tree


def rows_of(seed: int, rows: int, variables: int, states: int = 2) -> np.ndarray:
    """Data with dependencies, ties and constant columns."""
    generator = np.random.default_rng(seed)
    x = generator.integers(0, states, (rows, variables))
    for v in range(1, variables):
        copied = generator.random(rows) < generator.choice([0.0, 0.5, 0.9, 1.0])
        x[copied, v] = x[copied, generator.integers(v)]
    x[:, generator.random(variables) < 0.1] = 0
    return x


def chain(rows: int, variables: int, order: list[int], seed: int = 0) -> Tensor:
    """Each variable, in this order, is the one before it but for one row in ten."""
    flips = torch.rand(rows, variables, generator=torch.manual_seed(seed)) < 0.1
    flips[:, 0] = torch.rand(rows, generator=torch.manual_seed(seed + 1)) < 0.5
    x = torch.empty(rows, variables, dtype=torch.uint8)
    x[:, order] = (flips.cumsum(1) % 2).to(torch.uint8)
    return x


def edges_of(graph: RegionGraph) -> list[set[tuple[int, int]]]:
    """The edges of each tree, read off its regions: a variable and those right below it."""
    head = {}
    for region, children in graph.partitions:
        (variable,) = graph.variables(children[0])
        if region != graph.root:
            head[region] = variable
    trees = []

    def collect(number: int, edges: set[tuple[int, int]]) -> None:
        children = graph.partitions[number].children
        (variable,) = graph.variables(children[0])
        for child in children[1:]:
            below = head[child] if child in head else graph.variables(child)[0]
            edges.add((min(variable, below), max(variable, below)))
            for deeper in graph.partitions_of(child):
                collect(deeper, edges)

    for number in graph.partitions_of(graph.root):
        trees.append(set())
        collect(number, trees[-1])
    return trees


def depth(neighbours: list[list[int]], root: int) -> int:
    matrix = np.zeros((len(neighbours),) * 2)
    for node, others in enumerate(neighbours):
        matrix[node, others] = 1
    order, parent = breadth_first_order(matrix, root, directed=False)
    level = np.zeros(len(neighbours), dtype=int)
    for node in order[1:]:
        level[node] = level[parent[node]] + 1
    return int(level.max())


def random_tree(seed: int, count: int) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    weight = generator.random((count, count))
    return maximum_spanning_tree(weight + weight.T)


@given(st.integers(1, 14), st.integers(0, 2**31), st.booleans())
def test_the_tree_is_as_heavy_as_any(count: int, seed: int, ties: bool):
    generator = np.random.default_rng(seed)
    weight = generator.integers(0, 3, (count, count)) if ties else generator.random((count, count))
    weight = (weight + weight.T).astype(float)
    neighbours = maximum_spanning_tree(weight)
    edges = [(u, v) for u, others in enumerate(neighbours) for v in others if u < v]
    assert all(u in neighbours[v] for u, others in enumerate(neighbours) for v in others)
    assert len(edges) == count - 1
    assert len(central_root(neighbours) * [0]) < count  # it ends: there is no cycle
    # scipy takes zeros for missing edges, hence the shift; it counts the same for all trees.
    reference = minimum_spanning_tree(10 - weight)
    found = sum(10 - weight[edge] for edge in edges)
    assert found == pytest.approx(reference.sum())
    if not ties:
        pairs = zip(*reference.nonzero(), strict=True)
        assert {(min(u, v), max(u, v)) for u, v in pairs} == set(edges)


@given(st.integers(1, 25), st.integers(0, 2**31))
def test_the_root_makes_the_tree_as_shallow_as_can_be(count: int, seed: int):
    neighbours = random_tree(seed, count)
    depths = [depth(neighbours, root) for root in range(count)]
    assert depths[central_root(neighbours)] == min(depths)


@given(
    st.integers(1, 30), st.integers(1, 9), st.integers(1, 3), st.integers(1, 3),
    st.integers(0, 2**31),
)  # fmt: skip
def test_the_graph_is_a_hidden_tree(rows: int, variables: int, states: int, trees: int, seed: int):
    x = rows_of(seed, rows, variables, states)
    trees = trees if variables > 1 else 1
    graph = chow_liu(x, trees=trees, seed=seed)  # which checks itself
    assert graph.root == 0
    assert graph.scopes[0] == (1 << variables) - 1
    assert len(graph.leaves) == variables * trees
    assert all(len(graph.variables(leaf)) == 1 for leaf in graph.leaves if variables > 1)
    for region in set(range(1, len(graph.scopes))) - set(graph.leaves):
        assert len(graph.partitions_of(region)) == 1
    children = [child for partition in graph.partitions for child in partition.children]
    assert sorted(children) == list(range(1, len(graph.scopes)))  # nothing is shared
    for _, members in graph.partitions:
        assert members[0] in graph.leaves
    if variables == 1:
        assert graph == RegionGraph(1, [1], [])
        return
    found = edges_of(graph)
    information = mutual_information(x).numpy().round(12)
    neighbours = maximum_spanning_tree(information)
    assert found[0] == {(u, v) for u, others in enumerate(neighbours) for v in others if u < v}
    assert all(len(edges) == variables - 1 for edges in found)
    if trees == 1:
        assert len(graph.layers()) == 1 + min(depth(neighbours, v) for v in range(variables))


def test_two_variables():
    graph = chow_liu([[0, 1], [1, 0]])
    assert graph == RegionGraph(2, [0b11, 0b01, 0b10], [(0, (1, 2))])


def test_recovers_a_chain():
    order = [3, 0, 5, 2, 6, 1, 4]
    graph = chow_liu(chain(2000, 7, order))
    expected = {(min(u, v), max(u, v)) for u, v in pairwise(order)}
    assert edges_of(graph) == [expected]
    assert graph.variables(graph.partitions[0].children[0]) == (2,)  # the middle of the chain
    assert len(graph.layers()) == 4


def test_recovers_a_star_in_one_partition():
    generator = torch.manual_seed(0)
    centre = torch.rand(2000, 1, generator=generator) < 0.5
    x = centre ^ (torch.rand(2000, 8, generator=generator) < 0.15)
    x[:, 5:6] = centre
    graph = chow_liu(x)
    assert len(graph.partitions) == 1
    assert [graph.variables(child) for child in graph.partitions[0].children] == [
        (variable,) for variable in (5, 0, 1, 2, 3, 4, 6, 7)
    ]


def test_variables_that_tell_nothing_still_join():
    graph = chow_liu(torch.zeros(10, 6))
    assert len(graph.leaves) == 6
    assert chow_liu(torch.full((10, 6), torch.nan), smoothing=0.0) == graph


def test_missing_cells_and_weights_reach_the_counts():
    x = chain(500, 5, [0, 1, 2, 3, 4]).float()
    noise = torch.randint(2, (500, 5), generator=torch.manual_seed(9)).float()
    both = torch.cat([x, noise])
    known = torch.arange(1000).unsqueeze(-1).expand(-1, 5) < 500
    expected = chow_liu(x)
    assert chow_liu(both, known) == expected
    assert chow_liu(torch.where(known, both, torch.nan)) == expected
    assert chow_liu(both, weights=known[:, 0].double()) == expected
    assert chow_liu(as_batch(both, 5, weights=known[:, 0].double())) == expected


def test_further_trees_come_from_samples_of_the_rows():
    x = rows_of(0, 60, 12)
    one, three, five = (chow_liu(x, trees=trees, seed=7) for trees in (1, 3, 5))
    for few, many in ((one, three), (three, five)):
        assert many.scopes[: len(few.scopes)] == few.scopes
        assert many.partitions[: len(few.partitions)] == few.partitions
    assert chow_liu(x, trees=3, seed=7) == three
    assert chow_liu(x, trees=3, seed=8) != three
    assert len(edges_of(five)) == 5
    assert len({frozenset(edges) for edges in edges_of(five)}) > 1
    batch = as_batch(x, 12, weights=np.ones(60))
    assert chow_liu(batch, trees=3, seed=7) == three
    assert chow_liu(x, weights=np.ones(60), trees=3, seed=7) == three


def test_rows_without_weight_are_never_drawn():
    x = chain(400, 5, [0, 1, 2, 3, 4]).float()
    x[200:] = torch.randint(2, (200, 5), generator=torch.manual_seed(9)).float()
    graph = chow_liu(x, weights=(torch.arange(400) < 200).double(), trees=4)
    assert all(edges == {(0, 1), (1, 2), (2, 3), (3, 4)} for edges in edges_of(graph))


@pytest.mark.parametrize("trees", [1, 3])
def test_continuous_data_go_by_their_correlations(trees: int):
    order = [3, 0, 5, 2, 6, 1, 4]
    x = torch.empty(3000, 7, dtype=torch.float64)
    x[:, order] = torch.randn(3000, 7, generator=torch.manual_seed(0)).double().cumsum(1)
    x = 1e3 * x - 5
    x[torch.rand(x.shape, generator=torch.manual_seed(1)) < 0.1] = torch.nan
    graph = chow_liu(x, information="gaussian", trees=trees)
    expected = {(min(u, v), max(u, v)) for u, v in pairwise(order)}
    assert edges_of(graph) == [expected] * trees
    model = einet.Einet(graph, einet.Gaussian(), num_sums=4, sums="linear")
    history = einet.fit(model, x, epochs=3, progress=False)
    assert history.train[-1] > history.train[0]


def grey_chain(rows: int, order: list[int], seed: int = 0) -> Tensor:
    """Each of 256 grey values, in this order, is near the one before it."""
    steps = torch.randn(rows, len(order), generator=torch.manual_seed(seed)) * 30
    steps[:, 0] *= 2
    x = torch.empty(rows, len(order), dtype=torch.uint8)
    x[:, order] = (steps.cumsum(1) + 128).clamp(0, 255).to(torch.uint8)
    return x


def test_grey_values_are_compared_by_levels():
    order = [3, 0, 5, 2, 6, 1, 4]
    expected = {(min(u, v), max(u, v)) for u, v in pairwise(order)}
    x = grey_chain(1500, order)
    assert edges_of(chow_liu(x)) == [expected]
    assert chow_liu(x) == chow_liu(x, levels=16) == chow_liu(x, levels="auto")
    assert edges_of(chow_liu(x, levels=8, trees=3)) == [expected] * 3
    # The same order of other numbers, in the same levels.
    assert chow_liu(x.double().mul(0.3).exp(), levels=16) == chow_liu(x, levels=16)
    # All states: 65,536 cells of a table for 1,500 rows are mostly smoothing.
    neighbours = maximum_spanning_tree(mutual_information(x).numpy().round(12))
    all_states = {(u, v) for u, others in enumerate(neighbours) for v in others if u < v}
    assert edges_of(chow_liu(x, levels=None)) == [all_states]


@pytest.mark.parametrize("sums", ["einsum", "linear"])
@pytest.mark.parametrize("trees", [1, 3])
def test_an_einet_over_it_sums_to_one(trees: int, sums: str):
    x = rows_of(3, 50, 6)
    model = einet.Einet(chow_liu(x, trees=trees), einet.Bernoulli(), num_sums=3, sums=sums)
    states = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 6)

    def total() -> float:
        with torch.no_grad():
            return float(model.log_prob(states).double().exp().sum())

    assert total() == pytest.approx(1, abs=1e-5)
    history = einet.fit(model, x, epochs=5, batch_size=25, progress=False)
    assert history.train[-1] > history.train[0]
    assert total() == pytest.approx(1, abs=1e-5)


def test_arguments():
    x = torch.zeros(5, 3)
    with pytest.raises(ValueError, match="trees must be an integer >= .*, got 0"):
        chow_liu(x, trees=0)
    with pytest.raises(ValueError, match="seed must be an integer >= .*, got -1"):
        chow_liu(x, seed=-1)
    with pytest.raises(ValueError, match="trees must be 1 for a single variable, got 2"):
        chow_liu(x[:, :1], trees=2)
    with pytest.raises(ValueError, match="data must hold whole numbers .* information="):
        chow_liu(torch.randn(5, 3))
    with pytest.raises(
        ValueError, match='levels must be "auto" with information="gaussian", got 8'
    ):
        chow_liu(x, information="gaussian", levels=8)
    with pytest.raises(ValueError, match="information must be 'discrete' or 'gaussian', got 'x'"):
        chow_liu(x, information="x")


@pytest.mark.gpu
@pytest.mark.parametrize("information", ["discrete", "gaussian"])
def test_a_gpu_finds_the_same_trees(information: str):
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(4, (300, 20), generator=generator).cumsum(1) % 16
    known = torch.rand(x.shape, generator=generator) < 0.9
    options = {"information": information, "trees": 3, "seed": 1}
    for observed in (None, known):
        on_gpu = None if observed is None else observed.cuda()
        assert chow_liu(x.cuda(), on_gpu, **options) == chow_liu(x, observed, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("levels", [None, "auto", 5, 100])
def test_a_gpu_counts_the_same(levels: int | str | None):
    x = grey_chain(20_000, list(range(21)))
    known = torch.rand(x.shape, generator=torch.manual_seed(1)) < 0.9
    weights = torch.rand(len(x), generator=torch.manual_seed(2), dtype=torch.float64)
    for observed in (None, known):
        for of_rows in (None, weights):
            here, there = (
                mutual_information(
                    x.to(device),
                    None if observed is None else observed.to(device),
                    weights=None if of_rows is None else of_rows.to(device),
                    levels=levels,
                )
                for device in ("cpu", "cuda")
            )
            torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-12)
