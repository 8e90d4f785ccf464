"""Rows of data with all that belongs to them, checked once at the door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from einet.data.arrays import Given, as_given
from einet.data.batch_events import Events, as_events
from einet.data.beside import as_labels, as_weights, labels_of, weights_of
from einet.data.columns import order_of

__all__ = ["Batch", "as_batch", "as_labels", "as_weights", "check_no_events"]


@dataclass
class Batch:
    """Rows of data with all that belongs to them, as :func:`as_batch` has checked it.

    Args:
        x: The cells. A missing one holds NaN if ``x`` is floating; whatever it holds, it is never
            looked at.
        observed: Which cells are known; None is all of them.
        labels: The class of each row, −1 where unknown; None where there are no classes.
        weights: How often each row counts; None is once. For models side by side there is a column
            for each, of how often a row counts for it.
        columns: The names of the variables, where the rows came from a table that has them.
        events: In what interval, or in which states, variables are that are not observed.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
        >>> batch = as_batch([[0.5, 1.0], [1.5, float("nan")]], num_variables=2, weights=[1.0, 3.0])
        >>> len(batch), batch.observed[1], batch[1:].weights
        (2, tensor([ True, False]), tensor([3.], dtype=torch.float64))
        >>> model.log_prob(batch).shape  # every method of a model takes it as it is
        torch.Size([2])
    """

    x: Float[Tensor, "rows variables"] | Integer[Tensor, "rows variables"]
    observed: Bool[Tensor, "rows variables"] | None = None
    labels: Int[Tensor, " rows"] | None = None
    weights: Float[Tensor, "rows *models"] | None = None
    columns: tuple[str, ...] | None = None
    events: Events | None = None

    def __len__(self) -> int:
        return self.x.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Batch:
        """Some of the rows."""
        events = None if self.events is None else self.events[rows]
        return replace(self.map(lambda tensor: tensor[rows]), events=events)

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The same with a function applied to every tensor but those of events.

        Args:
            function: What to make of a tensor; it must keep the order of the rows.

        Example:
            >>> batch = as_batch(
            ...     [[0.5, 1.0], [1.5, 2.0]], num_variables=2, labels=[0, 1], num_classes=2
            ... )
            >>> batch.map(lambda tensor: tensor[:1]).labels
            tensor([0])
        """
        rest = (self.observed, self.labels, self.weights)
        others = (None if tensor is None else function(tensor) for tensor in rest)
        return Batch(function(self.x), *others, columns=self.columns, events=self.events)

    def to(self, device: torch.device) -> Batch:
        """The same on a device; the very same if it lies there already.

        Args:
            device: Where it shall lie.

        Example:
            >>> batch = as_batch([[0.5, 1.0]], num_variables=2)
            >>> batch.to(torch.device("cpu")) is batch, batch.to(torch.device("meta")).x.device
            (True, device(type='meta'))
        """
        tensors = (self.x, self.observed, self.labels, self.weights)
        if all(tensor is None or tensor.device == device for tensor in tensors):
            return self
        events = None if self.events is None else self.events.to(device)
        return replace(self.map(lambda tensor: tensor.to(device)), events=events)

    def hide(self, share: float, generator: torch.Generator) -> Batch:
        """The same with each known cell taken for missing with probability ``share``.

        Args:
            share: That probability.
            generator: Where the choice is drawn from; on the device of the batch.

        Example:
            >>> batch = as_batch(torch.zeros(100, 10), num_variables=10)
            >>> hidden = batch.hide(0.3, torch.Generator().manual_seed(0))
            >>> 0.6 < hidden.mask.double().mean() < 0.8
            tensor(True)
        """
        draws = torch.rand(self.x.shape, generator=generator, device=self.x.device)
        kept = draws >= share
        return replace(self, observed=kept if self.observed is None else kept & self.observed)

    def double(self) -> Batch:
        """The same with values in float64.

        Example:
            >>> as_batch([[1, 2]], num_variables=2).double().x
            tensor([[1., 2.]], dtype=torch.float64)
        """
        return replace(self, x=self.x.double())

    @property
    def cells(self) -> Batch:
        """The data alone, without labels and weights.

        Example:
            >>> batch = as_batch([[0.5, 1.0]], num_variables=2, weights=[2.0])
            >>> batch.cells.weights is None
            True
        """
        return Batch(self.x, self.observed, columns=self.columns, events=self.events)

    @property
    def mask(self) -> Bool[Tensor, "rows variables"]:
        """Which cells are observed, written out.

        Example:
            >>> as_batch([[0.5, float("nan")]], num_variables=2).mask
            tensor([[ True, False]])
        """
        if self.observed is None:
            return torch.ones_like(self.x, dtype=torch.bool)
        return self.observed

    def scanned(self) -> Batch:
        """The same with missing cells found, for data that were not looked through before.

        Example:
            >>> batch = as_batch([[0.5, float("nan")]], num_variables=2, scan=False)
            >>> batch.observed, batch.scanned().observed
            (None, tensor([[ True, False]]))
        """
        if not self.x.is_floating_point():
            return self
        known = self.mask & ~self.x.isnan()
        return replace(self, observed=known)

    @property
    def nbytes(self) -> int:
        """The memory of all tensors.

        Example:
            >>> as_batch(torch.zeros(10, 2), num_variables=2).nbytes  # 20 numbers of 4 bytes
            80
        """
        tensors = (self.x, self.observed, self.labels, self.weights)
        events = 0 if self.events is None else self.events.nbytes
        return events + sum(tensor.nbytes for tensor in tensors if tensor is not None)


