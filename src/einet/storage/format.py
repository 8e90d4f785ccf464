"""What the writer and the reader of model files agree on."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.utils import parametrize

from einet.model import Einet

__all__ = [
    "FORMAT",
    "KEY",
    "VERSION",
    "FormatError",
    "compiled_order",
    "is_typed",
    "release",
    "version_of",
]

#: The name of the format, which no other safetensors file bears.
FORMAT = "einet.model"
#: The newest version of the format. A change that older releases cannot read raises it; a file has
#: the lowest version that can say what is in it, so that they read what they can.
VERSION = 2
#: All metadata are one JSON text under one key: the order of several keys changes from run to run,
#: and with it the bytes of a file whose content did not change.
KEY = "einet"


class FormatError(ValueError):
    """A file that is no model, is damaged, or was written by a newer release."""


def release() -> str:
    import einet

    return einet.__version__


def version_of(description: dict[str, Any]) -> int:
    """The version that a description of a model needs: 1 for what the first one knew of."""
    parts = description.get("components", [])
    numeric = any("numeric" in family["config"] for family in description.get("families", []))
    second = description.get("sums") == "linear" or numeric
    return max([2 if second else 1, *map(version_of, parts)])


def is_typed(name: str, tensor: Tensor) -> bool:
    """Whether a tensor has the type of its model's parameters.

    Indices have not, and hyper-parameters may be float64 beside float32 parameters. Components of
    a mixture are models of their own.
    """
    return tensor.is_floating_point() and not name.startswith(("leaf.groups.", "components."))


def compiled_order(model: Einet) -> dict[str, Any]:
    """What the tensors' names do not tell of the compiled order."""
    groups = model.leaf.family_groups
    layers = []
    for layer in model.circuit.sum_layers:
        kind = parametrize.type_before_parametrizations(layer).__name__
        layers.append({"kind": kind, "target": layer.target})
    return {
        "blocks": [groups.index(block.group) for block in model.leaf.leaf_blocks],
        "layers": layers,
    }
