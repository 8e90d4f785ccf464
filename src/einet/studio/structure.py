"""The model itself, as the page draws it: in numbers, and region by region.

Graphs may have a million regions: one level is told at a time, and of many children a few.
"""

from __future__ import annotations

import json
from typing import Any
from weakref import WeakKeyDictionary

from einet.models.einet import Einet
from einet.storage import FORMAT
from einet.structures import RegionGraph
from einet.studio.answers import ApiError
from einet.studio.files import Opened

__all__ = ["describe_model", "describe_regions", "find_region", "names_of", "parts_of"]

#: The region above all others of a mixture.
MIXTURE = "mixture"

# So many names, partitions and children are told of.
_MOST_NAMES, _MOST_PARTITIONS, _MOST_CHILDREN = 12, 24, 24
_MOST_LAYERS, _MOST_TEXT, _MOST_PARTS = 60, 4000, 64

# What was found of a graph, which is never changed; it goes with its model.
_described: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def describe_model(opened: Opened) -> dict[str, Any]:
    """A model in numbers and a few lines of text."""
    model = opened.model
    told = _described.get(model)
    if told is None:
        # No lock: threads may find the same at the same time, and either serves.
        told = _described[model] = _numbers(opened)
    return told


def _numbers(opened: Opened) -> dict[str, Any]:
    parts = parts_of(opened)
    first = parts[0][1]
    families: dict[str, int] = {}
    for group in first.leaf.family_groups:
        name = group.kind.__name__
        families[name] = families.get(name, 0) + len(group.variables)
    graph = first.graph
    layers = graph.layers()
    sizes = [len(layer) for layer in layers]
    text = str(opened.table_model) if opened.table_model is not None else str(opened.model)
    metadata = {key: value for key, value in opened.metadata.items() if key != "history"}
    return {
        "kind": opened.kind,
        "name": opened.name,
        "text": _cut(text),
        "summary": _cut(graph.summary()),
        "parameters": opened.model.num_parameters,
        "families": families,
        "sums": {"number": first.num_sums, "leaves": first.num_leaves, "kind": first.sums},
        "classes": first.num_classes,
        "structure": {
            "models": len(parts),
            "variables": graph.num_variables,
            "regions": len(graph.scopes),
            "leaves": len(graph.leaves),
            "partitions": len(graph.partitions),
            "depth": len(layers) - 1,
            "layers": sizes[:_MOST_LAYERS],
        },
        "history": opened.history,
        "file": {"format": FORMAT, "metadata": _told(metadata)},
    }


def _told(metadata: Any) -> dict[str, Any]:
    """What a file says, each part cut to what can be read."""
    return {str(key): _cut(json.dumps(value)) if len(json.dumps(value)) > _MOST_TEXT else value
            for key, value in metadata.items()}  # fmt: skip


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "…"


def parts_of(opened: Opened) -> list[tuple[float, Einet]]:
    """The Einets of a model, with their weights."""
    parts: list[Any] = list(opened.model.weighted_einets())
    return [(float(log_weight.exp()), einet) for log_weight, einet in parts]


def find_region(opened: Opened, region: str) -> tuple[Einet, int, int]:
    """The Einet and the number of a region ``part:number``, and the part."""
    parts = parts_of(opened)
    try:
        part, number = (int(word) for word in region.split(":"))
    except ValueError:
        raise ApiError(
            422, f"region must be PART:NUMBER, such as 0:3, got {region[:40]!r}"
        ) from None
    if not 0 <= part < len(parts) or not 0 <= number < len(parts[part][1].graph.scopes):
        raise ApiError(404, f"the model has no region {region[:40]!r}")
    return parts[part][1], number, part


def describe_regions(opened: Opened, root: str | None) -> dict[str, Any]:
    """A region, its partitions, and the regions right below it.

    Args:
        opened: The model.
        root: The region; that above all others where none is given.
    """
    parts = parts_of(opened)
    if root is None:
        root = MIXTURE if len(parts) > 1 else f"0:{parts[0][1].graph.root}"
    if root == MIXTURE:
        heaviest = sorted(range(len(parts)), key=lambda n: -parts[n][0])[:_MOST_PARTS]
        children = [
            {**_head(opened, parts[n][1], parts[n][1].graph.root, n), "weight": parts[n][0]}
            for n in heaviest
        ]
        count = parts[0][1].graph.num_variables
        region = {
            "id": MIXTURE,
            "scope": names_of(opened, range(min(count, _MOST_NAMES))),
            "count": count,
            "kind": "mixture",
            "sums": len(parts),
            "num_partitions": len(parts),
        }
        partitions = [{"children": [child], "num_children": 1} for child in children]
        return {"region": region, "num_partitions": len(parts), "partitions": partitions}
    einet, number, part = find_region(opened, root)
    graph = einet.graph
    splits = graph.partitions_of(number)
    partitions = []
    for split in splits[:_MOST_PARTITIONS]:
        children = graph.partitions[split].children
        # The largest first: those that there is more to see of.
        some = sorted(children, key=lambda child: -graph.scopes[child].bit_count())
        heads = [_head(opened, einet, child, part) for child in some[:_MOST_CHILDREN]]
        partitions.append({"children": heads, "num_children": len(children)})
    return {
        "region": _head(opened, einet, number, part),
        "num_partitions": len(splits),
        "partitions": partitions,
    }


def _head(opened: Opened, einet: Einet, region: int, part: int) -> dict[str, Any]:
    """A region by itself."""
    graph = einet.graph
    splits = graph.partitions_of(region)
    sums = einet.num_sums if splits else einet.num_leaves
    sums = einet.num_classes if region == graph.root and splits else sums
    return {
        "id": f"{part}:{region}",
        "scope": names_of(opened, _first_variables(graph, region)),
        "count": graph.scopes[region].bit_count(),
        "kind": "inner" if splits else "leaf",
        "sums": sums,
        "num_partitions": len(splits),
    }


def _first_variables(graph: RegionGraph, region: int) -> list[int]:
    """The first few variables of a region."""
    scope, found = graph.scopes[region], []
    while scope and len(found) < _MOST_NAMES:
        lowest = scope & -scope
        found.append(lowest.bit_length() - 1)
        scope ^= lowest
    return found


def names_of(opened: Opened, variables: Any) -> list[str]:
    """What variables are called: columns, pixels, or names that the model has for them."""
    names = []
    for variable in variables:
        if opened.table_model is not None:
            names.append(_column_of(opened.table_model.table, variable))
        elif opened.pixels is not None:
            _, width, channels = opened.pixels.shape
            place, channel = divmod(variable, channels)
            name = f"{place // width},{place % width}"
            names.append(name if channels == 1 else f"{name} {'RGB'[channel]}")
        elif opened.model.columns is not None:
            names.append(str(opened.model.columns[variable]))
        else:
            names.append(f"x{variable}")
    return names


def _column_of(table: Any, variable: int) -> str:
    for name in table.modelled:
        where = table.variables(name)
        if variable in where:
            # A column with spikes is two variables: which spike, and the number beside them.
            return f"{name} (spike)" if len(where) > 1 and variable == where.start else str(name)
    return f"x{variable}"
