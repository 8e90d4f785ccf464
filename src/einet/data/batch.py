"""From what a user gives (arrays, tensors, data frames, lists) to checked tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

__all__ = ["Batch", "as_batch", "as_labels", "as_weights"]


@dataclass
class Batch:
    """Rows of data with all that belongs to them, as :func:`as_batch` has checked it.

    A missing cell of ``x[rows, variables]`` holds NaN if ``x`` is floating; whatever it holds, it
    is never looked at. ``observed`` says which cells are known; None is all of them. ``labels`` are
    classes, −1 where unknown, and ``weights`` how often a row counts; None is once. For models
    side by side there is a column for each, of how often a row counts for it.
    """

    x: Float[Tensor, "rows variables"] | Integer[Tensor, "rows variables"]
    observed: Bool[Tensor, "rows variables"] | None = None
    labels: Int[Tensor, " rows"] | None = None
    weights: Float[Tensor, "rows *models"] | None = None

    def __len__(self) -> int:
        return self.x.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Batch:
        """Some of the rows."""
        return self.map(lambda tensor: tensor[rows])

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The same with a function applied to every tensor."""
        rest = (self.observed, self.labels, self.weights)
        return Batch(function(self.x), *(None if t is None else function(t) for t in rest))

    def to(self, device: torch.device) -> Batch:
        """The same on a device; the very same if it lies there already."""
        tensors = (self.x, self.observed, self.labels, self.weights)
        if all(tensor is None or tensor.device == device for tensor in tensors):
            return self
        return self.map(lambda tensor: tensor.to(device))

    def hide(self, share: float, generator: torch.Generator) -> Batch:
        """The same with each known cell taken for missing with probability ``share``."""
        draws = torch.rand(self.x.shape, generator=generator, device=self.x.device)
        kept = draws >= share
        return replace(self, observed=kept if self.observed is None else kept & self.observed)

    def double(self) -> Batch:
        """The same with values in float64."""
        return replace(self, x=self.x.double())

    @property
    def cells(self) -> Batch:
        """The data alone, without labels and weights."""
        return Batch(self.x, self.observed)

    @property
    def mask(self) -> Bool[Tensor, "rows variables"]:
        """Which cells are observed, written out."""
        if self.observed is None:
            return torch.ones_like(self.x, dtype=torch.bool)
        return self.observed

    def scanned(self) -> Batch:
        """The same with missing cells found, for data that were not looked through before."""
        if not self.x.is_floating_point():
            return self
        known = self.mask & ~self.x.isnan()
        return Batch(self.x, known, self.labels, self.weights)

    @property
    def nbytes(self) -> int:
        """The memory of all tensors."""
        tensors = (self.x, self.observed, self.labels, self.weights)
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def as_batch(
    x: Any,
    num_variables: int,
    observed: Any = None,
    *,
    labels: Any = None,
    weights: Any = None,
    num_classes: int = 1,
    name: str = "x",
    prefix: str = "",
    device: torch.device | None = None,
    allow_empty: bool = True,
    scan: bool = True,
    own: bool = False,
    differentiable: bool = False,
) -> Batch:
    """Check data with what belongs to their rows, and find what is missing.

    That is NaN, or False in ``observed``. Integers stay integers (a large data set of bytes keeps
    its size); the leaves convert. A :class:`Batch` has been checked before: it is taken as it is
    and moved to ``device``.

    Nobody waits for a GPU here, except to check labels or weights that lie on one. Hence data on a
    GPU always come with a mask, if only of True, where cells could be missing at all.

    Args:
        x, observed: The data, and a mask of the same shape, True where a cell is known.
        num_variables: The number of columns.
        labels: The class of each row, below ``num_classes``; −1 where unknown.
        weights: How often each row counts.
        num_classes: The number of classes.
        name: What error messages call the data.
        prefix: What stands before ``observed``, ``labels`` and ``weights`` there.
        device: Where to move everything.
        allow_empty: Whether there may be no rows.
        scan: Whether to look for NaN at all; without, the caller does.
        own: Whether to copy what lies in the memory that was given, which may change later.
        differentiable: Whether ``x`` keeps its graph, for gradients in it; a Batch always does.

    Example:
        >>> batch = as_batch([[0.5, float("nan")]], num_variables=2)
        >>> batch.observed
        tensor([[ True, False]])
    """
    beside = {"observed": observed, "labels": labels, "weights": weights}
    given = x.x if isinstance(x, Batch) else _as_tensor(x, name, differentiable)
    if given.ndim != 2 or given.shape[1] != num_variables:
        raise ValueError(
            f"{name} must have shape [rows, {num_variables}] (one column for each variable), "
            f"got {list(given.shape)}"
        )
    if given.shape[0] == 0 and not allow_empty:
        raise ValueError(f"{name} must have at least one row, got none")
    if isinstance(x, Batch):
        for what, value in beside.items():
            if value is not None:
                raise ValueError(f"{prefix}{what} is given, but {name} is a Batch with its own")
        batch = x
    else:
        batch = _checked(given, observed, name, prefix, scan)
        if labels is not None:
            labels = as_labels(labels, len(batch), num_classes, name=f"{prefix}labels")
            batch.labels = labels.to(given.device)
        if weights is not None:
            weights = as_weights(weights, len(batch), name=f"{prefix}weights")
            batch.weights = weights.to(given.device)
    batch = batch if device is None else batch.to(device)
    return _owned(batch, [x, *beside.values()]) if own else batch


