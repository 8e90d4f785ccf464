"""Evidence that is more than a point: a cell known to lie in an interval, or in some states.

A user writes events with :func:`between`, :func:`among` and :func:`likelihood`, one for a variable:
``where={"age": between(30, 40)}``. What a batch of rows makes of them is in
:mod:`einet.data.batch_events`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from einet._checks import shown

__all__ = ["Between", "Event", "States", "among", "between", "likelihood"]


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