def check_no_events(batch: Batch) -> None:
    """Raise where rows have events: nothing is learnt from those, and no recording reads them."""
    if batch.events is not None:
        raise ValueError("x is a Batch with events, which only queries take as evidence")


def as_batch(
    x: Any,
    num_variables: int | None,
    observed: Any = None,
    *,
    labels: Any = None,
    weights: Any = None,
    num_classes: int = 1,
    columns: tuple[str, ...] | None = None,
    name: str = "x",
    prefix: str = "",
    device: torch.device | None = None,
    allow_empty: bool = True,
    scan: bool = True,
    own: bool = False,
    differentiable: bool = False,
    where: Any = None,
    events: bool = False,
) -> Batch:
    """Check data with what belongs to their rows, and find what is missing.

    That is NaN, None, a null or masked cell, or False in ``observed``. Integers stay integers (a
    large data set of bytes keeps its size); the leaves convert. A :class:`Batch` has been checked
    before: it is taken as it is and moved to ``device``.

    A table with named columns is put in the order of ``columns``, where these are given.

    Nobody waits for a GPU here, except to check labels or weights that lie on one. Hence data on a
    GPU always come with a mask, if only of True, where cells could be missing at all.

    Args:
        x, observed: The data, and a mask of the same shape, True where a cell is known.
        num_variables: The number of columns; None for any.
        labels: The class of each row, below ``num_classes``; −1, or missing, where unknown.
        weights: How often each row counts.
        num_classes: The number of classes.
        columns: The names of the variables, where they have names.
        name: What error messages call the data.
        prefix: What stands before ``observed``, ``labels`` and ``weights`` there.
        device: Where to move everything.
        allow_empty: Whether there may be no rows, or none that counts.
        scan: Whether to look for NaN at all; without, the caller does.
        own: Whether to copy what lies in the memory that was given, which may change later.
        differentiable: Whether ``x`` keeps its graph, for gradients in it; a Batch always does.
        where: Events of variables that are not observed: see :mod:`einet.data.events`.
        events: Whether a Batch may come with events. Then ``x`` may also be None, for rows of which
            nothing else is known: as many as the events have, or one.

    Example:
        >>> batch = as_batch([[0.5, float("nan")]], num_variables=2)
        >>> batch.observed
        tensor([[ True, False]])
    """
    if x is None and num_variables is not None and events:
        x, observed = _nothing(where, num_variables, observed, columns, name)
    if isinstance(x, Batch):
        if x.events is not None and not events:
            raise ValueError(f"{name} is a Batch with events, which only queries take as evidence")
        beside = {"observed": observed, "labels": labels, "weights": weights}
        for what, value in beside.items():
            if value is not None:
                raise ValueError(f"{prefix}{what} is given, but {name} is a Batch with its own")
        batch, lenders = x, [x.x, x.observed, x.labels, x.weights]
        if columns is not None and x.columns is not columns and x.columns is not None:
            order = order_of(x.columns, columns, name)
            if order is not None:
                mask = None if x.observed is None else x.observed[:, order]
                known = None if x.events is None else x.events.reordered(order)
                batch = replace(x, x=x.x[:, order], observed=mask, events=known)
            batch = replace(batch, columns=columns)
        _check_shape(batch.x, num_variables, name, allow_empty)
    else:
        given = as_given(x, name, differentiable)
        given = _in_order(given, columns, name)
        _check_shape(given.values, num_variables, name, allow_empty)
        batch, lenders = _checked(given, observed, name, prefix, scan)
        device_of_rows = given.values.device
        if labels is not None:
            of_rows = as_given(labels, f"{prefix}labels")
            checked = labels_of(of_rows, len(batch), num_classes, f"{prefix}labels")
            batch.labels = checked.to(device_of_rows)
            lenders.append(of_rows.values if of_rows.lent else None)
        if weights is not None:
            of_rows = as_given(weights, f"{prefix}weights")
            checked = weights_of(of_rows, len(batch), f"{prefix}weights", allow_empty)
            batch.weights = checked.to(device_of_rows)
            lenders.append(of_rows.values if of_rows.lent else None)
    if where is not None:
        batch = _with_events(batch, where, num_variables, columns, name)
    batch = batch if device is None else batch.to(device)
    return _owned(batch, lenders) if own else batch


