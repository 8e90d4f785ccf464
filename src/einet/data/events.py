"""Evidence that is more than a point: a cell known to lie in an interval, or in some states.

A user writes events with :func:`between`, :func:`among` and :func:`likelihood`, one for a variable:
``where={"age": between(30, 40)}``. For a batch of rows they become :class:`Events`, which a
:class:`~einet.data.Batch` carries along.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from einet._checks import shown

__all__ = [
    "Between",
    "Event",
    "Events",
    "StateColumn",
    "States",
    "among",
    "as_events",
    "between",
    "likelihood",
]


@dataclass(frozen=True)
class Between:
    """The event lower ≤ x ≤ upper; the same for all rows (``[]``), or one for each (``[rows]``)."""

    lower: Float[Tensor, "*rows"]
    upper: Float[Tensor, "*rows"]

    @property
    def rows(self) -> int | None:
        """How many rows it is for; None if it is the same for any number."""
        return self.lower.shape[0] if self.lower.ndim else None


@dataclass(frozen=True)
class States:
    """A weight for each of some states: 1 and 0 say which are possible, others how likely.

    ``values`` are the states; ``weights`` are the same for all rows (``[states]``), or for each
    (``[rows, states]``). A ``table`` has the states 0, 1, … to the last that there is.
    """

    values: Float[Tensor, " states"]
    weights: Float[Tensor, "*rows states"]
    table: bool

    @property
    def rows(self) -> int | None:
        """How many rows it is for; None if it is the same for any number."""
        return self.weights.shape[0] if self.weights.ndim == 2 else None


#: What may be known of a cell.
Event: TypeAlias = Between | States


def between(lower: Any = None, upper: Any = None) -> Between:
    """A cell is known to lie in an interval: lower ≤ x ≤ upper, both ends included.

    For variables of any family; states of discrete ones are counted 0, 1, …

    Args:
        lower, upper: A number for all rows, or one for each; None, or infinite, for no bound.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
        >>> model.columns = ["age", "height"]
        >>> p = [model.log_prob(where={"age": e}).exp() for e in (between(upper=1), between(1))]
        >>> (p[0] + p[1]).item()
        1.0
    """
    bounds = [
        torch.tensor(end, dtype=torch.float64) if value is None else _numbers(name, value)
        for name, value, end in (("lower", lower, -torch.inf), ("upper", upper, torch.inf))
    ]
    for name, bound in zip(("lower", "upper"), bounds, strict=True):
        if bound.ndim > 1:
            raise ValueError(
                f"{name} must be one number or one for each row, got shape {list(bound.shape)}"
            )
        if bool(bound.isnan().any()):
            raise ValueError(f"{name} must not be NaN; None stands for no bound")
    low, high = bounds
    if low.ndim and high.ndim and low.shape != high.shape:
        raise ValueError(
            f"lower and upper must be for as many rows, got {low.shape[0]} and {high.shape[0]}"
        )
    low, high = torch.broadcast_tensors(low, high)
    wrong = (low > high).nonzero()
    if len(wrong):
        row = tuple(wrong[0].tolist())
        where = f" in row {row[0]}" if row else ""
        raise ValueError(
            f"lower must not be above upper, got {low[row].item():g} and {high[row].item():g}"
            f"{where}"
        )
    return Between(low.contiguous(), high.contiguous())


def among(states: Any) -> States:
    """A cell of a discrete variable is known to be in one of some states.

    Args:
        states: Whole numbers, for all rows. Or True and False for every state that there is,
            ``[states]`` for all rows or ``[rows, states]`` for each.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Categorical(3), num_sums=3)
        >>> p = model.prior().probabilities(0)[0]
        >>> torch.allclose(model.log_prob(where={0: among([0, 2])}).exp(), p[0] + p[2])
        True
    """
    if isinstance(states, Collection) and not isinstance(states, Sequence | np.ndarray | str):
        states = list(states) if not isinstance(states, Mapping | bytes) else states
    array = states if isinstance(states, Tensor) else _array("states", states)
    if array.dtype == (torch.bool if isinstance(array, Tensor) else np.bool_):
        mask = torch.as_tensor(array).double()
        return _table("states", "True and False for every state", mask)
    values = _numbers("states", states)
    if values.ndim != 1 or not len(values):
        raise ValueError(
            "states must be a sequence of at least one whole number, or True and False for every "
            f"state, got shape {list(values.shape)}"
        )
    off = (values != values.round()) | ~values.isfinite()
    if bool(off.any()):
        raise ValueError(f"states must be whole numbers, got {values[off][0].item():g}")
    values = values.unique()
    return States(values, torch.ones_like(values), table=False)


def likelihood(table: Any) -> States:
    """Soft evidence: how likely what was seen of a cell would be in each state of its variable.

    A row then has E[table[x]] as its probability, and posteriors are ∝ p(x) · table[x]. Numbers of
    0 and 1 say the same as :func:`among`.

    Args:
        table: A number for every state of a discrete variable, not negative; ``[states]`` for all
            rows, or ``[rows, states]``.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
        >>> p = model.prior().probabilities(0)[0]
        >>> seen = model.given(where={0: likelihood([0.9, 0.1])}).probabilities(0)[0]
        >>> torch.allclose(seen, (p * torch.tensor([0.9, 0.1])) / (0.9 * p[0] + 0.1 * p[1]))
        True
    """
    weights = _numbers("table", table)
    off = ~weights.isfinite() | (weights < 0)
    if bool(off.any()):
        raise ValueError(
            f"table must hold finite numbers that are not negative, got {weights[off][0].item():g}"
        )
    return _table("table", "a number for every state", weights)


def _table(name: str, what: str, weights: Tensor) -> States:
    if weights.ndim not in (1, 2) or not weights.shape[-1]:
        raise ValueError(
            f"{name} must hold {what}, [states] or [rows, states], got shape {list(weights.shape)}"
        )
    values = torch.arange(weights.shape[-1], dtype=torch.float64, device=weights.device)
    return States(values, weights, table=True)


def _array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, str | bytes | Mapping):
        raise TypeError(f"{name} must be numbers, got {shown(value)}")
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be numbers, got {shown(value)}: {error}") from error


def _numbers(name: str, value: Any) -> Float[Tensor, "*shape"]:
    """Numbers as a float64 tensor of their own."""
    if isinstance(value, Tensor):
        if value.dtype == torch.bool or value.is_complex():
            raise TypeError(f"{name} must be numbers, got a tensor of {value.dtype}")
        return value.detach().to(torch.float64, copy=True)
    array = _array(name, value)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be numbers, got {shown(value)}")
    return torch.tensor(array, dtype=torch.float64)


# -- events of a batch -----------------------------------------------------------------------------


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
