"""What a leaf or a sum of a model holds, in numbers, and in the terms of a table's columns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from einet.families import Categorical
from einet.layers import EinsumLayer, LinearLayer, MixingLayer
from einet.layers.compiler import COMPILERS
from einet.layers.leaf_events import log_states
from einet.layers.parameter import OnPaper
from einet.models.einet import Einet
from einet.studio.answers import ApiError
from einet.studio.evidence import Terms
from einet.studio.files import Opened
from einet.studio.structure import find_region, names_of
from einet.tables.columns import Binned, Number, Spiked, States

__all__ = ["describe_parameters"]

# So many numbers are told, of so many variables and entries.
_MOST_NUMBERS, _MOST_VARIABLES, _MOST_ENTRIES = 200, 8, 16
# Where to find the sums of a graph is not looked for in larger ones.
_MOST_REGIONS = 200_000

_nodes: WeakKeyDictionary[Einet, dict[int, tuple[int, int]]] = WeakKeyDictionary()


def describe_parameters(opened: Opened, region: str) -> dict[str, Any]:
    """The parameters of a region: densities of a leaf, or the heaviest weights of sums.

    Args:
        opened: The model.
        region: The region, ``part:number``.
    """
    einet, number, _ = find_region(opened, region)
    if einet.graph.partitions_of(number):
        return _sums(einet, number)
    return _leaf(opened, einet, number)


# -- leaves --------------------------------------------------------------------------------------


def _leaf(opened: Opened, einet: Einet, region: int) -> dict[str, Any]:
    node = einet.graph.leaves.index(region)
    scope = einet.graph.variables(region)
    told = []
    for variable in scope[:_MOST_VARIABLES]:
        told.append(_variable(opened, einet, node, variable))
    return {"kind": "leaf", "count": len(scope), "entries": einet.num_leaves, "variables": told}


def _variable(opened: Opened, einet: Einet, node: int, variable: int) -> dict[str, Any]:
    """The densities of one variable in a leaf."""
    for block in einet.leaf.leaf_blocks:
        at, position = (
            (
                (block.group.variables[block.columns] == variable)
                & (block.leaves == node).unsqueeze(1)
            )
            .nonzero()
            .unbind(1)
        )
        if not len(at):
            continue
        size = block.columns.shape[1]
        family = block.group.family.at(block.columns[at[0], position[0]].unsqueeze(0))
        place = int(at[0]) * size + int(position[0])
        stored = block.stored.detach()[:, place : place + 1].double().cpu()[:_MOST_ENTRIES]
        told: dict[str, Any] = {
            "name": names_of(opened, [variable])[0],
            "family": block.group.kind.__name__,
        }
        if block.group.kind is Categorical:
            logs = log_states(block, at[:1], position[:1])[:_MOST_ENTRIES, 0]
            count = int(family.num_categories.reshape(-1)[0])  # type: ignore[attr-defined]
            return told | _probabilities(opened, variable, logs[:, :count].exp().cpu().numpy())
        mean = family.mean(stored)[:, 0].numpy()
        deviation = family.variance(stored)[:, 0].sqrt().numpy()
        told |= {"mean": mean, "deviation": deviation}
        return told | _in_terms(opened, variable, mean, deviation)
    raise ApiError(404, "the leaf has no such variable")


def _probabilities(opened: Opened, variable: int, shares: np.ndarray) -> dict[str, Any]:
    states: list[Any] = list(range(shares.shape[1]))
    table = None if opened.table_model is None else opened.table_model.table
    name = None if table is None else _column(table, variable)
    if table is not None and name is not None:
        coding, terms = table.coding(name), Terms(table, name)
        if isinstance(coding, States):
            states = [terms.value(value) for value in coding.values]
        elif isinstance(coding, Spiked):
            states = ["no spike", *(terms.value(value) for value in coding.spikes.tolist())]
        elif isinstance(coding, Binned):
            half = coding.step / 2
            ends = ((low + half, high - half) for low, high in pairwise(coding.edges.tolist()))
            states = [f"{terms.value(low)} to {terms.value(high)}" for low, high in ends]
    most = max(1, _MOST_NUMBERS // len(shares))
    order = np.argsort(-shares.mean(0), kind="stable")[:most]
    return {
        "states": [states[n] for n in order],
        "num_states": shares.shape[1],
        "probabilities": shares[:, order],
    }


def _in_terms(
    opened: Opened, variable: int, mean: np.ndarray, deviation: np.ndarray
) -> dict[str, Any]:
    """Median, and the ends that two thirds lie between, in the units of the column."""
    table = None if opened.table_model is None else opened.table_model.table
    name = None if table is None else _column(table, variable)
    if table is None or name is None:
        return {}
    coding, terms = table.coding(name), Terms(table, name)
    number = coding.number if isinstance(coding, Spiked) else coding
    if not isinstance(number, Number):
        return {}
    told = {}
    for word, z in (("low", mean - deviation), ("median", mean), ("high", mean + deviation)):
        told[word] = [terms.value(x) for x in number.scale.inverse(z).tolist()]
    return told


def _column(table: Any, variable: int) -> Any:
    return next((name for name in table.modelled if variable in table.variables(name)), None)


# -- sums ----------------------------------------------------------------------------------------


def _sums(einet: Einet, region: int) -> dict[str, Any]:
    if len(einet.graph.scopes) > _MOST_REGIONS:
        raise ApiError(422, f"weights are shown for graphs of up to {_MOST_REGIONS:,} regions")
    nodes = _nodes.get(einet)
    if nodes is None:
        nodes = _nodes[einet] = _places(einet)
    layer_number, row = nodes[region]
    layer = einet.circuit.sum_layers[layer_number]
    if isinstance(layer, MixingLayer):
        ends = layer.ends.tolist()
        weight = layer.weight.detach()[ends[row] : ends[row + 1]].T.cpu()
        axes = ["partition"]
    elif isinstance(layer, LinearLayer):
        weight, axes = layer.weight.detach()[row].cpu(), ["entry"]
    elif isinstance(layer, EinsumLayer):
        weight = layer.weight.detach()[row].cpu().unflatten(1, (layer.num_left, layer.num_right))
        axes = ["left", "right"]
    else:
        raise ApiError(422, f"weights of {type(layer).__name__} are not shown")
    flat = weight.double().flatten()
    heaviest = flat.topk(min(_MOST_NUMBERS // (2 + len(axes)), len(flat)))
    places = np.unravel_index(heaviest.indices.numpy(), weight.shape)
    told = [
        {"sum": int(place[0]), **dict(zip(axes, map(int, place[1:]), strict=True)), "weight": value}
        for value, *place in zip(heaviest.values.tolist(), *places, strict=True)
    ]
    shape = list(weight.shape)
    return {"kind": "sum", "sums": shape[0], "inputs": shape[1:], "over": axes,
            "num_weights": len(flat), "heaviest": told}  # fmt: skip


def _places(einet: Einet) -> dict[int, tuple[int, int]]:
    """The layer of each region's sums, and their number in there."""
    graph = einet.graph
    steep = _steep(einet)
    with OnPaper(), torch.no_grad():
        compiler = COMPILERS[einet.sums](
            graph, einet.num_leaves, einet.num_sums, einet.num_classes, steep
        )
    starts: dict[str, list[tuple[int, int, int]]] = {"body": [], "top": []}
    for number, layer in enumerate(compiler.layers):
        starts[layer.target].append((layer.start, layer.start + layer.num_nodes, number))
    places = {}
    for region, node in compiler.node.items():
        if region < len(graph.scopes) and graph.partitions_of(region):
            space = "top" if region == graph.root else "body"
            for start, end, number in starts[space]:
                if start <= node < end:
                    places[region] = (number, node - start)
    return places


def _steep(einet: Einet) -> list[int]:
    """Leaves that the compiler gives sums of their own; see ``steep_leaves``."""
    bounded = torch.zeros(einet.num_variables, dtype=torch.bool)
    for group in einet.leaf.family_groups:
        bounded[group.variables.cpu()] = group.family.bounded
    graph = einet.graph
    kept = []
    for region in graph.leaves:
        first, *others = graph.variables(region)
        if others or not bounded[first]:
            kept.append(region)
    return kept
