"""Checks of the data that structures are learnt from."""

from dataclasses import replace
from typing import Any

import torch

from einet._checks import as_int
from einet.data.batch import Batch, as_batch

__all__ = ["as_rows", "as_variables", "check_size"]

# What the integers of a file can count.
_MOST_VARIABLES = (1 << 31) - 1
# Bytes of a graph's scopes and partitions: beyond, nobody would wait for it to be made.
_MOST_BYTES = 1 << 33
_PARTITION_BYTES = 200


def as_variables(num_variables: Any, name: str = "num_variables") -> int:
    """A number of variables: at least 1, and as many as a graph can have."""
    number = as_int(name, num_variables, minimum=1)
    if number > _MOST_VARIABLES:
        raise ValueError(f"{name} must make at most {_MOST_VARIABLES} variables, got more")
    return number


def check_size(arguments: str, num_variables: int, regions: int, partitions: int = 0) -> None:
    """Raise where a graph would be too large to be made, before hours are spent on it.

    Args:
        arguments: Those that ask for it.
        num_variables, regions, partitions: How many of them the graph would have.

    Example:
        >>> check_size("depth", num_variables=100, regions=20)
    """
    if regions * (num_variables // 8 + 40) + partitions * _PARTITION_BYTES > _MOST_BYTES:
        counts = [
            count if count < 10**15 else "more than 10**15" for count in (regions, partitions)
        ]
        raise ValueError(
            f"{arguments} ask for a graph over {num_variables} variables with {counts[0]} regions "
            f"and {counts[1]} partitions or more, which is too large to be made"
        )


def as_rows(data: Any, observed: Any, weights: Any) -> Batch:
    """Data to learn a structure from, with any number of columns; missing cells are 0."""
    options = {"name": "data", "allow_empty": False}
    batch = as_batch(data, None, observed, weights=weights, **options)
    # Data on a GPU come with a mask before anybody looked at it; without one there is less to do.
    if batch.observed is None or bool(batch.observed.all()):
        return replace(batch, observed=None)
    return replace(batch, x=torch.where(batch.observed, batch.x, 0))
