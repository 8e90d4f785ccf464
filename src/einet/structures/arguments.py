"""Checks of the data that structures are learnt from."""

from dataclasses import replace
from typing import Any

import torch

from einet.data.batch import Batch, as_batch

__all__ = ["as_rows"]


def as_rows(data: Any, observed: Any, weights: Any) -> Batch:
    """Data to learn a structure from, with any number of columns; missing cells are 0."""
    options = {"name": "data", "allow_empty": False}
    batch = as_batch(data, None, observed, weights=weights, **options)
    if batch.observed is None:
        return batch
    return replace(batch, x=torch.where(batch.observed, batch.x, 0))
