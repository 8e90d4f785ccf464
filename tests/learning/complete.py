"""The complete model behind a tiny Einet: its latent variables, one state after the other.

A state of all latent variables is an induced tree: one child chosen at each sum that is reached,
from the root down to leaves. A tiny circuit has few enough of them to list, and then every quantity
of learning is a plain sum over the list. Nothing here uses the library's passes.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from einet import Einet
from einet.layers import EinsumLayer, MixingLayer

__all__ = ["Complete"]


class Tree(NamedTuple):
    """Sum edges (layer, flat position of the weight) and leaf entries (node, k) it reaches."""

    edges: tuple[tuple[int, int], ...] = ()
    leaves: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: Tree) -> Tree:  # type: ignore[override]
        return Tree(self.edges + other.edges, self.leaves + other.leaves)


class Complete:
    """All induced trees of a model.

    Attributes:
        edges: ``[trees, weights]``: which sum weights a tree uses; all layers' weights in a row.
        leaves: ``[trees, leaf nodes · K]``: which leaf entries it ends in.
        classes: ``[trees, C]``: the root it begins at.
    """

    def __init__(self, model: Einet) -> None:
        self.model = model
        layers = model.circuit.sum_layers
        self.sizes = [layer.weight.numel() for layer in layers]
        offset = torch.tensor([0, *self.sizes]).cumsum(0).tolist()
        root = model.circuit.num_top - 1
        trees = [
            (c, tree) for c in range(model.num_classes) for tree in self._below("top", root, c)
        ]
        nodes, K = model.leaf.num_nodes, model.num_leaves
        self.edges = torch.zeros(len(trees), sum(self.sizes), dtype=torch.float64)
        self.leaves = torch.zeros(len(trees), nodes * K, dtype=torch.float64)
        self.classes = torch.zeros(len(trees), model.num_classes, dtype=torch.float64)
        for row, (c, tree) in enumerate(trees):
            self.classes[row, c] = 1
            for layer, position in tree.edges:
                self.edges[row, offset[layer] + position] += 1
            for node, k in tree.leaves:
                self.leaves[row, node * K + k] += 1

    def _below(self, space: str, node: int, k: int) -> list[Tree]:
        """The trees under entry ``k`` of a node."""
        for number, layer in enumerate(self.model.circuit.sum_layers):
            if layer.target == space and layer.start <= node < layer.start + layer.num_nodes:
                return self._under(number, layer, node - layer.start, k)
        return [Tree(leaves=((node, k),))]

    def _under(self, number: int, layer, node: int, k: int) -> list[Tree]:
        trees = []
        if isinstance(layer, EinsumLayer):
            position = (node * layer.num_outputs + k) * layer.num_left * layer.num_right
            left, right = int(layer.left[node]), int(layer.right[node])
            for i, j in product(range(layer.num_left), range(layer.num_right)):
                edge = Tree(edges=((number, position + i * layer.num_right + j),))
                seconds = [Tree()] if right < 0 else self._below("body", right, j)
                trees += [edge + a + b for a, b in product(self._below("body", left, i), seconds)]
        else:
            assert isinstance(layer, MixingLayer)
            first = int(layer.counts[:node].sum())
            for row in range(first, first + int(layer.counts[node])):
                edge = Tree(edges=((number, row * layer.num_outputs + k),))
                child = int(layer.children_index[row])
                trees += [edge + tree for tree in self._below(layer.target, child, k)]
        return trees

    # -- parameters ----------------------------------------------------------------------------

    def weights(self) -> Tensor:
        """The weights of all sums in a row."""
        return torch.cat([w.detach().double().reshape(-1) for w in self.model.circuit.weights])

    def sums(self) -> Tensor:
        """For each weight the number of the sum it belongs to."""
        numbers, count = [], 0
        for layer in self.model.circuit.sum_layers:
            views = layer.simplices(torch.zeros(layer.weight.shape, dtype=torch.long))
            filled = []
            for view in views:
                ids = torch.arange(view.shape[0] * view.shape[1]).view(*view.shape[:2], 1) + count
                count += view.shape[0] * view.shape[1]
                filled.append(ids.expand(view.shape))
            numbers.append(layer.from_simplices(filled).reshape(-1))
        return torch.cat(numbers)

    def naturals(self) -> list[tuple[Tensor, Tensor]]:
        """θ and A of each block of leaves."""
        return [
            (theta.detach().clone(), A.detach().clone())
            for theta, A in (block.natural() for block in self.model.leaf.leaf_blocks)
        ]

    # -- the joint distribution ----------------------------------------------------------------

    def leaf_log_values(
        self, x: Tensor, observed: Tensor, naturals: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """log L(x) of each leaf entry ``[leaf nodes · K, batch]``, missing cells left out."""
        leaf = self.model.leaf
        rows: dict[tuple[int, int], Tensor] = {}
        for block, (theta, A) in zip(leaf.leaf_blocks, naturals, strict=True):
            n, s = block.columns.shape
            for i, position, k in product(range(n), range(s), range(leaf.num_entries)):
                column = block.columns[i, position]
                family = block.group.family.at(column)
                variable = int(block.group.variables[column])
                seen = observed[:, variable]
                value = torch.where(seen, x[:, variable], family.filler).double()
                pair = i * s + position
                inner = (theta[k, pair] * family.T(value)).sum(-1) - A[k, pair]
                log_value = torch.where(seen, inner + family.log_h(value), 0.0)
                key = (int(block.leaves[i]), k)
                rows[key] = rows.get(key, torch.zeros(())) + log_value
        nodes = range(leaf.num_nodes)
        return torch.stack([rows[node, k] for node in nodes for k in range(leaf.num_entries)])

    def log_joint(
        self,
        x: Tensor,
        observed: Tensor | None = None,
        labels: Tensor | None = None,
        weights: Tensor | None = None,
        naturals: list[tuple[Tensor, Tensor]] | None = None,
    ) -> Tensor:
        """log p(x, tree) ``[trees, batch]``; differentiable in ``weights`` and ``naturals``."""
        observed = ~x.isnan() if observed is None else observed
        weights = self.weights() if weights is None else weights
        naturals = self.naturals() if naturals is None else naturals
        of_leaves = self.leaves @ self.leaf_log_values(x, observed, naturals)
        log_prior = self.model.log_class_prior.detach().double()
        of_sums = self.edges @ weights.log() + self.classes @ log_prior
        joint = of_leaves + of_sums.unsqueeze(1)
        if labels is not None:
            fits = (labels < 0) | (self.classes.argmax(1, keepdim=True) == labels)
            joint = torch.where(fits, joint, -torch.inf)
        return joint
