"""Samples against the exact distribution. Seeds are fixed, so that no test fails by chance."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import einet
from einet import Einet, RegionGraph
from einet.inference.sampling import best, draw
from tests.budgets import limit
from tests.oracle import CONTINUOUS, DISCRETE, NAN, Joint, close, random_model, random_rows

STRUCTURES: dict[str, tuple[RegionGraph, dict]] = {
    "one tree": (einet.random_trees(4, depth=2, replicas=1), {}),
    "three trees": (einet.random_trees(4, depth=2, replicas=3), {"num_leaves": 2}),
    "Poon–Domingos": (einet.poon_domingos((2, 2), delta=1), {}),
    "classes": (einet.random_trees(4, depth=1, replicas=2), {"num_classes": 3}),
    "one leaf": (RegionGraph(4, [0b1111], []), {"num_classes": 2}),
    "linear, a hidden tree": (
        RegionGraph(4, [1, 2, 4, 8, 12, 15], [(4, (2, 3)), (5, (0, 1, 4))]),
        {"sums": "linear", "num_classes": 2},
    ),
    "linear, three trees": (einet.random_trees(4, depth=1, replicas=3), {"sums": "linear"}),
}
every_structure = pytest.mark.parametrize("structure", STRUCTURES)

# Far below what chance produces in a few hundred tests, far above what an error leaves over.
UNLIKELY = 1e-4


def sharp_model(structure: str, family=None) -> Einet:
    graph, options = STRUCTURES[structure]
    kinds = [einet.Bernoulli(), einet.Categorical(3), einet.Binomial(2), einet.Categorical(2)]
    return random_model(graph, kinds if family is None else family, 3, seed=3, **options)


def check_counts(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Pearson's test, with rare states taken together."""
    assert counts[probabilities == 0].sum() == 0
    expected = probabilities * counts.sum()
    rare = expected < 8
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    kept = expected > 0
    if kept.sum() > 1:
        p = stats.chisquare(observed[kept], expected[kept], sum_check=False).pvalue
        assert p > UNLIKELY, (observed, expected)


@every_structure
def test_samples_of_the_model(structure: str):
    model = sharp_model(structure)
    joint = Joint(model)
    x = model.sample(20_000, seed=1)
    assert x.shape == (20_000, 4)
    check_counts(joint.count(x), joint.distribution())


@every_structure
def test_conditional_samples(structure: str):
    """Every row of evidence has its own pattern of missing values."""
    model = sharp_model(structure)
    joint = Joint(model)
    evidence = torch.tensor(
        [
            [1, NAN, NAN, 1],
            [NAN, 2, NAN, NAN],
            [0, NAN, 1, NAN],
            [NAN, NAN, NAN, NAN],
            [1, 0, 2, 0],
        ]
    ).double()
    x = model.given(evidence).sample(8_000, seed=2)
    assert x.shape == (8_000, 5, 4)
    kept = torch.where(evidence.isnan(), x, evidence)
    assert x.equal(kept)
    for row, e in enumerate(evidence):
        check_counts(joint.count(x[:, row]), joint.distribution(e))
    # Rows are independent of each other, and draws of one row of each other.
    for some, others in ((x[:, 1, 0], x[:, 3, 0]), (x[:-1:2, 3, 0], x[1::2, 3, 0])):
        table = np.bincount((2 * some + others).long().numpy(), minlength=4).reshape(2, 2)
        independence: Any = stats.chi2_contingency(table)
        assert independence.pvalue > UNLIKELY


def test_samples_of_a_class():
    model = sharp_model("classes")
    joint = Joint(model)
    evidence = torch.full((3, 4), NAN).double()
    evidence[1, 0] = 1
    for labels in ([0, 1, 2], [-1, -1, 0]):
        x = model.given(evidence, labels=labels).sample(8_000, seed=4)
        for row, label in enumerate(labels):
            check_counts(joint.count(x[:, row]), joint.distribution(evidence[row], label))


def test_poisson_samples():
    model = random_model(einet.random_trees(2, depth=1, replicas=2), einet.Poisson(), 3)
    joint = Joint(model)
    check_counts(joint.count(model.sample(20_000, seed=0)), joint.distribution())


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_samples(name: str):
    """Kolmogorov–Smirnov for each variable, with and without evidence, and the covariance."""
    model = random_model(einet.random_trees(2, depth=1, replicas=2), CONTINUOUS[name], 2, seed=2)
    joint = Joint(model)
    evidence = random_rows(model, 3, seed=1, missing=0.0)
    evidence[0], evidence[1, 0], evidence[2, 1] = NAN, NAN, NAN
    x = model.given(evidence).sample(5_000, seed=5)
    for row, e in enumerate(evidence):
        for variable in e.isnan().nonzero().flatten().tolist():
            density = joint.marginal(variable, e)
            points, weights = joint.points[variable], joint.weights[variable]
            # The rule's weights give the distribution function at the middle of each step.
            steps = np.cumsum(density * weights) - 0.5 * density * weights
            drawn = x[:, row, variable].numpy()
            p = stats.kstest(
                drawn, lambda t, points=points, steps=steps: np.interp(t, points, steps)
            )
            assert p.pvalue > UNLIKELY, (row, variable)
    p = joint.density.sum(-1) * np.outer(*joint.weights)
    outer = (p * np.outer(*joint.points)).sum()
    products = x[:, 0].prod(-1)
    error = (products.mean() - outer) / (products.std() / math.sqrt(len(products)))
    assert abs(error) < 4
    close(x[:, 0].mean(0), model.mean(), atol=5 * float(x[:, 0].std()) / math.sqrt(5_000))


