"""Descents by fused kernels, choice by choice beside float64: they are the same, not just alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import einet
from einet.data.batch import Batch
from einet.kernels.triton import choices as choice_kernels
from einet.kernels.triton import inner_choices, leaf_draws, linear_choices
from einet.layers.choices import choose, draw_leaves
from einet.structures import RegionGraph
from tests.kernels.triton.choices_check import Expected
from tests.kernels.triton.leaf_check import DEVICES, interpreted
from tests.layers.test_tree import BUSHY, CHAIN, hidden_tree
from tests.twins import Twins, engine

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SEED = 2**40 + 17
WIDE = RegionGraph(5, [1, 2, 4, 8, 16, 31], [(5, (0, 1, 2, 3, 4))])
MIXED = [einet.Bernoulli(), einet.Categorical([4]), einet.Gaussian(), einet.Categorical([2])]

SMALL = hidden_tree([0, 0, 1, 1, 3])

#: Graph, families, K and options: trees, shared regions, partitions of many children, one leaf.
CASES: dict[str, tuple[RegionGraph, Any, int, dict]] = {
    "hidden tree": (SMALL, einet.Bernoulli(), 10, {"sums": "linear", "num_classes": 3}),
    "hidden tree of Gaussians": (SMALL, einet.Gaussian(), 20, {"sums": "linear"}),
    "one entry": (SMALL, einet.Categorical(2), 1, {"sums": "linear"}),
    "many children": (WIDE, einet.Categorical([2, 3, 4, 2, 5]), 10, {"sums": "linear"}),
    "linear, shared": (
        einet.poon_domingos((2, 2), delta=1), einet.Bernoulli(), 3, {"sums": "linear"}
    ),
    "random trees": (einet.random_trees(4, 2, 2), einet.Categorical(3), 3, {"num_leaves": 5}),
    "large leaves": (einet.random_trees(9, 1, 2), einet.Gaussian(), 10, {"num_classes": 2}),
    "wide outer products": (einet.random_trees(2, 1, 2), einet.Bernoulli(), 20, {}),
    "shared regions": (einet.poon_domingos((2, 2), delta=1), einet.Categorical(3), 3, {}),
    "three children": (WIDE, einet.Bernoulli(), 3, {}),
    "mixed": (einet.random_trees(4, 1, 2), MIXED, 3, {"num_classes": 2}),
    "one leaf": (RegionGraph(4, [0b1111], []), einet.Bernoulli(), 3, {"num_classes": 2}),
}  # fmt: skip
#: Sizes that take an interpreter too long.
LARGE: dict[str, tuple[RegionGraph, Any, int, dict]] = {
    **{
        f"hidden tree, K {K}": (BUSHY, einet.Categorical(256), K, {"sums": "linear"})
        for K in (16, 64, 100, 200, 256)
    },
    **{
        f"random trees, K {K}": (einet.random_trees(30, 3, 4), einet.Gaussian(), K, {})
        for K in (16, 40, 64, 100)
    },
    "chain": (CHAIN, einet.Categorical(3), 3, {"sums": "linear"}),
    "linear, two trees": (einet.random_trees(4, 2, 2), einet.Gaussian(), 3, {"sums": "linear"}),
    "three classes": (BUSHY, einet.Bernoulli(), 10, {"sums": "linear", "num_classes": 3}),
    "Gaussians": (BUSHY, einet.Gaussian(), 20, {"sums": "linear"}),
    "shared, larger": (einet.poon_domingos((4, 4), delta=1), einet.Bernoulli(), 12, {}),
    "deep": (hidden_tree([i // 2 for i in range(300)]), einet.Bernoulli(), 64, {"sums": "linear"}),
    "long": (hidden_tree(list(range(120))), einet.Categorical(10), 32, {"sums": "linear"}),
}
on_cases = pytest.mark.parametrize(
    ("device", "case"),
    [
        *(pytest.param("cpu", name, marks=interpreted) for name in CASES),
        *(pytest.param("cuda", name, marks=pytest.mark.gpu) for name in CASES | LARGE),
    ],
)


def check(pair: Twins, samples: int, rows: torch.Tensor | None) -> None:
    """All choices and all points, given rows or nothing."""
    model, device = pair.model, pair.device
    values = joint = None
    if model.num_classes > 1:
        joint = model.log_class_prior.detach().double().unsqueeze(-1)
    with engine(device), torch.no_grad():
        if rows is not None:
            batch = Batch(pair.on(rows), pair.on(~rows.isnan()))
            values, root = model.upward(batch)
            joint = None if joint is None else root + joint
        seed = torch.tensor([SEED], device=device)
        found = choose(model.circuit, samples, seed, joint, values)
        points = torch.full((samples, model.num_variables), torch.nan, device=device)
        draw_leaves(model.leaf, found, points, "sample")
    assert not points.isnan().any()
    expected = Expected(model.circuit, samples, SEED, joint, values)
    choice = torch.cat([found.body, found.top]).cpu()
    exact = expected.points(model.leaf).float()
    if device == "cpu":
        assert choice.equal(expected.choice.int())
        torch.testing.assert_close(points, exact, rtol=1e-5, atol=1e-6)
    else:
        # Sums in another order, by 1e-16: a number in between is possible, but that is all.
        same = (choice == expected.choice).float().mean()
        assert same > 0.9999
        near = (points.cpu() - exact).abs() <= 1e-5 * exact.abs() + 1e-5
        assert near.float().mean() > 0.9999


@on_cases
def test_choices_and_points(device: str, case: str):
    graph, family, num_sums, options = (CASES | LARGE)[case]
    pair = Twins(graph, family, num_sums, device, **options)
    assert pair.model.circuit.has_choices
    many = 150 if device == "cpu" else 1000
    check(pair, many, None)
    # Nine rows: all their cells known, some, and none at all.
    rows = pair.rows(9)
    rows[3] = pair.rows(30, seed=5).nan_to_num(nan=0.0)[3]
    check(pair, many + 3, rows)
    if device == "cuda":
        check(pair, 1, rows[:1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("states", [[1, 1], [2, 5], [17, 300], [2000, 4]])
def test_states(device: str, states: list[int]):
    """Any number of states, in groups; those of probability 0 are never drawn."""
    pair = Twins(RegionGraph(2, [0b11], []), einet.Categorical(states), 2, device)
    (block,) = pair.model.leaf.leaf_blocks
    with torch.no_grad():
        block.stored[:, :, 1 : max(states) // 2] = 0
        block.stored[:, :, 0] += 0.1
    check(pair, 200, None)


@interpreted
@settings(max_examples=3)
@given(
    parents=st.lists(st.integers(0, 30), min_size=2, max_size=8),
    num_sums=st.integers(1, 12),
    samples=st.integers(1, 70),
    known=st.booleans(),
)
def test_random_hidden_trees(parents: list[int], num_sums: int, samples: int, known: bool):
    graph = hidden_tree([parent % (i + 1) for i, parent in enumerate(parents)])
    pair = Twins(graph, einet.Categorical(3), num_sums, "cpu", sums="linear")
    check(pair, samples, pair.rows(4) if known else None)


@interpreted
@pytest.mark.parametrize("case", ["mixed"])
def test_blocks_do_not_matter(case: str, monkeypatch):
    """As many programs as samples or one for all: numbers are counted, not carried along."""
    graph, family, num_sums, options = CASES[case]
    pair = Twins(graph, family, num_sums, "cpu", **options)
    for module in (inner_choices, leaf_draws, linear_choices):
        assert module.samples_at_once is choice_kernels.samples_at_once
        monkeypatch.setattr(module, "samples_at_once", lambda like, samples, block: 4)
    check(pair, 11, pair.rows(3))


def test_other_layers_go_down_by_lists():
    """A kind of layer from outside the library need not know of choices."""
    model = einet.Einet(CHAIN, einet.Bernoulli(), 2)

    class Own(type(model.circuit.sum_layers[0])):
        has_choices = False

    assert model.circuit.has_choices
    model.circuit.sum_layers[0].__class__ = Own
    assert not model.circuit.has_choices
    with pytest.raises(NotImplementedError, match="no kernels that draw"):
        einet.layers.SumLayer.choose(model.circuit.sum_layers[0], None, None)  # type: ignore[arg-type]
