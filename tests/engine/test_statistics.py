"""Expected statistics against the enumeration of latent states, autodiff, and each other."""

import math

import pytest
import torch
from torch import Tensor

from einet import (
    Bernoulli,
    Categorical,
    Einet,
    Gaussian,
    Poisson,
    poon_domingos,
    random_trees,
)
from einet.engine.statistics import EinetStatistics, Statistics
from tests.budgets import limit
from tests.learning.complete import Complete
from tests.oracle import tracked

STRUCTURES = {
    "random trees": random_trees(4, depth=2, replicas=2, seed=1),
    "Poon-Domingos": poon_domingos((2, 2), delta=1),
    "root is a leaf": random_trees(3, depth=0, replicas=1),
}


def small_model(structure: str, **options) -> Einet:
    graph = STRUCTURES[structure]
    families = [Gaussian(), Categorical(3), Poisson(), Bernoulli()][: graph.num_variables]
    options = {"num_sums": 2, "dtype": torch.float64, "seed": 3} | options
    return Einet(graph, families, **options)


def some_rows(model: Einet, rows: int = 6, missing: float = 0.3) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    columns = [
        torch.randn(rows, generator=generator),
        torch.randint(3, (rows,), generator=generator),
        torch.randint(4, (rows,), generator=generator),
        torch.randint(2, (rows,), generator=generator),
    ][: model.num_variables]
    x = torch.stack([column.double() for column in columns], 1)
    gone = torch.rand(x.shape, generator=generator) < missing
    return torch.where(gone, math.nan, x)


