"""Brute force to test the library against: slow, in float64, and without its kernels.

:class:`Oracle` evaluates an Einet node by node in numpy; of the model it takes only parameters and
who is whose child. :class:`Joint` tabulates a density over all states, or over the points of a
quadrature rule, and answers queries by sums over the table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

import einet
from einet import Einet, ExponentialFamily, RegionGraph
from einet.layers import EinsumLayer, LinearLayer, MixingLayer
from einet.layers.parameter import release

__all__ = [
    "CONTINUOUS",
    "DISCRETE",
    "NAN",
    "Joint",
    "Oracle",
    "close",
    "random_model",
    "random_rows",
    "support",
    "tracked",
]

NAN = math.nan

#: One small member of every family, by name.
DISCRETE: dict[str, ExponentialFamily] = {
    "Bernoulli": einet.Bernoulli(),
    "Binomial": einet.Binomial(3),
    "Categorical": einet.Categorical(3),
    "Poisson": einet.Poisson(),
}
CONTINUOUS: dict[str, ExponentialFamily] = {
    "Gaussian": einet.Gaussian(),
    "Exponential": einet.Exponential(),
    "Gamma": einet.Gamma(),
    "Beta": einet.Beta(),
}


def close(actual: Any, expected: Any, rtol: float = 1e-9, atol: float = 1e-11) -> None:
    """Equal up to rounding in float64; −∞ and NaN only where they are expected."""
    actual, expected = (t.detach() if isinstance(t, Tensor) else t for t in (actual, expected))
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=rtol, atol=atol)


Module = TypeVar("Module", bound=nn.Module)


def tracked(model: Module) -> Module:
    """The model itself, its canonical parameters made plain ones that ask for gradients."""
    for module in model.modules():
        for name in module._parameters:
            release(module, name)
    return model


def random_model(
    graph: RegionGraph,
    family: ExponentialFamily | Sequence[ExponentialFamily],
    num_sums: int = 3,
    *,
    seed: int = 0,
    num_classes: int = 1,
    **options: Any,
) -> Einet:
    """A float64 model whose leaves, and class prior, differ more than those of a fresh one.

    Densities without end keep their fresh parameters, for which :func:`support` is made.
    """
    model = Einet(
        graph, family, num_sums, num_classes=num_classes, seed=seed, dtype=torch.float64, **options
    )
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for block in model.leaf.leaf_blocks:
            if block.family.num_states is not None:
                raw = torch.randn(block.stored.shape, generator=generator, dtype=torch.float64)
                block.stored.copy_(block.family.project(block.family.constrain(1.5 * raw)))
        if num_classes > 1:
            drawn = torch.rand(num_classes, generator=generator, dtype=torch.float64) + 0.2
            model.log_class_prior.copy_((drawn / drawn.sum()).log())
    return model


def random_rows(model: Einet, rows: int, seed: int = 0, missing: float = 0.4) -> Tensor:
    """Points of the model's support, each cell missing with some probability."""
    generator = np.random.default_rng(seed)
    columns = []
    for family in model.families:
        points, weights = support(family)
        # The ends of a quadrature rule carry no mass worth asking about.
        middle = np.flatnonzero(weights > 1e-3 * weights.max())
        columns.append(points[generator.choice(middle, rows)])
    x = np.stack(columns, 1)
    x[generator.random(x.shape) < missing] = NAN
    return torch.from_numpy(x)


def support(family: ExponentialFamily) -> tuple[np.ndarray, np.ndarray]:
    """All states with weights of 1, or points and weights of a rule that integrates to 1e-12.

    The trapezoidal rule converges exponentially in a chart in which the density is smooth over
    the whole line. Ranges fit the parameters of a model that has seen no data.
    """
    if family.num_states is not None:
        count = int(getattr(family, "num_categories", torch.tensor(family.num_states)))
        return np.arange(float(count)), np.ones(count)
    if isinstance(family, einet.Poisson):
        return np.arange(20.0), np.ones(20)
    if isinstance(family, einet.Gaussian):
        return np.linspace(-10, 10, 81), np.full(81, 0.25)
    if isinstance(family, einet.Beta):
        t, step = np.linspace(-32, 32, 117, retstep=True)
        points = 1 / (1 + np.exp(-t))
        return points, step * points / (1 + np.exp(t))
    assert isinstance(family, einet.Exponential | einet.Gamma)
    t, step = np.linspace(-30, 4.2, 115, retstep=True)
    return np.exp(t), step * np.exp(t)


