"""The approximate mode: the best point of the best single sub-tree."""

import math

import pytest
import torch
from torch import Tensor

import einet
from einet import Einet, RegionGraph
from einet.inference import Posterior
from tests.oracle import (
    CONTINUOUS,
    DISCRETE,
    NAN,
    Joint,
    Oracle,
    close,
    random_model,
    random_rows,
)

FAMILIES = DISCRETE | CONTINUOUS

STRUCTURES: dict[str, tuple[RegionGraph, dict]] = {
    "one tree": (einet.random_trees(4, depth=2, replicas=1), {}),
    "two trees": (einet.random_trees(3, depth=1, replicas=2), {"num_leaves": 3}),
    "Poon–Domingos": (einet.poon_domingos((1, 3), delta=1), {}),
    "classes": (einet.random_trees(3, depth=1, replicas=1), {"num_classes": 2}),
    "one leaf": (RegionGraph(3, [0b111], []), {"num_classes": 2}),
    "linear": (
        RegionGraph(3, [1, 2, 4, 6, 7, 3], [(3, (1, 2)), (4, (0, 3)), (4, (0, 1, 2)), (4, (5, 2))]),
        {"sums": "linear", "num_classes": 2},
    ),
}


def best_point(model: Einet, row: Tensor, label: int = -1) -> tuple[float, Tensor]:
    """By going through all sub-trees: the largest weighted product, and where it is."""
    oracle = Oracle(model)
    classes = range(model.num_classes) if label < 0 else [label]
    best, point = -math.inf, row
    for c in classes:
        for log_weight, ends in oracle.subtrees(oracle.root, c):
            value, here = float(oracle.log_prior[c]) + log_weight, row.clone()
            for leaf, k in ends:
                for variable, stored in oracle.leaves[leaf].items():
                    family = oracle.families[variable]
                    if here[variable].isnan():
                        here[variable] = family.mode(stored[k])
                    value += float(family.log_prob(here[variable], stored[k]))
            if value > best:
                best, point = value, here
    return best, point


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("name", FAMILIES)
def test_best_subtree(name: str, structure: str):
    graph, options = STRUCTURES[structure]
    model = random_model(graph, FAMILIES[name], 2, seed=1, **options)
    evidence = random_rows(model, 3, missing=0.5)
    evidence[0] = NAN
    found = model.given(evidence).mode()
    for row, e in enumerate(evidence):
        close(found[row], best_point(model, e)[1])
    close(model.mode(), found[0])
    assert model.log_prob(found).isfinite().all()
    assert found.equal(torch.where(evidence.isnan(), found, evidence))


def test_mode_of_a_class():
    model = random_model(einet.random_trees(4, 1, 2), einet.Binomial(4), 3, num_classes=3, seed=4)
    evidence = torch.full((4, 4), NAN).double()
    labels = [0, 1, 2, -1]
    found = model.given(evidence, labels=labels).mode()
    for row, label in enumerate(labels):
        close(found[row], best_point(model, evidence[row], label)[1])


def test_all_families_together():
    families = list(FAMILIES.values())
    model = random_model(einet.random_trees(8, depth=1, replicas=2), families, 3)
    evidence = random_rows(model, 4, missing=0.5)
    found = model.given(evidence).mode()
    for row, e in enumerate(evidence):
        close(found[row], best_point(model, e)[1])


def test_of_a_model_without_choices_it_is_exact():
    model = random_model(einet.random_trees(3, depth=1, replicas=1), einet.Categorical(4), 1)
    joint = Joint(model)
    close(model.mode(), joint.states[joint.distribution().argmax()])


def test_it_is_not_always_the_highest_point():
    """Two like components outweigh a third only together: why it is called an approximation."""
    model = Einet(RegionGraph(1, [0b1], []), einet.Categorical(2), 3, dtype=torch.float64)
    with torch.no_grad():
        model.circuit.weights[0].copy_(torch.tensor([[[0.4, 0.3, 0.3]]]))
        stored = model.leaf.leaf_blocks[0].stored
        stored.copy_(torch.tensor([[[0.9, 0.1]], [[0.1, 0.9]], [[0.1, 0.9]]]))
    density = model.log_prob([[0.0], [1.0]]).exp()
    assert density[1] > density[0]
    assert model.mode().tolist() == [0]
    assert "approximation" in (Posterior.mode.__doc__ or "")
