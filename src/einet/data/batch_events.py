"""The events of a batch of rows: what is known of cells that have no value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from einet._checks import shown
from einet.data.events import Between, Event, States

__all__ = ["Events", "StateColumn", "as_events"]


@dataclass(frozen=True)
class StateColumn:
    """What is known of the state of one variable, in each row.

    ``free`` rows are those in which nothing is, as another value was put there.
    """

    variable: int
    values: Float[Tensor, " states"]
    weights: Float[Tensor, "rows states"]
    free: Bool[Tensor, " rows"]
    table: bool

    def weight_of(self, x: Float[Tensor, " rows"]) -> Float[Tensor, " rows"]:
        """The weight of a state in each row; 0 of states that are not among them."""
        place = torch.searchsorted(self.values, x.contiguous()).clamp(max=len(self.values) - 1)
        weight = self.weights.gather(1, place.unsqueeze(1))[:, 0]
        return torch.where(self.values[place] == x, weight, 0.0)


@dataclass(frozen=True)
class Events:
    """The events of a batch of rows: those that are intervals side by side, others one by one.

    Attributes:
        variables: Those that are known to lie between ``lower`` and ``upper``.
        lower, upper: The bounds of these, in float64.
        states: What is known of the states of others.
    """

    variables: tuple[int, ...]
    lower: Float[Tensor, "rows intervals"]
    upper: Float[Tensor, "rows intervals"]
    states: tuple[StateColumn, ...] = ()

    @property
    def all_variables(self) -> tuple[int, ...]:
        """The variables that have an event of any kind."""
        return (*self.variables, *(column.variable for column in self.states))

    def __getitem__(self, rows: slice | Tensor) -> Events:
        """Those of some rows."""
        columns = tuple(
            replace(column, weights=column.weights[rows], free=column.free[rows])
            for column in self.states
        )
        return Events(self.variables, self.lower[rows], self.upper[rows], columns)

    def to(self, device: torch.device) -> Events:
        """The same on a device."""
        columns = tuple(
            StateColumn(
                column.variable,
                column.values.to(device),
                column.weights.to(device),
                column.free.to(device),
                column.table,
            )
            for column in self.states
        )
        return Events(self.variables, self.lower.to(device), self.upper.to(device), columns)

    def reordered(self, order: Sequence[int]) -> Events:
        """The same where variable ``order[i]`` has become variable i."""
        place = {old: new for new, old in enumerate(order)}
        columns = tuple(replace(each, variable=place[each.variable]) for each in self.states)
        return replace(self, variables=tuple(place[old] for old in self.variables), states=columns)

    @property
    def nbytes(self) -> int:
        """The memory of all tensors."""
        tensors = [self.lower, self.upper]
        for column in self.states:
            tensors += [column.values, column.weights, column.free]
        return sum(tensor.nbytes for tensor in tensors)

    def without(self, cells: Bool[Tensor, "rows variables"]) -> Events:
        """The same with nothing said of some cells."""
        free = cells[:, list(self.variables)]
        lower = torch.where(free, -torch.inf, self.lower)
        upper = torch.where(free, torch.inf, self.upper)
        columns = tuple(
            replace(each, free=each.free | cells[:, each.variable]) for each in self.states
        )
        return Events(self.variables, lower, upper, columns)

    def log_weight(
        self, x: Float[Tensor, "rows variables"], cells: Bool[Tensor, "rows variables"]
    ) -> Float[Tensor, "rows variables"]:
        """What the events say of values: 0 or −∞, or the log of their likelihood (float64).

        It is 0 outside of ``cells``, and where a variable has no event.
        """
        total = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        if self.variables:
            index = list(self.variables)
            values = x[:, index].double()
            inside = (self.lower <= values) & (values <= self.upper)
            total[:, index] = torch.where(inside, 0.0, -torch.inf).to(total)
        for column in self.states:
            weight = column.weight_of(x[:, column.variable].double()).log()
            total[:, column.variable] = torch.where(column.free, 0.0, weight)
        return torch.where(cells, total, 0.0)


def as_events(
    where: Any,
    num_variables: int,
    columns: tuple[str, ...] | None,
    rows: int | None,
    device: torch.device,
) -> Events:
    """Events by variable, checked and spread over the rows of a batch.

    Args:
        where: ``{variable: event}``; a variable is a number, or a name among ``columns``.
        num_variables: How many variables there are.
        columns: Their names, if they have names.
        rows: How many rows there are; None for as many as the events have, or one.
        device: Where to put them.
    """
    if not isinstance(where, Mapping) or not where:
        raise TypeError(f"where must be {{variable: event}}, at least one, got {shown(where)}")
    events: dict[int, Event] = {}
    for name, event in where.items():
        variable = _variable(name, num_variables, columns)
        if not isinstance(event, Between | States):
            raise TypeError(
                f"where[{name!r}] must be an event (einet.between, einet.among or "
                f"einet.likelihood), got {shown(event)}"
            )
        if variable in events:
            raise ValueError(f"where must have one event for a variable, got two for {name!r}")
        events[variable] = event
        count = event.rows
        if count is not None and rows is not None and count != rows:
            raise ValueError(
                f"where[{name!r}] must be for as many rows as there are, {rows}, got {count}"
            )
        rows = count if rows is None else rows
    rows = 1 if rows is None else rows
    intervals = {v: event for v, event in events.items() if isinstance(event, Between)}
    bounds = [
        [getattr(event, side).to(device).expand(rows) for event in intervals.values()]
        for side in ("lower", "upper")
    ]
    nothing = torch.empty(rows, 0, dtype=torch.float64, device=device)
    lower, upper = (torch.stack(each, 1) if each else nothing for each in bounds)
    free = torch.zeros(rows, dtype=torch.bool, device=device)
    states = tuple(
        StateColumn(
            variable,
            event.values.to(device),
            event.weights.to(device).expand(rows, -1),
            free,
            event.table,
        )
        for variable, event in events.items()
        if isinstance(event, States)
    )
    return Events(tuple(intervals), lower, upper, states)


def _variable(name: Any, num_variables: int, columns: tuple[str, ...] | None) -> int:
    if isinstance(name, str):
        if columns is None:
            raise ValueError(
                f"where has the name {name!r}, but the model's variables have none "
                "(model.columns); give their numbers"
            )
        if name not in columns:
            raise ValueError(f"where has the name {name!r}, which is not among model.columns")
        return columns.index(name)
    if isinstance(name, bool) or not isinstance(name, int | np.integer):
        raise TypeError(f"where must have numbers or names of variables, got {shown(name)}")
    if not 0 <= name < num_variables:
        raise ValueError(f"where must have variables from 0 to {num_variables - 1}, got {name}")
    return int(name)