def _owned(batch: Batch, sources: list[Any]) -> Batch:
    """The same with copies of those tensors that lie in the memory of some source."""

    def own(tensor: Tensor) -> Tensor:
        return tensor.clone() if any(_shares(tensor, source) for source in sources) else tensor

    return batch.map(own)


def _shares(tensor: Tensor, source: Any) -> bool:
    """Whether writing to a source could change a tensor that was made from it."""
    if source is None or isinstance(source, list | tuple):
        return False
    if isinstance(source, Batch):
        parts = (source.x, source.observed, source.labels, source.weights)
        return any(_shares(tensor, part) for part in parts)
    if isinstance(source, Tensor):
        return tensor.untyped_storage().data_ptr() == source.untyped_storage().data_ptr()
    return tensor.device.type == "cpu" and np.may_share_memory(tensor.numpy(), np.asarray(source))


def _checked(tensor: Tensor, observed: Any, name: str, prefix: str, scan: bool) -> Batch:
    if tensor.is_complex():
        raise TypeError(f"{name} must hold real numbers, got {tensor.dtype}")
    if tensor.dtype == torch.bool:
        tensor = tensor.to(torch.uint8)
    mask = None
    if observed is not None:
        mask = _as_tensor(observed, f"{prefix}observed").to(tensor.device)
        if mask.dtype != torch.bool:
            raise TypeError(f"{prefix}observed must be boolean, got {mask.dtype}")
        if mask.shape != tensor.shape:
            raise ValueError(
                f"{prefix}observed must have the shape of {name}, {list(tensor.shape)}, "
                f"got {list(mask.shape)}"
            )
    if scan and tensor.is_floating_point():
        known = ~tensor.isnan()
        mask = known if mask is None else mask & known
    if mask is not None and mask.device.type == "cpu" and bool(mask.all()):
        mask = None
    return Batch(tensor, mask)


def as_labels(
    labels: Any, rows: int, num_classes: int, *, name: str = "labels"
) -> Int[Tensor, " rows"]:
    """Check class labels: whole numbers from 0 to C − 1, −1 for unknown."""
    tensor = _as_tensor(labels, name)
    if tensor.is_floating_point():
        if not bool((tensor == tensor.round()).all()):
            raise ValueError(f"{name} must be whole numbers (−1 for unknown), got fractions or NaN")
        tensor = tensor.long()
    if tensor.shape != (rows,):
        raise ValueError(f"{name} must have shape [{rows}], got {list(tensor.shape)}")
    tensor = tensor.long()
    if rows and (int(tensor.min()) < -1 or int(tensor.max()) >= num_classes):
        raise ValueError(
            f"{name} must lie between 0 and {num_classes - 1} (or be −1 for unknown), "
            f"got {int(tensor.min())} to {int(tensor.max())}"
        )
    return tensor


def as_weights(weights: Any, rows: int, *, name: str = "weights") -> Float[Tensor, " rows"]:
    """Check sample weights: finite and not negative."""
    tensor = _as_tensor(weights, name).double()
    if tensor.shape != (rows,):
        raise ValueError(f"{name} must have shape [{rows}], got {list(tensor.shape)}")
    if not bool((tensor.isfinite() & (tensor >= 0)).all()):
        raise ValueError(f"{name} must be finite and not negative")
    return tensor


def _as_tensor(value: Any, name: str, differentiable: bool = False) -> Tensor:
    if isinstance(value, Tensor):
        # torch can do next to nothing with the wider unsigned integers.
        wide = value.dtype in (torch.uint16, torch.uint32, torch.uint64)
        if wide:
            return value.long()
        return value if differentiable else value.detach()
    try:
        array = np.asarray(value)
        if array.dtype == object:
            # None becomes NaN by itself; the NA of pandas' nullable columns needs pandas' help.
            to_numpy = getattr(value, "to_numpy", None)
            if to_numpy is None:
                array = array.astype(np.float64)
            else:
                array = to_numpy(dtype=np.float64, na_value=np.nan)
        if array.dtype.kind not in "biuf":
            raise TypeError
        if array.dtype.kind == "u" and array.dtype.itemsize > 1:
            array = array.astype(np.int64)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        return torch.from_numpy(np.require(array, requirements=["C", "W"]))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be an array of numbers (missing cells as NaN), "
            f"got {type(value).__name__}"
            + (f" of {value.dtype}" if hasattr(value, "dtype") else "")
        ) from error
