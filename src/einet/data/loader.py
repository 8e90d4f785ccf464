"""Rows from a ``torch.utils.data.DataLoader``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from einet.data.batch import Batch, as_batch
from einet.data.joining import joined
from einet.data.streams import Check, RowStream
from einet.data.tables import is_table

__all__ = ["LoaderRows", "is_loader"]

_NAMES = ("x", "observed", "labels", "weights")


def is_loader(data: Any) -> bool:
    """Whether data come in batches by themselves."""
    return isinstance(data, torch.utils.data.DataLoader)


class LoaderRows(RowStream):
    """Rows that a loader yields in batches of its own making.

    A batch is a tensor, array or data frame of rows, a pair of rows and labels, or a dictionary
    with ``"x"`` and any of ``"observed"``, ``"labels"`` and ``"weights"``. Labels are for
    models with classes; others leave them unread. Every batch is checked when it comes. A last
    batch much smaller than the one before it shares that one's rows: a step on a few rows would
    undo what was learnt.

    Args:
        loader: What yields batches; it is gone through once an epoch.
        num_variables, num_classes: What rows and labels must fit.
        device: Where batches are wanted.
        check: Called with every batch and its name; raises if its rows are not fit for a model.
        name: What error messages call the rows.
        columns: The names of the variables; None for those of the first batch that has names.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        num_variables: int,
        num_classes: int,
        device: torch.device,
        check: Check | None = None,
        name: str = "train",
        columns: tuple[str, ...] | None = None,
    ) -> None:
        self._loader, self._check, self._name, self.columns = loader, check, name, columns
        self.num_variables, self._num_classes, self.device = num_variables, num_classes, device

    def __iter__(self) -> Iterator[Batch]:
        empty = True
        for number, given in enumerate(self._loader):
            batch = self._batch(given, f"{self._name}: batch {number}")
            # A batch may be all padding: rows of weight 0.
            if len(batch) and (batch.weights is None or bool((batch.weights > 0).any())):
                empty = False
                yield batch
        if empty and not self.may_be_empty:
            raise ValueError(f"{self._name} must yield at least one row, got none")

    def _batch(self, given: Any, name: str) -> Batch:
        parts: dict[str, Any]
        if isinstance(given, Mapping):
            unknown = [key for key in given if key not in _NAMES]
            if unknown or "x" not in given:
                raise ValueError(
                    f"{name} must be a dictionary with 'x' and any of {', '.join(_NAMES[1:])}, "
                    f"got the keys {', '.join(map(repr, given))}"
                )
            parts = dict(given)
        elif isinstance(given, tuple | list) and 1 <= len(given) <= 2:
            parts = dict(zip(("x", "labels"), given, strict=False))
        elif isinstance(given, Tensor | np.ndarray) or is_table(given):
            parts = {"x": given}
        else:
            raise TypeError(
                f"{name} must be a tensor of rows, a pair of rows and labels, or a dictionary, "
                f"got {type(given).__name__}"
            )
        if self._num_classes == 1:
            parts.pop("labels", None)
        batch = as_batch(
            parts.pop("x"),
            self.num_variables,
            num_classes=self._num_classes,
            columns=self.columns,
            name=name,
            **parts,
        )
        self.columns = batch.columns
        if self._check is not None:
            self._check(batch, name)
        return batch.to(self.device)

    def steps(self, batch_size: int) -> int | None:
        """The number of batches that the loader makes; None where it does not know."""
        try:
            return len(self._loader)  # type: ignore[arg-type]
        except TypeError:
            # A loader has a length only if its data have.
            return None

    def mini_batches(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        """The loader's batches in its order; the last two may share their rows."""
        before: Batch | None = None
        last: Batch | None = None
        for batch in self:
            if before is not None:
                yield before
            before, last = last, batch
        if last is None:
            return
        if before is not None and 2 * len(last) < len(before):
            yield from _halves(before, last)
            return
        if before is not None:
            yield before
        yield last

    def some(self, most: int, generator: torch.Generator) -> Batch:
        """The first rows: it is the loader that shuffles."""
        parts, count = [], 0
        for batch in self:
            parts.append(batch[: most - count])
            count += len(parts[-1])
            if count >= most:
                break
        if not parts:
            return Batch(torch.zeros(0, self.num_variables, device=self.device))
        return joined(parts)

    def checksum(self) -> str:
        """Raises: nobody can tell the rows of a loader from others without reading them all."""
        raise ValueError(
            f"checkpoint needs rows that can be told from others; {self._name} is a loader. Give "
            "the rows themselves, or train without a checkpoint"
        )


def _halves(one: Batch, other: Batch) -> Iterator[Batch]:
    both = joined([one, other])
    middle = -(-len(both) // 2)
    yield both[:middle]
    yield both[middle:]
