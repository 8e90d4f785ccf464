"""The place in an epoch as plain values and tensors, and back with everything checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from einet.learning.learner import LearnerState
from einet.learning.plain import as_count, as_fields, as_list
from einet.learning.steps import Place

__all__ = ["load_place", "place_state"]

# Epochs of more steps than this are nobody's.
_MOST_STEPS = 1 << 48


def place_state(place: Place, hidden: Sequence[torch.Generator]) -> LearnerState:
    """What :func:`load_place` makes the place of again.

    Args:
        place: How far the epoch has come.
        hidden: What draws the cells to hide, as it is by now.
    """
    # Before the first step they are as they were made.
    hidden = hidden if place.steps else []
    values = {"hidden_on": [generator.device.type for generator in hidden]}
    tensors = {"at": torch.tensor([place.steps, int(place.over)])}
    tensors |= {f"hidden.{n}": generator.get_state() for n, generator in enumerate(hidden)}
    if place.total is not None and place.weight is not None:
        tensors |= {"total": place.total.detach(), "weight": place.weight.detach()}
    return values, tensors


def load_place(
    values: Any,
    tensors: dict[str, Tensor],
    *,
    shape: Sequence[int],
    steps: int | None,
    known: bool = True,
    device: torch.device,
    hidden: Sequence[torch.Generator],
) -> Place:
    """The place that :func:`place_state` told of, if it can be one.

    Args:
        values, tensors: What it told.
        shape: That of sums of the objective: one number, or one for each model.
        steps: How many steps an epoch has, or has at most; None where nobody knows.
        known: Whether it has as many as that.
        device: Where sums are kept.
        hidden: What draws the cells to hide; it goes on from where it was.
    """
    values = as_fields(values, "place", ["hidden_on"])
    at = tensors.get("at")
    if at is None or at.dtype != torch.int64 or at.shape != (2,):
        raise ValueError("place.at must be two whole numbers: the steps, and whether all are done")
    over = as_count(int(at[1]), "place.at[1]", 0, 1)
    most = _MOST_STEPS if steps is None else steps
    least = 0 if not over else most if known and steps is not None else 1
    place = Place(as_count(int(at[0]), "place.at[0]", least, most), over=bool(over))
    sums = ["total", "weight"] if place.steps else []
    devices = as_list(values["hidden_on"], "place.hidden_on", [len(hidden)] if sums else [0])
    names = ["at", *sums, *(f"hidden.{number}" for number in range(len(devices)))]
    if sorted(tensors) != sorted(names):
        raise ValueError(f"place must have the tensors {names}, got {sorted(tensors)!r:.200}")
    if sums:
        place.total, place.weight = (
            _sum(name, tensors[name], torch.Size(shape)).to(device) for name in sums
        )
    for number, (generator, there) in enumerate(zip(hidden, devices, strict=False)):
        here = generator.device.type
        if there != here:
            raise ValueError(
                f"place: cells to hide were drawn on {there!r:.20} in the middle of an epoch, and "
                f"cannot be drawn the same on {here!r}; go on where it began"
            )
        state = tensors[f"hidden.{number}"]
        like = generator.get_state()
        if (state.dtype, state.shape) != (like.dtype, like.shape):
            raise ValueError(f"hidden.{number} is no state of a random number generator")
        try:
            generator.set_state(state)
        except RuntimeError as error:
            raise ValueError(f"hidden.{number}: {error}") from error
    return place


def _sum(name: str, tensor: Tensor, shape: torch.Size) -> Tensor:
    if tensor.dtype != torch.float64 or tensor.shape != shape:
        raise ValueError(
            f"place.{name} must be torch.float64 of shape {list(shape)}, got {tensor.dtype} of "
            f"shape {list(tensor.shape)}"
        )
    # A total of −∞ is that of an impossible row.
    most = bool((tensor < torch.inf).all())
    if not most or (name == "weight" and bool((tensor < 0).any())):
        raise ValueError(f"place.{name} must hold sums of numbers, got {tensor.tolist()!r:.60}")
    return tensor
