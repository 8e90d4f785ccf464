"""Training data: checked once, cut into mini-batches, brought to the model's device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from einet.base import Model
from einet.data.batch import Batch, as_batch, as_labels, as_weights

__all__ = ["Rows"]

# Data below this are moved to a GPU as a whole, before training.
_RESIDENT_BYTES = 1 << 30


@dataclass
class Rows:
    """Checked data with all that belongs to their rows."""

    batch: Batch
    labels: Tensor | None = None
    weights: Tensor | None = None

    @classmethod
    def checked(
        cls, model: Model, name: str, x: Any, observed: Any, labels: Any, weights: Any = None
    ) -> Rows:
        batch = as_batch(x, model.num_variables, observed, name=name, allow_empty=False)
        device = batch.x.device
        rows = cls(batch)
        if labels is not None:
            what = "valid_labels" if name == "valid" else "labels"
            rows.labels = as_labels(labels, len(batch), model.num_classes, name=what).to(device)
        if weights is not None:
            rows.weights = as_weights(weights, len(batch)).to(device)
            counts = rows.weights > 0
            if not bool(counts.any()):
                raise ValueError("weights must not be 0 throughout")
            if not bool(counts.all()):
                # Such rows are padding, whatever they hold.
                batch = Batch(batch.x, batch.mask & counts.unsqueeze(1))
                rows = rows.map(lambda tensor: tensor[counts])
        model.check_support(batch, name)
        return rows

    def __len__(self) -> int:
        return len(self.batch)

    def map(self, function: Callable[[Tensor], Tensor]) -> Rows:
        """The same with a function applied to every tensor."""
        tensors = (self.batch.x, self.batch.observed, self.labels, self.weights)
        x, observed, labels, weights = (None if t is None else function(t) for t in tensors)
        assert x is not None
        return Rows(Batch(x, observed), labels, weights)

    def near(self, device: torch.device) -> Rows:
        """As a whole on the model's device, unless they would crowd a GPU."""
        x, observed = self.batch.x, self.batch.observed
        size = x.nbytes + (0 if observed is None else observed.nbytes)
        if device.type == "cpu" or size < _RESIDENT_BYTES:
            return self.map(lambda tensor: tensor.to(device))
        return self

    def batches(
        self, size: int, device: torch.device, order: Tensor | None = None
    ) -> Iterator[Rows]:
        """Mini-batches on the model's device, in the given order or as they come."""
        here = self.batch.x.device
        order = None if order is None else order.to(here)

        def moved(tensor: Tensor) -> Tensor:
            if here.type == "cpu" and device.type == "cuda":
                return tensor.pin_memory().to(device, non_blocking=True)
            return tensor.to(device)

        for start in range(0, len(self), size):
            part = slice(start, start + size)
            rows = part if order is None else order[part]
            yield self.map(lambda tensor, rows=rows: moved(tensor[rows]))
