"""Events of a model's variables, as codings make them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

__all__ = ["among", "between"]


def between(lower: float, upper: float) -> Any:
    """A variable lies between two numbers, which may be infinite."""
    return import_module("einet.data.events").between(lower, upper)


def among(states: Sequence[int]) -> Any:
    """A variable is in one of some states."""
    return import_module("einet.data.events").among(list(states))