def _nothing(
    where: Any, num_variables: int, observed: Any, columns: tuple[str, ...] | None, name: str
) -> tuple[Tensor, Tensor]:
    """Rows of which nothing is known, as many as the events have."""
    if observed is not None:
        raise ValueError(f"observed is given, but {name} is not")
    rows, cpu = 1, torch.device("cpu")
    if where is not None:
        rows = as_events(where, num_variables, columns, None, cpu).lower.shape[0]
    x = torch.zeros(rows, num_variables)
    return x, torch.zeros_like(x, dtype=torch.bool)


def _with_events(
    batch: Batch, where: Any, num_variables: int | None, columns: tuple[str, ...] | None, name: str
) -> Batch:
    """The batch with events, of cells that are not observed."""
    if batch.events is not None:
        raise ValueError(f"where is given, but {name} is a Batch with its own events")
    assert num_variables is not None
    events = as_events(where, num_variables, columns, len(batch), batch.x.device)
    known = batch.mask
    if batch.x.is_floating_point():
        # Where nobody has looked for missing cells before.
        known = known & ~batch.x.isnan()
    both = known[:, list(events.all_variables)].nonzero()
    if len(both):
        row, number = both[0].tolist()
        variable = events.all_variables[number]
        called = variable if columns is None else repr(columns[variable])
        raise ValueError(
            f"where has an event for variable {called}, but {name} has a value of it in row {row}; "
            "a cell may have either"
        )
    return replace(batch, observed=known, events=events)


def _in_order(given: Given, columns: tuple[str, ...] | None, name: str) -> Given:
    """Columns with names, put in the order that is wanted; others go by position."""
    if columns is None or given.values.ndim != 2:
        return given
    if given.columns is None:
        return replace(given, columns=columns)
    return given.in_order(order_of(given.columns, columns, name), columns)


def _check_shape(x: Tensor, num_variables: int | None, name: str, allow_empty: bool) -> None:
    if x.ndim != 2 or (x.shape[1] == 0 if num_variables is None else x.shape[1] != num_variables):
        wanted = "[rows, variables]"
        if num_variables is not None:
            wanted = f"[rows, {num_variables}] (one column for each variable)"
        raise ValueError(f"{name} must have shape {wanted}, got {list(x.shape)}")
    if x.shape[0] == 0 and not allow_empty:
        raise ValueError(f"{name} must have at least one row, got none")


def _owned(batch: Batch, lenders: list[Tensor | None]) -> Batch:
    """The same with copies of those tensors that lie in memory that was lent."""
    theirs = {tensor.untyped_storage().data_ptr() for tensor in lenders if tensor is not None}

    def own(tensor: Tensor) -> Tensor:
        return tensor.clone() if tensor.untyped_storage().data_ptr() in theirs else tensor

    return batch.map(own)


def _checked(
    given: Given, observed: Any, name: str, prefix: str, scan: bool
) -> tuple[Batch, list[Tensor | None]]:
    """Rows and what is known of them, with the tensors that lie in memory that was lent."""
    tensor, mask = given.values, given.known
    lenders: list[Tensor | None] = [tensor if given.lent else None]
    if tensor.dtype == torch.bool:
        tensor = tensor.to(torch.uint8)
    if observed is not None:
        which = f"{prefix}observed"
        of_cells = as_given(observed, which)
        if of_cells.columns is not None and given.columns is not None:
            of_cells = _in_order(of_cells, given.columns, which)
        if of_cells.known is not None:
            raise ValueError(f"{which} must be True or False in every cell, got missing ones")
        if of_cells.values.dtype != torch.bool:
            raise TypeError(f"{which} must be boolean, got {of_cells.values.dtype}")
        if of_cells.values.shape != tensor.shape:
            raise ValueError(
                f"{which} must have the shape of {name}, {list(tensor.shape)}, "
                f"got {list(of_cells.values.shape)}"
            )
        lenders.append(of_cells.values if of_cells.lent else None)
        known = of_cells.values.to(tensor.device)
        mask = known if mask is None else mask & known
    if scan and tensor.is_floating_point():
        known = ~tensor.isnan()
        mask = known if mask is None else mask & known
    if mask is not None and mask.device.type == "cpu" and bool(mask.all()):
        mask = None
    return Batch(tensor, mask, columns=given.columns), lenders
