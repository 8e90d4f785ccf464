"""State dictionaries: what they say of the model they are of, and whether they fit another.

Beside its tensors, the state of an Einet holds a record: a few plain values as the bytes of a JSON
text, in one tensor of torch's name for such, ``_extra_state``. As a tensor it goes wherever a state
goes: through ``torch.save`` and safetensors, into a larger module, from device to device.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from einet.models.values import check_values

if TYPE_CHECKING:
    from einet.models.base import Model
    from einet.models.einet import Einet

__all__ = ["RECORD", "check_state", "is_initialized", "read_record", "record_of"]

#: The name of the record, in front of which a module's own name stands.
RECORD = "_extra_state"
# What two models must have in common for one to take the state of the other. Which nodes a layer
# reads is in its tensors of indices, which are compared as well.
_IN_COMMON = ("families", "sums", "num_sums", "num_leaves", "num_classes", "layers")


def record_of(einet: Einet) -> Tensor:
    """What the state of an Einet says beside its tensors, as bytes."""
    order = json.dumps(einet.compiled_order())
    record = {
        "initialized": int(einet.initialized),
        "families": [
            [type(g.family).__name__, g.family.config()] for g in einet.leaf.family_groups
        ],
        "sums": einet.sums,
        "num_sums": einet.num_sums,
        "num_leaves": einet.num_leaves,
        "num_classes": einet.num_classes,
        "layers": hashlib.sha256(order.encode()).hexdigest()[:16],
    }
    return torch.tensor(list(json.dumps(record).encode()), dtype=torch.uint8)


def read_record(record: Any, name: str = RECORD) -> dict[str, Any]:
    """The plain values of a record.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
        >>> read_record(model.state_dict()["_extra_state"])["num_sums"]
        3
    """
    try:
        # A state that was cast to another type as a whole still has these small numbers in it.
        values = json.loads(bytes(record.flatten().long().tolist()))
        initialized = values["initialized"]
    except (AttributeError, TypeError, ValueError, KeyError, RecursionError):
        initialized = None
    if not isinstance(initialized, int) or initialized not in (0, 1):
        raise RuntimeError(f"state_dict[{name!r}] is damaged: it must be the record of a model")
    return values


def is_initialized(einet: Einet, state: Mapping[str, Any], prefix: str) -> bool:
    """Whether an Einet that has taken this state is initialised.

    States of earlier releases do not say. They are taken for what states are mostly kept of, a
    model that has learnt: if they hold all its leaves, these are not to be drawn anew.
    """
    if prefix + RECORD in state:
        return bool(read_record(state[prefix + RECORD], prefix + RECORD)["initialized"])
    leaves = [name for name, _ in einet.named_parameters() if name.startswith("leaf.")]
    return einet.initialized or all(prefix + name in state for name in leaves)


def check_state(model: Model, state: Mapping[str, Any], prefix: str = "") -> None:
    """Raise unless a state can be put into a model, as far as it goes; nothing is changed.

    Args:
        model: The model.
        state: Tensors by name.
        prefix: What stands in front of the model's own names.

    Raises:
        RuntimeError: The state is of another structure or of other families, tensors have another
            shape, or their numbers are not those of a distribution (see :func:`check_values`).
    """
    own = model.state_dict()
    given: dict[str, Tensor] = {}
    for name, here in own.items():
        if prefix + name not in state:
            continue
        there = state[prefix + name]
        if name.rpartition(".")[2] == RECORD:
            _check_record(read_record(there, prefix + name), read_record(here), prefix + name)
        elif isinstance(there, Tensor):
            given[name] = there.detach()
        else:
            raise RuntimeError(
                f"state_dict[{prefix + name!r}] must be a tensor, got {type(there).__name__}"
            )
    for name, there in given.items():
        here = own[name]
        if there.shape != here.shape:
            raise RuntimeError(
                f"state_dict is of another model: size mismatch for {prefix}{name}, which has "
                f"shape {list(there.shape)} there and {list(here.shape)} here"
            )
        if not here.is_floating_point() and not torch.equal(there.to(here), here):
            raise RuntimeError(
                f"state_dict is of another model: {prefix}{name} differs, and so does the graph"
            )
    try:
        check_values(model, given)
    except ValueError as error:
        raise RuntimeError(f"state_dict holds what no model has: {error}") from error


def _check_record(there: dict[str, Any], here: dict[str, Any], name: str) -> None:
    differing = [field for field in _IN_COMMON if there.get(field) != here[field]]
    if differing:
        told = "; ".join(f"{f} {there.get(f)!r} there and {here[f]!r} here" for f in differing)
        raise RuntimeError(f"state_dict is of another model ({name}): it has {told}")