# -- node by node ----------------------------------------------------------------------------------

Node = tuple[str, int]


@dataclass(frozen=True)
class Sum:
    """S_k = Σ_ij W_kij N_i N'_j, in ``row`` of layer ``layer``. A missing N' is the constant 1."""

    layer: int
    row: int
    children: list[Node]
    weight: np.ndarray


@dataclass(frozen=True)
class Linear:
    """S_k = Σ_i W_ki Π_c N_ci, in ``row`` of layer ``layer``."""

    layer: int
    row: int
    children: list[Node]
    weight: np.ndarray


@dataclass(frozen=True)
class Mix:
    """S_k = Σ_c w_ck N_ck; its weights begin at ``edge`` of layer ``layer``."""

    layer: int
    edge: int
    children: list[Node]
    weight: np.ndarray


@dataclass
class Statistics:
    """Eq. (3): n_{S,N} over all rows, shaped like each layer's weights, and p_L of every row."""

    weights: list[np.ndarray]
    leaves: np.ndarray
    classes: np.ndarray


class Oracle:
    """An Einet, evaluated naively."""

    def __init__(self, model: Einet) -> None:
        self.num_leaves = len(model.graph.leaves)
        self.families = model.families
        self.log_prior = _numpy(model.log_class_prior)
        #: Of every leaf the variables and their stored parameters [K, P].
        self.leaves: list[dict[int, Tensor]] = [{} for _ in range(self.num_leaves)]
        for block in model.leaf.leaf_blocks:
            size = block.columns.shape[1]
            variables = block.group.variables[block.columns]
            for n, leaf in enumerate(block.leaves.tolist()):
                for s in range(size):
                    stored = block.stored[:, n * size + s].detach().double()
                    self.leaves[leaf][int(variables[n, s])] = stored
        #: Every inner node, children before parents; the last one is the root.
        self.inner: dict[Node, Sum | Linear | Mix] = {}
        self.shapes = [tuple(layer.weight.shape) for layer in model.circuit.sum_layers]
        for number, layer in enumerate(model.circuit.sum_layers):
            weight = _numpy(layer.weight)
            edge = 0
            for row in range(layer.num_nodes):
                node = (layer.target, layer.start + row)
                if isinstance(layer, EinsumLayer):
                    children = [("body", int(layer.left[row])), ("body", int(layer.right[row]))]
                    shape = (layer.num_outputs, layer.num_left, layer.num_right)
                    children = [child for child in children if child[1] >= 0]
                    self.inner[node] = Sum(number, row, children, weight[row].reshape(shape))
                    continue
                assert isinstance(layer, LinearLayer | MixingLayer)
                count = int(layer.counts[row])
                index = layer.children_index[edge : edge + count].tolist()
                children = [(layer.source, i) for i in index]
                if isinstance(layer, LinearLayer):
                    self.inner[node] = Linear(number, row, children, weight[row])
                else:
                    self.inner[node] = Mix(number, edge, children, weight[edge : edge + count])
                edge += count
        self.root = list(self.inner)[-1]

    def log_values(self, x: Tensor) -> dict[Node, np.ndarray]:
        """Log values ``[batch, entries]`` of every node; NaN in ``x`` is integrated out."""
        x = x.double()
        values: dict[Node, np.ndarray] = {}
        for number, leaf in enumerate(self.leaves):
            total = torch.zeros(())
            for variable, stored in leaf.items():
                column = x[:, variable, None]
                density = self.families[variable].log_prob(column.nan_to_num(0.5), stored[None])
                total = total + torch.where(column.isnan(), 0.0, density)
            values["body", number] = total.numpy()
        for node, inner in self.inner.items():
            below = [values[child] for child in inner.children]
            with np.errstate(divide="ignore"):
                log_weight = np.log(inner.weight)
            if isinstance(inner, Mix):
                terms = np.stack(below, 1) + log_weight
                values[node] = _logsumexp(terms, 1)
            elif isinstance(inner, Linear):
                values[node] = _logsumexp(np.sum(below, 0)[:, None, :] + log_weight, 2)
            else:
                right = below[1] if len(below) == 2 else np.zeros((x.shape[0], 1))
                pairs = below[0][:, None, :, None] + right[:, None, None, :]
                values[node] = _logsumexp(pairs + log_weight, (2, 3))
        return values

    def class_log_prob(self, x: Tensor) -> np.ndarray:
        """log p(x | c), ``[batch, classes]``."""
        return self.log_values(x)[self.root]

    def log_prob(self, x: Tensor) -> np.ndarray:
        return _logsumexp(self.class_log_prob(x) + self.log_prior, 1)

    def statistics(self, x: Tensor, labels: Sequence[int] | None = None) -> Statistics:
        """Eq. (3) by derivatives of P itself, written out for every node, in the linear domain."""
        values = {node: np.exp(value) for node, value in self.log_values(x).items()}
        slopes = {node: np.zeros_like(value) for node, value in values.items()}
        share = np.broadcast_to(np.exp(self.log_prior), values[self.root].shape).copy()
        for row, label in enumerate([] if labels is None else labels):
            if label >= 0:
                share[row, np.arange(share.shape[1]) != label] = 0
        P = (share * values[self.root]).sum(1)
        slopes[self.root] = share / P[:, None]
        n = [np.zeros(shape) for shape in self.shapes]
        for node, inner in reversed(self.inner.items()):
            above = slopes[node]
            if isinstance(inner, Mix):
                for c, child in enumerate(inner.children):
                    n[inner.layer][inner.edge + c] = (above * values[child]).sum(0)
                    slopes[child] += above * inner.weight[c]
                continue
            if isinstance(inner, Linear):
                factors = np.stack([values[child] for child in inner.children])
                n[inner.layer][inner.row] = np.einsum("bk,bi->ki", above, factors.prod(0))
                for c, child in enumerate(inner.children):
                    others = np.delete(factors, c, 0).prod(0)
                    slopes[child] += (above @ inner.weight) * others
                continue
            left = inner.children[0]
            right = values[inner.children[1]] if len(inner.children) == 2 else np.ones((len(x), 1))
            found = np.einsum("bk,bi,bj->kij", above, values[left], right)
            n[inner.layer][inner.row] = found.reshape(found.shape[0], -1)
            slopes[left] += np.einsum("bk,kij,bj->bi", above, inner.weight, right)
            if len(inner.children) == 2:
                slopes[inner.children[1]] += np.einsum(
                    "bk,kij,bi->bj", above, inner.weight, values[left]
                )
        leaves = [("body", leaf) for leaf in range(self.num_leaves)]
        p = np.stack([slopes[leaf] * values[leaf] for leaf in leaves])
        return Statistics(n, p, (share * values[self.root] / P[:, None]).sum(0))

    def subtrees(self, node: Node, k: int) -> Iterator[tuple[float, list[tuple[int, int]]]]:
        """Every induced sub-tree of a node's entry: its log weight and its leaf entries."""
        if node not in self.inner:
            yield 0.0, [(node[1], k)]
            return
        inner = self.inner[node]
        if isinstance(inner, Mix):
            for c, child in enumerate(inner.children):
                for value, ends in self.subtrees(child, k):
                    yield math.log(inner.weight[c, k]) + value, ends
            return
        if isinstance(inner, Linear):
            for i, weight in enumerate(inner.weight[k]):
                each = [list(self.subtrees(child, i)) for child in inner.children]
                for trees in itertools.product(*each):
                    value = sum(value for value, _ in trees)
                    yield math.log(weight) + value, [end for _, ends in trees for end in ends]
            return
        for (i, j), weight in np.ndenumerate(inner.weight[k]):
            for left, some in self.subtrees(inner.children[0], i):
                if len(inner.children) == 1:
                    yield math.log(weight) + left, some
                    continue
                for right, others in self.subtrees(inner.children[1], j):
                    yield math.log(weight) + left + right, some + others