# -- shapes, seeds, means --------------------------------------------------------------------------


def test_shapes_and_types():
    model = Einet(einet.random_trees(4, depth=1, replicas=2), einet.Binomial(3), 2)
    nothing = torch.full((3, 4), NAN)
    assert model.sample(7).shape == (7, 4)
    assert model.sample(0).shape == (0, 4)
    assert model.given(nothing).sample(0).shape == (0, 3, 4)
    assert model.given(nothing[:0]).sample(5).shape == (5, 0, 4)
    assert model.given(nothing).sample(5).dtype == torch.float32
    assert model.given(nothing.double()).sample(5).dtype == torch.float64
    integers = model.given(torch.ones(3, 4).long(), torch.zeros(3, 4, dtype=torch.bool))
    assert integers.sample(5).dtype == torch.float32
    assert not model.sample(5).requires_grad


def test_seeds():
    model = sharp_model("three trees")
    posterior = model.given(random_rows(model, 3))
    assert model.sample(50, seed=1).equal(model.sample(50, seed=1))
    assert not model.sample(50, seed=1).equal(model.sample(50, seed=2))
    assert posterior.sample(50, seed=1).equal(posterior.sample(50, seed=1))
    generator = torch.Generator().manual_seed(1)
    first, second = model.sample(50, seed=generator), model.sample(50, seed=generator)
    assert first.equal(model.sample(50, seed=1))
    assert not first.equal(second)
    torch.manual_seed(5)
    unseeded = model.sample(50)
    state = torch.get_rng_state()
    model.sample(50, seed=1)
    assert torch.get_rng_state().equal(state)
    torch.manual_seed(5)
    assert model.sample(50).equal(unseeded)


def test_many_samples_are_drawn_in_pieces(monkeypatch):
    model = sharp_model("Poon–Domingos")
    limit(monkeypatch, "samples", 3200)
    joint = Joint(model)
    check_counts(joint.count(model.sample(5_000, seed=1)), joint.distribution())


def leaf_means(model: Einet) -> list[set[float]]:
    """The means of all densities of each variable."""
    means: list[set[float]] = [set() for _ in range(model.num_variables)]
    for block in model.leaf.leaf_blocks:
        variables = block.group.variables[block.columns].reshape(-1).tolist()
        for row in block.family.mean(block.stored.detach()):
            for variable, mean in zip(variables, row.tolist(), strict=True):
                means[variable].add(mean)
    return means


@pytest.mark.parametrize("name", [*DISCRETE, *CONTINUOUS])
def test_leaves_at_their_means(name: str):
    family = (DISCRETE | CONTINUOUS)[name]
    # One entry everywhere leaves no choice.
    only = random_model(einet.random_trees(4, depth=2, replicas=1), family, 1)
    fixed = only.sample(3, leaves="mean", seed=0)
    expected = torch.tensor([min(means) for means in leaf_means(only)], dtype=torch.float64)
    if name == "Categorical":
        assert fixed.isnan().all()
        return
    close(fixed, expected.expand(3, 4))
    close(only.mean(), expected)

    model = random_model(einet.random_trees(4, depth=2, replicas=3), family, 3)
    evidence = random_rows(model, 2, missing=0.5)
    x = model.given(evidence).sample(200, leaves="mean", seed=0)
    assert x.equal(model.given(evidence).sample(200, leaves="mean", seed=0))
    assert x.equal(torch.where(evidence.isnan(), x, evidence))
    for variable, means in enumerate(leaf_means(model)):
        missing = evidence[:, variable].isnan()
        assert set(x[:, missing, variable].flatten().tolist()) <= means
    # What the sums choose is still drawn, so that the average is the mean.
    many = model.given(evidence).sample(20_000, leaves="mean", seed=0)
    noise = many.std(0) / math.sqrt(20_000)
    assert ((many.mean(0) - model.given(evidence).mean()).abs() <= 5 * noise + 1e-12).all()


# -- choices ---------------------------------------------------------------------------------------


def test_drawing_from_rows_of_weights():
    weights = torch.tensor([[0.0, 2.0, 0.0, 6.0], [0.0, 0.0, 1e-30, 0.0]]).repeat(10_000, 1)
    chosen = draw(torch.Generator().manual_seed(0))(weights).view(10_000, 2)
    counts = np.bincount(chosen[:, 0].numpy(), minlength=4)
    check_counts(counts, np.array([0, 0.25, 0, 0.75]))
    assert (chosen[:, 1] == 2).all()


def test_the_best_of_rows_of_weights():
    assert best(Tensor([[0.1, 0.5, 0.4], [3.0, 1.0, 3.0]])).tolist() == [1, 0]