def assert_same(a: Statistics, b: Statistics, tolerance: float = 1e-12) -> None:
    for one, other in zip(a.tensors(), b.tensors(), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize(
    "options", [{}, {"num_leaves": 3}, {"num_classes": 3}], ids=["K=2", "3 leaves", "3 classes"]
)
class TestAgainstEnumeration:
    def test_log_prob(self, structure: str, options: dict) -> None:
        model = small_model(structure, **options)
        x = some_rows(model)
        expected = Complete(model).log_joint(x).logsumexp(0)
        torch.testing.assert_close(model.log_prob(x), expected, rtol=1e-12, atol=1e-12)

    def test_statistics_are_those_of_equation_6(self, structure: str, options: dict) -> None:
        """w n_{S,N} and p_L are posterior probabilities of an edge and a leaf being reached."""
        model = small_model(structure, **options)
        x = some_rows(model)
        labels = torch.tensor([0, -1, 1, -1, 2, 0]) if model.num_classes > 1 else None
        weights = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0, 0.0])
        statistics = model.e_step(x, labels=labels, weights=weights)

        complete = Complete(model)
        joint = complete.log_joint(x, labels=labels)
        posterior = joint.softmax(0) * weights
        counts = torch.cat([n.reshape(-1) for n in statistics.weights]) * complete.weights()
        torch.testing.assert_close(counts, complete.edges.T @ posterior.sum(1))
        torch.testing.assert_close(statistics.classes, complete.classes.T @ posterior.sum(1))
        p_leaf = (complete.leaves.T @ posterior).view(model.leaf.num_nodes, model.num_leaves, -1)
        for block, statistic in zip(model.leaf.leaf_blocks, statistics.leaves, strict=True):
            s = block.columns.shape[1]
            for pair in range(block.columns.numel()):
                column = block.columns[pair // s, pair % s]
                values = x[:, int(block.group.variables[column])]
                seen = ~values.isnan()
                p = p_leaf[int(block.leaves[pair // s])][:, seen]
                T = block.group.family.at(column).T(values[seen])
                torch.testing.assert_close(statistic.total[:, pair], p.sum(1))
                torch.testing.assert_close(statistic.weighted[:, pair], p @ T)
        log_likelihood = (joint.logsumexp(0) * weights).sum()
        torch.testing.assert_close(statistics.log_likelihood, log_likelihood)
        assert statistics.rows == weights.sum()

    def test_statistics_are_gradients(self, structure: str, options: dict) -> None:
        """Sec. 3.5: ∂ log P/∂w is Σ n; with θ and A apart, φ = −θ.grad / A.grad."""
        model = small_model(structure, **options)
        x = some_rows(model)
        statistics = model.e_step(x)

        complete = Complete(model)
        weights = complete.weights().requires_grad_()
        naturals = complete.naturals()
        for theta, A in naturals:
            theta.requires_grad_()
            A.requires_grad_()
        complete.log_joint(x, weights=weights, naturals=naturals).logsumexp(0).sum().backward()
        assert weights.grad is not None
        n = torch.cat([n.reshape(-1) for n in statistics.weights])
        torch.testing.assert_close(n, weights.grad)
        for (theta, A), statistic in zip(naturals, statistics.leaves, strict=True):
            assert theta.grad is not None
            assert A.grad is not None
            torch.testing.assert_close(statistic.weighted, theta.grad)
            torch.testing.assert_close(statistic.total, -A.grad)
            torch.testing.assert_close(
                statistic.weighted / statistic.total.unsqueeze(-1),
                -theta.grad / A.grad.unsqueeze(-1),
            )

    def test_autodiff_of_the_model_gives_the_same(self, structure: str, options: dict) -> None:
        model = small_model(structure, **options)
        x = some_rows(model)
        statistics = model.e_step(x)
        tracked(model).log_prob(x).sum().backward()
        for layer, n in zip(model.circuit.sum_layers, statistics.weights, strict=True):
            torch.testing.assert_close(layer.weight.grad, n)
        for block, statistic in zip(model.leaf.leaf_blocks, statistics.leaves, strict=True):
            # The chain rule from (θ, A) to what is stored.
            theta, A = block.natural()
            through = (theta * statistic.weighted).sum() - (A * statistic.total).sum()
            (expected,) = torch.autograd.grad(through, block.stored)
            torch.testing.assert_close(block.stored.grad, expected)


@pytest.mark.parametrize("structure", STRUCTURES)
class TestSums:
    def test_batches_add_up(self, structure: str) -> None:
        model = small_model(structure)
        x = some_rows(model, rows=9)
        whole = model.e_step(x)
        parts = model.e_step(x[:4])
        assert_same(model.e_step(x[4:]).add_(parts), whole)
        assert model.e_step(x[4:], into=parts) is parts
        assert_same(parts, whole)

    def test_pieces_of_a_large_batch(self, structure: str, monkeypatch) -> None:
        model = small_model(structure)
        x = some_rows(model, rows=150)
        whole = model.e_step(x, weights=torch.arange(150.0))
        limit(monkeypatch, "values")
        assert len(model.pieces(150)) == 3
        assert_same(model.e_step(x, weights=torch.arange(150.0)), whole)

    def test_zero_forgets(self, structure: str) -> None:
        model = small_model(structure)
        x = some_rows(model)
        statistics = model.e_step(x[:3]).zero_()
        assert_same(statistics, EinetStatistics.zeros(model))
        assert_same(model.e_step(x[3:], into=statistics), model.e_step(x[3:]), 0)

    def test_a_weight_of_two_is_the_row_twice(self, structure: str) -> None:
        model = small_model(structure)
        x = some_rows(model, rows=3)
        twice = model.e_step(x[[0, 1, 1, 2]])
        assert_same(model.e_step(x, weights=[1.0, 2.0, 1.0]), twice)

    def test_a_weight_of_zero_is_no_row(self, structure: str) -> None:
        model = small_model(structure)
        x = some_rows(model, rows=4)
        padding = torch.full((2, model.num_variables), 1e3, dtype=torch.float64)
        padded = model.e_step(torch.cat([x, padding]), weights=[1.0] * 4 + [0.0] * 2)
        assert_same(padded, model.e_step(x))

    def test_impossible_rows_add_nothing_else(self, structure: str) -> None:
        model = small_model(structure)
        x = some_rows(model, rows=3)
        impossible = torch.full((1, model.num_variables), -1.0, dtype=torch.float64)
        statistics, expected = model.e_step(torch.cat([x, impossible])), model.e_step(x)
        assert statistics.impossible == 1
        assert statistics.log_likelihood == -torch.inf
        for one, other in zip(statistics.tensors()[3:], expected.tensors()[3:], strict=True):
            torch.testing.assert_close(one, other)

    def test_a_row_without_observations_reaches_sums_but_no_leaf(self, structure: str) -> None:
        model = small_model(structure)
        statistics = model.e_step(torch.full((2, model.num_variables), math.nan))
        assert all(not leaf.total.any() and not leaf.weighted.any() for leaf in statistics.leaves)
        top = model.circuit.sum_layers[-1]
        torch.testing.assert_close(
            statistics.weights[-1], torch.full_like(top.weight.detach(), 2.0)
        )