# -- state by state --------------------------------------------------------------------------------


class Joint:
    """p(x, c) over a grid of all states (or quadrature points) of some variables.

    Args:
        model: The model, which :class:`Oracle` evaluates.
        row: Where given, its observed variables are fixed to their values, so that the grid spans
            the missing ones only.
    """

    def __init__(self, model: Einet, row: Tensor | None = None) -> None:
        fixed = [NAN] * model.num_variables if row is None else row.tolist()
        self.points, self.weights = [], []
        for family, value in zip(model.families, fixed, strict=True):
            points, weights = support(family)
            if not math.isnan(value):
                points, weights = np.array([value]), np.ones(1)
            self.points.append(points)
            self.weights.append(weights)
        grid = np.meshgrid(*self.points, indexing="ij")
        self.states = torch.from_numpy(np.stack([axis.reshape(-1) for axis in grid], 1))
        density = np.exp(Oracle(model).class_log_prob(self.states) + _numpy(model.log_class_prior))
        self.density = density.reshape(*[len(points) for points in self.points], -1)

    def _contract(self, row: Tensor, keep: int | None = None) -> np.ndarray:
        """∫ p(x, c) over a row's missing variables but ``keep``: ``[points of keep,] classes``."""
        total = np.moveaxis(self.density, -1, 0)
        # From the last variable backwards, so that the axes still to come keep their place.
        for variable in reversed(range(len(self.points))):
            value = float(row[variable])
            if variable == keep:
                continue
            if math.isnan(value):
                weights = self.weights[variable]
            else:
                weights = (self.points[variable] == value).astype(float)
            total = np.tensordot(total, weights, axes=(variable + 1, 0))
        return np.moveaxis(total, 0, -1)

    def class_mass(self, row: Tensor) -> np.ndarray:
        """p(x_o, c) of the observed values of one row, for every class."""
        return self._contract(row)

    def mass(self, row: Tensor, label: int = -1) -> float:
        """p(x_o), or p(x_o, c) with a label."""
        by_class = self.class_mass(row)
        return float(by_class.sum() if label < 0 else by_class[label])

    def log_prob(self, rows: Tensor) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log([self.mass(row) for row in rows])

    def log_conditional(self, query: Tensor, evidence: Tensor, label: int = -1) -> float:
        """Eq. (1), also where query and evidence overlap."""
        both = ~query.isnan() & ~evidence.isnan()
        if bool((query != evidence)[both].any()):
            return -math.inf
        joint = torch.where(evidence.isnan(), query, evidence)
        with np.errstate(divide="ignore"):
            return float(np.log(self.mass(joint, label) / self.mass(evidence, label)))

    def marginal(self, variable: int, evidence: Tensor, label: int = -1) -> np.ndarray:
        """p(x_d | e) at every point of one missing variable."""
        by_class = self._contract(evidence, keep=variable)
        found = by_class.sum(-1) if label < 0 else by_class[:, label]
        return found / self.mass(evidence, label)

    def moments(self, evidence: Tensor, label: int = -1) -> tuple[np.ndarray, np.ndarray]:
        """E[x | e] and Var[x | e] of every variable."""
        mean, variance = _numpy(evidence).copy(), np.zeros(len(evidence))
        for variable in np.flatnonzero(np.isnan(mean)).tolist():
            points = self.points[variable]
            p = self.marginal(variable, evidence, label) * self.weights[variable]
            mean[variable] = p @ points
            variance[variable] = p @ (points - mean[variable]) ** 2
        return mean, variance

    def distribution(self, evidence: Tensor | None = None, label: int = -1) -> np.ndarray:
        """p of every row of ``states`` given the evidence (discrete variables)."""
        by_class = self.density.reshape(len(self.states), -1)
        p = by_class.sum(-1) if label < 0 else by_class[:, label]
        if evidence is not None:
            agrees = (self.states == evidence) | evidence.isnan()
            p = p * agrees.all(1).numpy()
        return p / p.sum()

    def count(self, samples: Tensor) -> np.ndarray:
        """How often each row of ``states`` occurs among samples of discrete variables."""
        sizes = [len(points) for points in self.points]
        # A point's number on its axis, found by value: axes need not count from 0.
        places = [
            np.searchsorted(points, _numpy(samples[:, variable]))
            for variable, points in enumerate(self.points)
        ]
        return np.bincount(np.ravel_multi_index(places, sizes), minlength=len(self.states))


def _logsumexp(terms: np.ndarray, axes: int | tuple[int, ...]) -> np.ndarray:
    largest = np.maximum(terms.max(axes, keepdims=True), np.finfo(float).min)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(terms - largest).sum(axes)) + largest.squeeze(axes)


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()
