"""The state of a ``torch.optim`` optimiser as plain values and tensors, and back, checked.

Of the settings of its groups of parameters there are two copies: as the optimiser was made, and as
they are now, where something has changed them. A run goes on with an optimiser that was made the
same way, whatever function made it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from reprlib import repr as shortened
from typing import Any

import torch
from torch import Tensor, nn

from einet.learning.learner import LearnerState
from einet.learning.plain import as_fields, as_list

__all__ = ["Groups", "groups_of", "load_state_of", "state_of"]

#: The settings of every group of parameters.
Groups = list[dict[str, Any]]
_FIELDS = ("optimizer", "began", "groups", "state", "tensors")


def groups_of(optimizer: torch.optim.Optimizer) -> Groups:
    """The settings of its groups, with the numbers of their parameters."""
    groups: Groups = optimizer.state_dict()["param_groups"]
    return [dict(group) for group in groups]


def state_of(optimizer: torch.optim.Optimizer, began: Groups) -> LearnerState:
    """Plain values, and tensors by the number of their parameter and their name.

    Args:
        optimizer: The optimiser.
        began: The settings of its groups when it was made.
    """
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {}
    for number, of_parameter in optimizer.state_dict()["state"].items():
        for name, value in of_parameter.items():
            if isinstance(value, Tensor):
                tensors[f"{number}.{name}"] = value.detach().clone()
            else:
                plain[f"{number}.{name}"] = value
    groups = groups_of(optimizer)
    values = {
        "optimizer": type(optimizer).__qualname__,
        "began": began,
        "groups": None if groups == began else groups,
        "state": plain,
        "tensors": sorted(tensors),
    }
    try:
        return _plain(values), tensors
    except TypeError as error:
        raise ValueError(
            f"checkpoint: the state of {type(optimizer).__name__} cannot be written: {error}"
        ) from error


def _plain(values: Any) -> Any:
    """What comes back from a file, so that nobody learns later that it does not."""
    return json.loads(json.dumps(values))


def load_state_of(
    optimizer: torch.optim.Optimizer,
    began: Groups,
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    values: dict[str, Any],
    tensors: dict[str, Tensor],
) -> None:
    """Give an optimiser the state that :func:`state_of` told of another, if it was made alike.

    Args:
        optimizer: The optimiser, as it was made.
        began: The settings of its groups.
        make: What makes another one of other parameters, to see what it keeps of them.
        values, tensors: The state.
    """
    values = as_fields(values, "trainee", _FIELDS)
    for name, here in (("optimizer", type(optimizer).__qualname__), ("began", _plain(began))):
        if values[name] != here:
            raise ValueError(
                f"it is of another training run (the optimiser was made as {values[name]!r:.300} "
                f"and is made as {here!r:.300})"
            )
    names = as_list(values["tensors"], "trainee.tensors")
    if names != sorted(tensors):
        raise ValueError(f"it must hold the tensors {shortened(names)} of the optimiser")
    if not isinstance(values["state"], dict):
        raise ValueError(f"trainee.state must be an object, got {values['state']!r:.60}")
    state = _by_parameter({**values["state"], **tensors})
    _check_state(state, {} if not state else _kept_after_a_step(optimizer, make))
    groups = began if values["groups"] is None else _checked_groups(values["groups"], began)
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _by_parameter(named: dict[str, Any]) -> dict[int, dict[str, Any]]:
    state: dict[int, dict[str, Any]] = {}
    for key, value in named.items():
        number, point, name = key.partition(".")
        if not (number.isascii() and number.isdigit() and len(number) < 9 and point):
            raise ValueError(f"{key!r:.60} must be the number of a parameter, a point and a name")
        state.setdefault(int(number), {})[name] = value
    return state


def _kept_after_a_step(
    optimizer: torch.optim.Optimizer,
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
) -> dict[int, dict[str, Any]]:
    """What such an optimiser keeps of each parameter, found by a step on copies of them."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    copies = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
    other = make(copies)
    for copy in copies:
        copy.grad = torch.zeros_like(copy)
    other.step(lambda: torch.zeros(()))  # type: ignore[arg-type]
    return other.state_dict()["state"]


def _check_state(state: dict[int, dict[str, Any]], expected: dict[int, dict[str, Any]]) -> None:
    for number, of_parameter in state.items():
        if number not in expected:
            raise ValueError(f"the optimiser keeps nothing of a parameter {number}")
        # Some keep more after many steps than after one.
        for name in {**expected[number], **of_parameter}:
            if name not in of_parameter:
                raise ValueError(f"{number}.{name} of the optimiser's state is missing")
            _check_one(f"{number}.{name}", of_parameter[name], expected[number].get(name))


def _check_one(name: str, value: Any, like: Any) -> None:
    if isinstance(value, Tensor):
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise ValueError(f"{name} of the optimiser's state must hold finite numbers")
        if like is None:
            return
        form = (like.shape, like.dtype) if isinstance(like, Tensor) else type(like).__name__
        if (value.shape, value.dtype) != form:
            raise ValueError(
                f"{name} of the optimiser's state must be {form}, got {value.dtype} of shape "
                f"{list(value.shape)}"
            )
    elif like is not None and type(value) is not type(like):
        raise ValueError(
            f"{name} of the optimiser's state must be {type(like).__name__}, got {value!r:.60}"
        )


def _checked_groups(groups: Any, began: Groups) -> Groups:
    """Settings that were changed on the way: the same ones, each of its kind."""
    checked = []
    for number, group in enumerate(as_list(groups, "trainee.groups", [len(began)])):
        first = began[number]
        group = as_fields(group, f"trainee.groups[{number}]", list(first))
        for name, value in group.items():
            old = _plain(first[name])
            if (name == "params" and value != old) or type(value) is not type(old):
                raise ValueError(
                    f"trainee.groups[{number}].{name} is no such setting: {value!r:.60}"
                )
        # JSON knows no tuples.
        kinds = {name: type(value) for name, value in first.items()}
        checked.append({n: kinds[n](v) if kinds[n] is tuple else v for n, v in group.items()})
    return checked
