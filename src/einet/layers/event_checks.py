"""Whether the families of a model know what events ask of them."""

from __future__ import annotations

import torch

from einet.data.batch_events import Events, StateColumn
from einet.families import ExponentialFamily
from einet.layers.leaf import LeafLayer
from einet.layers.leaf_block import FamilyGroup

__all__ = ["check_events"]


def check_events(leaf: LeafLayer, events: Events, columns: tuple[str, ...] | None) -> None:
    """Raise unless the families of all variables know what these events ask of them.

    Args:
        leaf: The leaves.
        events: The events.
        columns: The names of the variables, for errors.
    """
    groups: dict[int, tuple[FamilyGroup, int]] = {}
    for group in leaf.family_groups:
        for number, variable in enumerate(group.variables.tolist()):
            groups[variable] = (group, number)

    def called(variable: int) -> str:
        return f"variable {variable}" if columns is None else f"variable {columns[variable]!r}"

    for variable in events.variables:
        family = groups[variable][0].family
        if type(family).log_prob_between is ExponentialFamily.log_prob_between:
            raise NotImplementedError(
                f"{called(variable)} has an event, but {type(family).__name__} does not define "
                "log_prob_between"
            )
    for column in events.states:
        group, number = groups[column.variable]
        _check_states(group.family.at(torch.tensor(number)), column, called(column.variable))


def _check_states(family: ExponentialFamily, column: StateColumn, called: str) -> None:
    name = type(family).__name__
    if not family.discrete:
        raise ValueError(
            f"among and likelihood are for discrete variables, but {called} is {name}; "
            "between is for all"
        )
    if column.table:
        if family.num_states is None:
            raise ValueError(
                f"the event of {called} must name its states (among), as {name} has no end of "
                "them, got a table"
            )
        states = torch.arange(family.num_states, dtype=torch.float64, device=column.values.device)
        count = int((family.log_h(states) > -torch.inf).sum())
        if len(column.values) != count:
            raise ValueError(
                f"the event of {called} must have one number for each of its {count} states, "
                f"got {len(column.values)}"
            )
        return
    absent = column.values[family.log_h(column.values) == -torch.inf]
    if len(absent):
        raise ValueError(
            f"the event of {called} must be among its states, {family.support}, "
            f"got {absent[0].item():g}"
        )
