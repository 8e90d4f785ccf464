"""Whether tensors are those that they were, and hold what they held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

__all__ = ["State", "state_of"]

#: Of each tensor: what keeps it, where it lies, and how often it has changed.
State = list[tuple[int, int, int]]


def state_of(kept: Iterable[Mapping[str, Tensor | None]]) -> State | None:
    """Which tensors are kept, and how often each has changed; None if nobody counts.

    Args:
        kept: The parameters or buffers of some modules.

    Example:
        >>> import torch
        >>> layer = torch.nn.Linear(2, 1)
        >>> before = state_of([layer._parameters])
        >>> _ = torch.nn.init.zeros_(layer.weight)
        >>> state_of([layer._parameters]) == before
        False
    """
    state = []
    for tensors in kept:
        if not tensors:
            # Inside of unconstrained, where parameters follow from others.
            return None
        for tensor in tensors.values():
            if tensor is None or tensor.is_inference():
                return None
            state.append((id(tensors), tensor.data_ptr(), tensor._version))
    return state
