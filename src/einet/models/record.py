"""What a file says of a model: the writer's half of the format, and what both halves agree on."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from einet._version import __version__
from einet.data.files import FormatError, write_tensors
from einet.models.sparse import ENDINGS, KEPT, is_sparse, pack
from einet.models.state import RECORD
from einet.models.values import check_values
from einet.structures import RegionGraph

__all__ = [
    "FORMAT",
    "KEY",
    "MOST_LEVELS",
    "VERSION",
    "FormatError",
    "common_dtype",
    "is_typed",
    "levels_of",
    "version_of",
    "write_model",
]

#: The name of the format, which no other safetensors file bears.
FORMAT = "einet.model"
#: The newest version of the format. A change that older releases cannot read raises it; a file has
#: the lowest version that can say what is in it, so that they read what they can.
VERSION = 3
#: All metadata are one JSON text under one key: the order of several keys changes from run to run,
#: and with it the bytes of a file whose content did not change.
KEY = "einet"
#: Mixtures of mixtures of mixtures: deeper ones could be built, but hardly be asked anything.
MOST_LEVELS = 32
# The weights of sums.
_WEIGHT = re.compile(r"(components\.\d+\.)*circuit\.layers\.\d+\.weight")


def version_of(description: dict[str, Any]) -> int:
    """The version that a description of a model needs: 1 for what the first one knew of."""
    parts = description.get("components", [])
    numeric = any("numeric" in family["config"] for family in description.get("families", []))
    second = description.get("sums", "einsum") != "einsum" or numeric
    return max([2 if second else 1, *map(version_of, parts)])


def levels_of(description: dict[str, Any]) -> int:
    """How many models are within models; 1 for an Einet."""
    levels, models = 0, [description]
    while models:
        levels += 1
        models = [part for model in models for part in model.get("components", [])]
    return levels


def is_typed(name: str, tensor: Tensor) -> bool:
    """Whether a tensor has the type of its model's parameters.

    Indices have not, and hyper-parameters may be float64 beside float32 parameters. Components of
    a mixture are models of their own.
    """
    return tensor.is_floating_point() and not name.startswith(("leaf.groups.", "components."))


def write_model(
    path: str | os.PathLike[str],
    model: nn.Module,
    description: dict[str, Any],
    graphs: Mapping[RegionGraph, str],
    metadata: Mapping[Any, Any] | None,
) -> None:
    """Write a model, as it describes itself, to one file.

    Args:
        path: The file.
        model: What has the tensors.
        description: What the file says beside them.
        graphs: The names under which the description refers to graphs.
        metadata: What else the file shall tell.
    """
    if levels_of(description) > MOST_LEVELS:
        raise ValueError(
            f"model must be of at most {MOST_LEVELS} mixtures within mixtures to be saved, got "
            f"{levels_of(description)}"
        )
    tensors = dict(_written(model))
    sparse = any(name.endswith(KEPT) for name in tensors)
    header = {
        "format": FORMAT,
        "version": 3 if sparse else version_of(description),
        "einet": __version__,
        "model": description,
    }
    if metadata:
        header["metadata"] = _plain(metadata)
    for graph, name in graphs.items():
        for part, array in graph.to_arrays().items():
            tensors[f"{name}.{part}"] = torch.from_numpy(array)
    check_values(model)
    write_tensors(path, tensors, KEY, header)


def _plain(metadata: Any) -> dict[str, Any]:
    """A user's metadata, checked to come back from the file as they are."""
    names = isinstance(metadata, Mapping) and all(isinstance(name, str) for name in metadata)
    if not names:
        raise TypeError(f"metadata must be a dict with strings for keys, got {metadata!r}")
    try:
        return json.loads(json.dumps(dict(metadata), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"metadata must hold what JSON can say: {error}") from error


def common_dtype(model: nn.Module) -> str:
    """The type of a model's parameters, which must all have the same."""
    types = {
        str(tensor.dtype) for name, tensor in model.state_dict().items() if is_typed(name, tensor)
    }
    if len(types) > 1:
        raise ValueError(
            f"the parameters must be of one type, got {', '.join(sorted(types))}; cast the model "
            "as a whole, as by model.to(torch.float32)"
        )
    return types.pop().removeprefix("torch.")


def _written(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a file: parameters and buffers, weights of pruned sums as what is left."""
    for name, tensor in _canonical(model):
        if _WEIGHT.fullmatch(name) and is_sparse(tensor):
            for end, part in zip(ENDINGS, pack(tensor), strict=True):
                yield name + end, part
        else:
            yield name, tensor


def _canonical(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers by name, as if nothing were parametrised."""
    for name in model.state_dict():
        if name.rpartition(".")[2] == RECORD:
            # The description says all that a record in a state says.
            continue
        # A parametrised module computes under the old name what it keeps under this one.
        name = name.replace("parametrizations.", "").removesuffix(".original")
        owner, _, attribute = name.rpartition(".")
        yield name, getattr(model.get_submodule(owner), attribute).detach()
