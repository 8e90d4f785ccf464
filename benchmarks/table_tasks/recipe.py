"""Which rows of results are of the present recipe of learning, and which of an earlier one."""

from __future__ import annotations

from typing import Any

__all__ = ["RECIPES", "depends", "is_present"]

#: The number of each task's recipe: one more with every change of schemas, learning or answers that
#: moves its numbers.
RECIPES = {
    "density": 2,
    "prediction": 2,
    "imputation": 2,
    "outliers": 2,
    "latency": 2,
    "synthetic": 2,
}
#: What is no model of einet but counts cells by its schemas.
_BY_SCHEMA = ("independent", "tree")


def depends(row: dict[str, Any]) -> bool:
    """Whether a row's number depends on the recipe: einet's own, and what shares its schemas."""
    by_schema = row["task"] == "density" and row["method"] in _BY_SCHEMA
    return row["method"].startswith("einet") or by_schema


def is_present(row: dict[str, Any]) -> bool:
    """Whether a row is of the present recipe of its task, or of none at all."""
    return not depends(row) or row.get("recipe", 1) == RECIPES[row["task"]]
