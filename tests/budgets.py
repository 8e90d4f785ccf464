"""Budgets of memory so small that tests see work being cut into parts."""

from __future__ import annotations

import pytest

from einet._memory import BUDGETS, Budget

__all__ = ["limit"]


def limit(monkeypatch: pytest.MonkeyPatch, name: str, size: int = 1) -> None:
    """Give one kind of work so many bytes; with one byte every part is as small as it gets."""
    assert name in BUDGETS
    monkeypatch.setitem(BUDGETS, name, Budget(size, size))
