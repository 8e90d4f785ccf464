"""A call is rehearsed before it is made for the first time, so that its kernels are compiled ahead.

Which kernels a call launches follows from shapes and types alone. So it is made once on a copy of
the model, where launches are noted and not made. It does not matter what large tensors of the copy
hold, and so they all share one piece of memory. (Torch's ``meta`` device needs none, but takes
seconds to begin with.) What was noted is compiled by many processes at the same time
(:mod:`einet.kernels.compilers`).

Nothing depends on it but time. What a rehearsal misses is compiled when it is launched, as ever;
what it notes in vain lies in Triton's cache.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from einet.kernels.compilers import Noted, compile_all
from einet.kernels.dispatch import backend
from einet.structures import RegionGraph

__all__ = ["rehearse"]

# Tensors of so many bytes are copied as they are.
_SMALL = 1 << 16

# Launches are noted for one thread at a time.
_turn = threading.Lock()
_log = logging.getLogger("einet")


def rehearse(call: Callable[..., object], *arguments: Any) -> int:
    """Compile the kernels that a call will launch, unless they are compiled already.

    Args:
        call: The call; it is made with copies of the arguments, whose large tensors hold zeros.
        arguments: A model, a batch and whatever else belongs to the call.

    Returns:
        How many kernels were compiled, or found in Triton's cache.
    """
    try:
        noted = _noted(call, *arguments)
    except Exception as error:
        # A copy that holds anything cannot follow everything, and need not.
        _log.debug("a call could not be rehearsed: %s", error)
        return 0
    compile_all(noted, _tell)
    return len(noted)


def _noted(call: Callable[..., object], *arguments: Any) -> list[Noted]:
    """The kernels of a call that this process has not compiled yet."""
    from triton import knobs

    if knobs.runtime.interpret:
        # There is nothing to compile, and launches could not be kept from being made.
        return []
    copies = _copied(arguments)
    with _noting() as noted, backend("triton"), torch.no_grad():
        call(*copies)
    return noted


def _copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of modules and all else, with tensors of the same shapes on the same device."""
    memo: dict[int, Any] = {}
    for module in arguments:
        for part in module.modules() if isinstance(module, nn.Module) else ():
            # A graph never changes, and may be large.
            graphs = (value for value in vars(part).values() if isinstance(value, RegionGraph))
            memo.update((id(graph), graph) for graph in graphs)
    with _Copying():
        return copy.deepcopy(arguments, memo)


class _Copying(TorchFunctionMode):
    """Within it large tensors are not copied: those of the same type and size are one."""

    def __init__(self) -> None:
        super().__init__()
        self._shared: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is Tensor.__deepcopy__:
            tensor, memo = args
            return memo.setdefault(id(tensor), self._copy_of(tensor))
        if func is Tensor.clone:
            return self._copy_of(args[0])
        return func(*args, **(kwargs or {}))

    def _copy_of(self, tensor: Tensor) -> Tensor:
        shape, stride = tensor.shape, tensor.stride()
        # Whole numbers say where something is: others than these would lead astray.
        if not tensor.is_floating_point() or tensor.nbytes <= _SMALL:
            new = torch.empty_strided(shape, stride, dtype=tensor.dtype, device=tensor.device)
            return new.copy_(tensor.detach())
        size = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
        key = (tensor.device, tensor.dtype)
        if key not in self._shared or self._shared[key].numel() < size:
            self._shared[key] = torch.zeros(size, dtype=tensor.dtype, device=tensor.device)
        return self._shared[key].as_strided(shape, stride)


@contextmanager
def _noting() -> Iterator[list[Noted]]:
    """Within it this thread's launches of kernels are noted and not made."""
    from triton import knobs
    from triton.runtime.jit import JITFunction

    noted: list[Noted] = []
    known: set[tuple[Any, str]] = set()
    here = threading.get_ident()
    with _turn:
        run, hook = JITFunction.run, knobs.runtime.jit_cache_hook

        def run_without_launch(kernel: Any, *args: Any, **options: Any) -> Any:
            if threading.get_ident() == here:
                options["warmup"] = True
            return run(kernel, *args, **options)

        def note(**launch: Any) -> bool | None:
            if threading.get_ident() != here:
                return None if hook is None else hook(**launch)
            kernel, key = launch["fn"].jit_function, launch["key"]
            if (kernel, key) not in known:
                known.add((kernel, key))
                noted.append((kernel, launch["compile"]["specialization_data"]))
            return True  # which keeps it from being compiled now

        kernels: Any = JITFunction
        kernels.run, knobs.runtime.jit_cache_hook = run_without_launch, note
        try:
            yield noted
        finally:
            kernels.run, knobs.runtime.jit_cache_hook = run, hook


def _tell(count: int) -> None:
    console = Console(stderr=True)
    if console.file.isatty() or console.is_jupyter:
        console.print(
            f"compiling {count} kernels for this model and this GPU, once: they are kept for later",
            highlight=False,
        )
