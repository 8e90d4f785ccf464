"""Marginals, conditionals and expectations against sums over all states and quadrature."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import einet
from einet import Einet, RegionGraph
from tests.oracle import (
    CONTINUOUS,
    DISCRETE,
    NAN,
    Joint,
    close,
    random_model,
    random_rows,
)
from tests.structures.strategies import region_graphs

FAMILIES = DISCRETE | CONTINUOUS

STRUCTURES: dict[str, tuple[RegionGraph, dict]] = {
    "one tree": (einet.random_trees(3, depth=1, replicas=1), {}),
    "three trees": (einet.random_trees(3, depth=2, replicas=3), {"num_leaves": 2}),
    "Poon–Domingos": (einet.poon_domingos((1, 3), delta=1), {}),
    "classes": (einet.random_trees(3, depth=1, replicas=2), {"num_classes": 3}),
    "linear": (RegionGraph(3, [1, 2, 4, 7, 3], [(3, (0, 1, 2)), (3, (2, 4))]), {"sums": "linear"}),
}
every_structure = pytest.mark.parametrize("structure", STRUCTURES)
every_discrete = pytest.mark.parametrize("name", DISCRETE)


@cache
def discrete(name: str, structure: str) -> tuple[Einet, Joint]:
    graph, options = STRUCTURES[structure]
    model = random_model(graph, DISCRETE[name], 3, seed=len(name), **options)
    return model, Joint(model)


def check_posterior(model: Einet, joint: Joint, evidence: Tensor, labels=None, **close_options):
    """Every query of ``model.given`` with as many different patterns as there are rows."""
    posterior = model.given(evidence, labels=labels)
    known = [-1] * len(evidence) if labels is None else labels

    def same(actual: Tensor, expected) -> None:
        close(actual, expected, **({"rtol": 1e-9, "atol": 1e-11} | close_options))

    masses = [joint.mass(row, label) for row, label in zip(evidence, known, strict=True)]
    same(posterior.log_evidence, np.log(masses))
    mean, variance = posterior.mean(), posterior.variance()
    numeric = [not isinstance(family, einet.Categorical) for family in model.families]
    query = random_rows(model, len(evidence), seed=7, missing=0.3)
    # Some cells of the query repeat the evidence, some contradict it.
    repeated = random_rows(model, len(evidence), seed=8, missing=0.5).isnan()
    query = torch.where(repeated & ~evidence.isnan(), evidence, query)
    marginals, conditionals = posterior.log_marginals(query), posterior.log_prob(query)
    for row, (e, label) in enumerate(zip(evidence, known, strict=True)):
        expected_mean, expected_variance = joint.moments(e, label)
        for variable in range(model.num_variables):
            if numeric[variable] or not e[variable].isnan():
                same(mean[row, variable], expected_mean[variable])
                same(variance[row, variable], expected_variance[variable])
            else:
                assert mean[row, variable].isnan()
                assert variance[row, variable].isnan()
            asked = torch.full_like(e, NAN)
            asked[variable] = query[row, variable]
            same(marginals[row, variable], joint.log_conditional(asked, e, label))
        same(conditionals[row], joint.log_conditional(query[row], e, label))


# -- sums over all states --------------------------------------------------------------------------


@every_discrete
@every_structure
def test_marginals(name: str, structure: str):
    model, joint = discrete(name, structure)
    with torch.no_grad():
        close(model.log_prob(joint.states).exp().sum(), 1.0)
    close(model.log_normalizer(), 0.0)
    x = random_rows(model, 20, seed=1)
    close(model.log_prob(x), joint.log_prob(x))
    close(model.log_prob(x.nan_to_num(-5).long(), ~x.isnan()), joint.log_prob(x))


@every_discrete
@every_structure
def test_posteriors(name: str, structure: str):
    model, joint = discrete(name, structure)
    evidence = random_rows(model, 12, seed=2, missing=0.5)
    evidence[0] = NAN
    evidence[1] = evidence[1].nan_to_num(0)
    check_posterior(model, joint, evidence)


@pytest.mark.parametrize("name", ["Bernoulli", "Binomial", "Categorical"])
@every_structure
def test_probabilities_of_states(name: str, structure: str):
    model, joint = discrete(name, structure)
    evidence = random_rows(model, 8, seed=3, missing=0.5)
    posterior = model.given(evidence)
    for variable in range(model.num_variables):
        found = posterior.probabilities(variable)
        for row, e in enumerate(evidence):
            if e[variable].isnan():
                close(found[row], joint.marginal(variable, e))
            else:
                close(found[row], joint.points[variable] == float(e[variable]))


@every_discrete
def test_classes_by_bayes(name: str):
    model, joint = discrete(name, "classes")
    x = random_rows(model, 10, seed=4)
    prior = model.log_class_prior.exp()
    masses = np.stack([joint.class_mass(row) for row in x])
    close(model.class_log_prob(x), np.log(masses / prior.detach().numpy()))
    close(model.class_posterior(x), masses / masses.sum(1, keepdims=True))
    close(model.log_prob(x), np.log(masses.sum(1)))
    labels = np.array([0, 1, 2, -1, 0, 1, 2, -1, 0, 1])
    rows = np.arange(10)
    joint_mass = np.where(labels < 0, masses.sum(1), masses[rows, labels])
    close(model.log_prob(x, labels=labels), np.log(joint_mass))
    check_posterior(model, joint, x, labels.tolist())


@settings(max_examples=25)
@given(
    graph=region_graphs(min_variables=2, max_variables=4, max_children=4),
    num_leaves=st.integers(1, 3),
    num_classes=st.sampled_from([1, 3]),
    seed=st.integers(0, 99),
)
def test_any_structure(graph: RegionGraph, num_leaves: int, num_classes: int, seed: int):
    kinds = [einet.Bernoulli(), einet.Categorical(3), einet.Binomial(2), einet.Categorical(2)]
    families = [kinds[(seed + d) % 4] for d in range(graph.num_variables)]
    model = random_model(
        graph, families, 2, num_leaves=num_leaves, num_classes=num_classes, seed=seed
    )
    joint = Joint(model)
    with torch.no_grad():
        close(model.log_prob(joint.states).exp().sum(), 1.0)
    evidence = random_rows(model, 4, seed, missing=0.5)
    close(model.log_prob(evidence), joint.log_prob(evidence))
    labels = [0, num_classes - 1, -1, -1]
    check_posterior(model, joint, evidence, labels)
    masses = np.stack([joint.class_mass(row) for row in evidence])
    close(model.class_posterior(evidence), masses / masses.sum(1, keepdims=True))


# -- quadrature ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("num_classes", [1, 2])
def test_densities_of_two_variables(name: str, num_classes: int):
    graph = einet.random_trees(2, depth=1, replicas=2)
    model = random_model(graph, CONTINUOUS[name], 2, num_classes=num_classes)
    joint = Joint(model)
    # The points of the rule are what the oracle can ask about.
    evidence = random_rows(model, 6, missing=0.5)
    evidence[0] = NAN
    close(joint.mass(evidence[0]), 1.0, atol=1e-9)
    check_posterior(model, joint, evidence, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", FAMILIES)
def test_two_missing_of_four(name: str):
    graph = einet.random_trees(4, depth=2, replicas=3)
    model = random_model(graph, FAMILIES[name], 2, num_leaves=3)
    for missing in ([0, 2], [3]):
        evidence = random_rows(model, 1, seed=5, missing=0.0)
        evidence[0, missing] = NAN
        check_posterior(model, Joint(model, evidence[0]), evidence, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("num_classes", [1, 2])
def test_all_families_in_one_model(num_classes: int):
    families = list(FAMILIES.values())
    graph = einet.random_trees(8, depth=2, replicas=3)
    model = random_model(graph, families, 2, num_leaves=3, num_classes=num_classes)
    close(model.log_normalizer(), 0.0)
    rows = random_rows(model, 8, missing=0.0)
    patterns = [(0, 1), (1, 2), (2, 4), (3, 5), (5,), (6,), (7, 0), (4, 3)]
    for row, missing in zip(rows, patterns, strict=True):
        row[list(missing)] = NAN
        check_posterior(model, Joint(model, row), row[None], rtol=1e-7, atol=1e-8)


def test_all_families_as_a_product():
    """With one entry everywhere a model is a product of densities."""
    families = list(FAMILIES.values())
    model = random_model(einet.random_trees(8, depth=2, replicas=1), families, 1)
    x = random_rows(model, 10)
    expected = torch.zeros(10, dtype=torch.float64)
    for variable, family in enumerate(model.families):
        for block in model.leaf.leaf_blocks:
            pair = (block.group.variables[block.columns].reshape(-1) == variable).nonzero()
            if pair.numel():
                column = x[:, variable]
                density = family.log_prob(column.nan_to_num(0.5), block.stored[0, pair[0]].detach())
                expected += torch.where(column.isnan(), 0.0, density)
    close(model.log_prob(x), expected)


# -- equation (1) ----------------------------------------------------------------------------------


def test_query_that_repeats_the_evidence():
    model, joint = discrete("Binomial", "three trees")
    e = torch.tensor([[1.0, NAN, 2.0]]).double().repeat(5, 1)
    q = torch.tensor(
        [[1, 0, 2], [NAN, 3, NAN], [0, 3, NAN], [1, NAN, NAN], [NAN, NAN, NAN]]
    ).double()
    found = model.given(e).log_prob(q)
    close(found, [joint.log_conditional(*pair) for pair in zip(q, e, strict=True)])
    assert found[2] == -math.inf
    close(found[3:], [0.0, 0.0])
    marginals = model.given(e).log_marginals(q)
    assert marginals[2, 0] == -math.inf
    assert (marginals[:, 2] == 0).all()


@pytest.mark.parametrize("labels", [None, [2]])
def test_one_row_of_evidence_for_many_queries(labels):
    model, joint = discrete("Categorical", "classes")
    e = torch.tensor([[NAN, 1.0, NAN]]).double()
    queries = random_rows(model, 30, seed=6)
    label = -1 if labels is None else labels[0]
    expected = [joint.log_conditional(q, e[0], label) for q in queries]
    close(model.given(e, labels=labels).log_prob(queries), expected)
    assert model.given(e).log_prob(queries[:0]).shape == (0,)


def test_conditional_densities_keep_their_digits_in_float32():
    """log p(q | e) is a difference of numbers a thousand times as large."""
    graph = einet.random_trees(2000, depth=3, replicas=2)
    model = Einet(graph, einet.Gaussian(), 3)
    x = model.sample(4, seed=0)
    e, q = x.clone(), torch.full_like(x, NAN)
    e[:, :3] = NAN
    q[:, :3] = x[:, :3]
    found = model.given(e).log_prob(q)
    assert found.dtype == torch.float32
    close(found, model.double().given(e).log_prob(q), rtol=0, atol=5e-6)
