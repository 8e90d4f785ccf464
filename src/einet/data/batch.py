"""From what a user gives (arrays, tensors, data frames, lists) to checked tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

__all__ = ["Batch", "as_batch", "as_labels", "as_weights"]


@dataclass
class Batch:
    """Rows of data: ``x[rows, variables]`` and which cells are observed (None: all of them).

    A missing cell holds NaN in a floating ``x``; whatever it holds, it is never looked at.
    """

    x: Float[Tensor, "rows variables"] | Integer[Tensor, "rows variables"]
    observed: Bool[Tensor, "rows variables"] | None

    def __len__(self) -> int:
        return self.x.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Batch:
        return Batch(self.x[rows], None if self.observed is None else self.observed[rows])

    def to(self, device: torch.device) -> Batch:
        moved = None if self.observed is None else self.observed.to(device)
        return Batch(self.x.to(device), moved)

    def double(self) -> Batch:
        return Batch(self.x.double(), self.observed)

    @property
    def mask(self) -> Bool[Tensor, "rows variables"]:
        """Which cells are observed, written out."""
        if self.observed is None:
            return torch.ones_like(self.x, dtype=torch.bool)
        return self.observed


def as_batch(
    x: Any,
    num_variables: int,
    observed: Any = None,
    *,
    name: str = "x",
    device: torch.device | None = None,
    allow_empty: bool = True,
) -> Batch:
    """Check data and find what is missing: NaN, or False in ``observed``.

    Integers stay integers (a large data set of bytes keeps its size); the leaves convert.

    Example:
        >>> batch = as_batch([[0.5, float("nan")]], num_variables=2)
        >>> batch.observed
        tensor([[ True, False]])
    """
    tensor = _as_tensor(x, name)
    if tensor.ndim != 2 or tensor.shape[1] != num_variables:
        raise ValueError(
            f"{name} must have shape [rows, {num_variables}] (one column for each variable), "
            f"got {list(tensor.shape)}"
        )
    if tensor.shape[0] == 0 and not allow_empty:
        raise ValueError(f"{name} must have at least one row, got none")
    if tensor.is_complex():
        raise TypeError(f"{name} must hold real numbers, got {tensor.dtype}")
    if tensor.dtype == torch.bool:
        tensor = tensor.to(torch.uint8)
    mask = None
    if observed is not None:
        mask = _as_tensor(observed, "observed").to(tensor.device)
        if mask.dtype != torch.bool:
            raise TypeError(f"observed must be boolean, got {mask.dtype}")
        if mask.shape != tensor.shape:
            raise ValueError(
                f"observed must have the shape of {name}, {list(tensor.shape)}, "
                f"got {list(mask.shape)}"
            )
    if tensor.is_floating_point():
        known = ~tensor.isnan()
        mask = known if mask is None else mask & known
    if mask is not None and bool(mask.all()):
        mask = None
    batch = Batch(tensor, mask)
    return batch if device is None else batch.to(device)


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


def as_weights(weights: Any, rows: int) -> Float[Tensor, " rows"]:
    """Check sample weights: finite and not negative."""
    tensor = _as_tensor(weights, "weights").double()
    if tensor.shape != (rows,):
        raise ValueError(f"weights must have shape [{rows}], got {list(tensor.shape)}")
    if not bool((tensor.isfinite() & (tensor >= 0)).all()):
        raise ValueError("weights must be finite and not negative")
    return tensor


def _as_tensor(value: Any, name: str) -> Tensor:
    if isinstance(value, Tensor):
        # torch can do next to nothing with the wider unsigned integers.
        wide = value.dtype in (torch.uint16, torch.uint32, torch.uint64)
        return value.long() if wide else value.detach()
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
