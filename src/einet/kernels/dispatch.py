"""Which arithmetic a layer uses: fused Triton kernels for float32 on CUDA, torch for all else.

A few rows in float64 on a CPU may go by numpy, where calling torch would take most of the time: see
:mod:`einet.engine.few_rows`.

Triton is imported only once it is needed. Both give the same results up to rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

__all__ = [
    "MOST_ENTRIES",
    "MOST_OUTER",
    "Backend",
    "Precision",
    "backend",
    "fused",
    "in_numpy",
    "warn_of_size",
]

Backend = Literal["auto", "torch", "triton"]
Precision = Literal["highest", "high", "medium"]

#: The fused kernels serve nodes of so many entries, leaves and sums alike.
MOST_ENTRIES = 4096
#: Sums over outer products have K³ weights each, and classes one root: fewer are served.
MOST_OUTER = 256

_chosen: ContextVar[Backend] = ContextVar("backend", default="auto")


@contextmanager
def backend(name: Backend) -> Iterator[None]:
    """Use one kind of kernels within a ``with`` block, whatever the tensors.

    ``"triton"`` on a CPU runs the kernels in Triton's interpreter (``TRITON_INTERPRET=1``): for
    tests. Tensors of float64 always take the torch path.
    """
    if name not in ("auto", "torch", "triton"):
        raise ValueError(f"name must be 'auto', 'torch' or 'triton', got {name!r}")
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


def fused(like: Tensor) -> bool:
    """Whether the fused kernels serve a model with parameters like this tensor."""
    if like.dtype != torch.float32:
        return False
    chosen = _chosen.get()
    if chosen == "auto":
        return like.is_cuda and _installed()
    return chosen == "triton"


def in_numpy(like: Tensor) -> bool:
    """Whether numpy serves a few rows of a model with parameters like this tensor."""
    return like.dtype == torch.float64 and like.device.type == "cpu" and _chosen.get() == "auto"


def warn_of_size(entries: int, classes: int) -> None:
    """Say what it costs that a model on a GPU is too large for the fused kernels."""
    warnings.warn(
        f"nodes of {entries} entries and {classes} classes are more than the fused kernels serve "
        f"({MOST_OUTER} entries with sums over outer products, {MOST_ENTRIES} with "
        f"sums='linear', {MOST_OUTER} classes): einet uses its torch kernels, which take many "
        "times as long on a GPU",
        stacklevel=3,
    )


@cache
def _installed() -> bool:
    if find_spec("triton") is not None:
        return True
    warnings.warn(
        "Triton is not installed: einet uses its slower torch kernels on this GPU", stacklevel=2
    )
    return False
