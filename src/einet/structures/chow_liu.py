"""Hidden Chow–Liu trees: a structure learnt from data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from einet._checks import as_int, as_seed, check_choice
from einet.data.batch import Batch
from einet.data.sources import sample_of
from einet.structures.arguments import as_rows, check_size
from einet.structures.gaussian_information import gaussian_information
from einet.structures.graph import RegionGraph
from einet.structures.levels import as_levels
from einet.structures.mutual_information import as_discrete, mutual_information

__all__ = ["add_tree", "central_root", "chow_liu", "maximum_spanning_tree"]

#: How information is estimated.
_ESTIMATES = {
    "discrete": mutual_information,
    "gaussian": gaussian_information,
}


def chow_liu(
    data: Any,
    observed: Any = None,
    *,
    weights: Any = None,
    information: str = "discrete",
    levels: int | str | None = "auto",
    smoothing: float = 1.0,
    trees: int = 1,
    seed: int = 0,
) -> RegionGraph:
    """Chow–Liu trees of data, as the structure of hidden trees.

    The maximum spanning tree under pairwise mutual information links the variables that tell most
    about one another (Chow and Liu, 1968). It is rooted at its centre, and every variable of it
    carries a latent of K states (Liu and Van den Broeck, 2021): the region of variable i is over i
    and all variables below it, and its one partition has the leaf {i} and the region of each child
    of i as its children. Where nothing is below i, its region is the leaf {i}.

    Such partitions may have many children. With ``Einet(..., sums="linear")`` they are taken as
    they are and W is K × K for each variable; the outer products of ``sums="einsum"`` work too, on
    partitions made binary.

    Args:
        data: Numbers ``[rows, variables]``, NaN where missing. Pairs of variables are compared over
            the rows in which both are known. Or a path to a ``.npy``, Parquet or Arrow file, or to
            a folder of the latter two: of these a random sample is taken, of at most 512 MiB.
        observed: A mask, True where a cell is known (for integer data).
        weights: How often each row counts; once by default. Of a Parquet or Arrow file the name of
            a column.
        information: How mutual information is estimated. ``"discrete"``: from the counts of pairs
            of states, of data that are whole numbers from 0 to at most 255
            (:func:`~einet.structures.mutual_information`), or of their levels. ``"gaussian"``: from
            correlations, of numbers of any kind
            (:func:`~einet.structures.gaussian_information`).
        levels: Of discrete data, the most states of a variable that pairs are compared by. Of more
            states neighbouring ones are counted as one, in levels of about equal frequency: a table
            of 256 × 256 states needs far more rows than most data have, and more time. As many
            levels as the rows can tell apart by default (64 rows to each cell of the table of a
            pair, but at least 16); None for all states. With a number, data may be numbers of any
            kind. Only the tree depends on it, not what a model of it sees.
        smoothing: The pseudo-count of each pair: spread evenly over its states, or so many rows in
            which they are independent; at least 0.
        trees: The number of trees, mixed at the root. The first is that of the data, all others
            are those of bootstrap samples of the rows. They share no other region.
        seed: Seed of these samples, at least 0. The first trees stay the same when ``trees`` grows.

    Returns:
        The graph; its root is region 0.

    Example:
        A chain: each variable is the one before it, or (once in ten rows) its opposite.

        >>> flips = torch.rand(1000, 5, generator=torch.manual_seed(0)) < 0.1
        >>> graph = chow_liu(flips.cumsum(1) % 2)
        >>> [graph.variables(child) for child in graph.partitions[0].children]
        [(2,), (0, 1), (3, 4)]
        >>> chow_liu(flips.cumsum(1) % 2, trees=3)
        RegionGraph(num_variables=5, regions=22, leaves=15, partitions=9, layers=3)
    """
    trees = as_int("trees", trees, minimum=1)
    seed = as_seed(seed)
    check_choice("information", information, list(_ESTIMATES))
    data, weights = sample_of(data, "data", seed, weights)
    if information == "discrete":
        batch = as_discrete(data, observed, weights, levels)
    else:
        if as_levels(levels) != "auto":
            raise ValueError(f'levels is for information="discrete", got {levels} with others')
        batch = as_rows(data, observed, weights)
    estimate = _ESTIMATES[information]
    num_variables = batch.x.shape[1]
    if num_variables == 1 and trees > 1:
        raise ValueError(f"trees must be 1 for a single variable, got {trees}")
    check_size("trees", num_variables, 2 * trees * num_variables)
    scopes = [(1 << num_variables) - 1]
    partitions: list[tuple[int, tuple[int, ...]]] = []
    generator = torch.Generator().manual_seed(seed)
    for number in range(trees):
        sample = batch if number == 0 else _bootstrap(batch, generator)
        of_pairs = estimate(sample, smoothing=smoothing)
        # Rounded, so that what decides between equal pairs is their order and not the device.
        neighbours = maximum_spanning_tree(of_pairs.round(decimals=12).cpu().numpy())
        add_tree(neighbours, scopes, partitions)
    return RegionGraph(num_variables, scopes, partitions)


def maximum_spanning_tree(weight: np.ndarray) -> list[list[int]]:
    """Prim's algorithm on a full graph: the neighbours of every node, ascending.

    Of equal weights the one towards the lower node is taken.

    >>> maximum_spanning_tree(np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]]))
    [[2], [2], [0, 1]]
    """
    count = len(weight)
    neighbours: list[list[int]] = [[] for _ in range(count)]
    # Of every node outside the tree the heaviest edge into it; nodes inside are at −∞.
    best = weight[0].copy() if count else np.empty(0)
    towards = np.zeros(count, dtype=np.intp)
    outside = np.ones(count, dtype=bool)
    outside[:1], best[:1] = False, -np.inf
    for _ in range(count - 1):
        node = int(best.argmax())
        inside = int(towards[node])
        neighbours[node].append(inside)
        neighbours[inside].append(node)
        outside[node], best[node] = False, -np.inf
        nearer = outside & (weight[node] > best)
        best[nearer], towards[nearer] = weight[node][nearer], node
    return [sorted(nodes) for nodes in neighbours]


def central_root(neighbours: list[list[int]]) -> int:
    """The node of a tree from which the farthest one is as near as can be.

    >>> central_root([[1], [0, 2], [1, 3], [2, 4], [3]])
    2
    """
    # The ends of a longest path: the farthest node from anywhere, and the farthest from that.
    end = _breadth_first(neighbours, 0)[0][-1]
    order, parent = _breadth_first(neighbours, end)
    path = [order[-1]]
    while path[-1] != end:
        path.append(parent[path[-1]])
    # A path with an even number of nodes has two centres: the lower one.
    return min(path[(len(path) - 1) // 2], path[len(path) // 2])


def _breadth_first(neighbours: list[list[int]], root: int) -> tuple[list[int], list[int]]:
    """Nodes by distance from the root, and every node's neighbour on the way to it."""
    order, parent = [root], [root] * len(neighbours)
    for node in order:  # which grows
        for other in neighbours[node]:
            if other != parent[node]:
                parent[other] = node
                order.append(other)
    return order, parent


