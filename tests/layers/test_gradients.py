"""Gradients of the layers, and the expected statistics of eq. (6) that they are."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call

import einet
from einet import RegionGraph
from einet.data.batch import as_batch
from einet.engine import autograd
from tests.oracle import CONTINUOUS, DISCRETE, Oracle, close, random_model, random_rows, tracked
from tests.structures.strategies import region_graphs

FAMILIES = DISCRETE | CONTINUOUS


def tangled() -> RegionGraph:
    """n-ary partitions, a shared region, several partitions of one region, leaves of two sizes."""
    builder = einet.RegionGraphBuilder(5)
    a, b, c, d, e = (builder.leaf([variable]) for variable in range(5))
    abc = builder.region([0, 1, 2])
    builder.partition([a, b, c], region=abc)
    builder.partition([builder.leaf([0, 2]), b], region=abc)
    root = builder.region(range(5))
    builder.partition([abc, d, e], region=root)
    builder.partition([abc, builder.leaf([3, 4])], region=root)
    builder.partition([builder.leaf([0, 1, 2, 3]), e], region=root)
    return builder.build()


GRAPHS = {
    "tangled": tangled(),
    "random trees": einet.random_trees(5, depth=2, replicas=2, seed=1),
    "Poon–Domingos": einet.poon_domingos((2, 3), delta=1),
    "one leaf": RegionGraph(2, [0b11], []),
}
every_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())


@every_graph
@pytest.mark.parametrize("num_classes", [1, 2])
@pytest.mark.parametrize("sums", ["einsum", "linear"])
def test_gradcheck_of_the_circuit(graph: RegionGraph, num_classes: int, sums: str):
    num_sums = 2 if sums == "einsum" else 3
    options = {"num_leaves": 3, "num_classes": num_classes, "sums": sums}
    model = random_model(graph, einet.Bernoulli(), num_sums, **options)
    batch = as_batch(random_rows(model, 3), graph.num_variables)
    weights = [weight.detach().clone().requires_grad_() for weight in model.circuit.weights]

    def run(*weights: Tensor) -> Tensor:
        return autograd.class_roots(model, batch, weights)

    assert gradcheck(run, tuple(weights), fast_mode=True)


def natural_of(model: einet.Einet) -> tuple[Tensor, ...]:
    """θ and A of every block one after the other, as if they did not depend on each other."""
    return tuple(
        tensor.detach().clone().requires_grad_()
        for block in model.leaf.leaf_blocks
        for tensor in block.natural()
    )


def pairs(natural: tuple[Tensor, ...]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(natural[::2], natural[1::2], strict=True))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_gradcheck_of_the_leaves(family: einet.ExponentialFamily):
    model = random_model(tangled(), family, 2)
    batch = as_batch(random_rows(model, 3, missing=0.2), 5)

    def run(*natural: Tensor) -> Tensor:
        return autograd.class_roots(model, batch, natural=pairs(natural))

    assert gradcheck(run, natural_of(model), fast_mode=True)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_gradcheck_of_the_model(family: einet.ExponentialFamily):
    model = random_model(einet.random_trees(3, depth=1, replicas=2), family, 2, num_classes=2)
    x = random_rows(model, 3, missing=0.2)
    names = [name for name, _ in model.named_parameters()]
    parameters = tuple(p.detach().clone().requires_grad_() for p in model.parameters())

    def run(*tensors: Tensor) -> Tensor:
        return functional_call(model, dict(zip(names, tensors, strict=True)), (x,))

    assert gradcheck(run, parameters)


# -- equation (3) ----------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    graph=region_graphs(max_variables=5, max_children=4),
    num_leaves=st.integers(1, 3),
    num_classes=st.sampled_from([1, 3]),
    with_labels=st.booleans(),
    sums=st.sampled_from(["einsum", "linear"]),
    seed=st.integers(0, 99),
)
def test_autodiff_gives_expected_statistics(
    graph: RegionGraph, num_leaves: int, num_classes: int, with_labels: bool, sums: str, seed: int
):
    family = list(DISCRETE.values())[seed % 3]
    num_sums = 2 if sums == "einsum" else num_leaves
    options = {"num_leaves": num_leaves, "num_classes": num_classes, "sums": sums}
    model = random_model(graph, family, num_sums, seed=seed, **options)
    x = random_rows(model, 4, seed)
    labels = [0, -1, num_classes - 1, -1] if with_labels else None
    expected = Oracle(model).statistics(x, labels)

    found = model.e_step(x, labels=labels)
    likelihood = tracked(model).log_prob(x, labels=labels)
    close(found.log_likelihood, likelihood.sum())
    close(found.rows, 4.0)
    close(found.classes, expected.classes)
    likelihood.sum().backward()
    for n, by_e_step, weight in zip(
        expected.weights, found.weights, model.circuit.weights, strict=True
    ):
        close(by_e_step, n)
        close(weight.grad, n)
    for block, statistic in zip(model.leaf.leaf_blocks, found.leaves, strict=True):
        size = block.columns.shape[1]
        for n, leaf in enumerate(block.leaves.tolist()):
            for s, column in enumerate(block.columns[n]):
                values = x[:, block.group.variables[column]]
                seen = ~values.isnan()
                p = expected.leaves[leaf][seen.numpy()]
                T = block.group.family.at(column).T(values[seen]).numpy()
                close(statistic.total[:, n * size + s], p.sum(0))
                close(statistic.weighted[:, n * size + s], p.T @ T)


@every_graph
@pytest.mark.parametrize("sums", ["einsum", "linear"])
def test_leaf_posteriors_by_finite_differences(graph: RegionGraph, sums: str):
    model = random_model(graph, einet.Categorical(3), 2, sums=sums)
    x = random_rows(model, 3)
    with torch.no_grad():
        values, root = model.upward(model.given(x).evidence)
        p = model.downward(values, torch.ones_like(root))
        v, m = model.leaf.values(x, ~x.isnan())
    close(p.permute(0, 2, 1), Oracle(model).statistics(x).leaves)
    step = 1e-5
    for leaf, k in np.ndindex(v.shape[0], v.shape[1]):
        change = torch.ones_like(v)
        change[leaf, k] = np.exp(step)
        more, less = (model.circuit.root_from(v * by, m) for by in (change, 1 / change))
        close(p[leaf, k], (more - less)[0] / (2 * step), atol=1e-8)


def test_gradients_of_theta_and_A_are_sums_over_rows():
    """Sec. 3.5: φ = −∂θ/∂A for every family, with θ and A as separate tensors."""
    families = list(FAMILIES.values())
    model = random_model(einet.random_trees(8, depth=2, replicas=3), families, 3)
    batch = as_batch(random_rows(model, 6), 8)
    natural = natural_of(model)
    log_prob = autograd.class_roots(model, batch, natural=pairs(natural))
    gradients = torch.autograd.grad(log_prob.sum(), natural)
    statistics = model.e_step(batch).leaves
    for (theta, A), statistic in zip(pairs(gradients), statistics, strict=True):
        close(theta, statistic.weighted)
        close(A, -statistic.total)


def test_rows_count_as_often_as_their_weight():
    model = random_model(tangled(), einet.Binomial(3), 2, num_classes=2)
    x = random_rows(model, 3)
    weighted = model.e_step(x, weights=[2.0, 0.0, 3.0])
    repeated = model.e_step(x[[0, 0, 2, 2, 2]])
    in_two_steps = model.e_step(x[[0, 0]], into=model.e_step(x[[2, 2, 2]]))
    for some, others, more in zip(
        weighted.tensors(), repeated.tensors(), in_two_steps.tensors(), strict=True
    ):
        close(some, others)
        close(more, others)
