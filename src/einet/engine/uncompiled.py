"""Calls that torch.compile leaves as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["call"]


@torch.compiler.disable(reason="einet models run their own kernels, which are not compiled again")
def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """``function(*arguments, **options)``, uncompiled with all that it calls."""
    return function(*arguments, **options)