def add_tree(
    neighbours: list[list[int]],
    scopes: list[int],
    partitions: list[tuple[int, tuple[int, ...]]],
    members: Sequence[Sequence[int]] | None = None,
    root: int | None = None,
) -> None:
    """Append the regions of a tree, from its root downwards; the root itself is region 0.

    Args:
        neighbours: The tree: those of every node.
        scopes: The scopes of regions; the first is that of the root.
        partitions: The partitions: a region, and its children.
        members: The variables of every node, each of which gets a leaf of its own beside the
            regions below the node; by default node i is variable i. A root with at least two
            neighbours may have none.
        root: The node to begin with; the central one by default.
    """
    members = [(node,) for node in range(len(neighbours))] if members is None else members
    root = central_root(neighbours) if root is None else root
    order, parent = _breadth_first(neighbours, root)
    below = [sum(1 << variable for variable in group) for group in members]
    for node in reversed(order[1:]):
        below[parent[node]] |= below[node]
    region = {root: 0}
    for node in order:
        children = [other for other in neighbours[node] if other != parent[node]]
        if len(members[node]) + len(children) < 2:
            # A variable by itself is its own leaf.
            continue
        first = len(scopes)
        scopes.extend(1 << variable for variable in members[node])
        for child in children:
            region[child] = len(scopes)
            scopes.append(below[child])
        partitions.append((region[node], tuple(range(first, len(scopes)))))


def _bootstrap(batch: Batch, generator: torch.Generator) -> Batch:
    """As many rows drawn at random as there are, as weights of the rows."""
    rows = len(batch)
    # Drawn on the CPU, so that a seed means the same on every device.
    drawn = torch.bincount(torch.randint(rows, (rows,), generator=generator), minlength=rows)
    weights = drawn.double().to(batch.x.device)
    return replace(batch, weights=weights if batch.weights is None else weights * batch.weights)
