"""Models under torch.compile, which lets them run as they are, and torch.export, which cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.jit import is_tracing  # pyright: ignore[reportPrivateImportUsage]

__all__ = ["eagerly", "is_traced"]

_REFUSAL = (
    "einet models cannot be exported or traced: their kernels choose their way by the data and "
    "write in place. Save them with model.save and load them with einet.load"
)


def is_traced() -> bool:
    """Whether torch.compile, torch.export or torch.jit.trace are looking on."""
    return torch.compiler.is_compiling() or is_tracing()


def eagerly(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Under torch.compile the result of a call that is left as it is; all others are refused."""
    if torch.compiler.is_exporting() or is_tracing():
        raise RuntimeError(_REFUSAL)
    # Imported only now: what it imports from torch takes a second.
    from einet.engine.uncompiled import call

    return call(function, *arguments, **options)
