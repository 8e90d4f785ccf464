"""Kernels compiled ahead, side by side: a call is rehearsed before it is made for the first time.

Triton compiles a kernel when it is launched, and the next one only after that. A training step
launches dozens, each of which takes half a second to compile; together they keep one core busy and
all others waiting. Which kernels there will be follows from shapes and types alone. So the call is
made once on a copy of the model whose tensors have shapes but no memory, where launches are noted
and not made, and what was noted is compiled by as many threads as there are cores.

Nothing depends on it but time. What a rehearsal misses is compiled when it is launched, as ever;
what it notes in vain lies in Triton's cache.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from einet.kernels.dispatch import backend
from einet.structures import RegionGraph

__all__ = ["rehearse"]

# Seconds until somebody who waits for kernels is told so.
_PATIENCE = 1.0

#: A kernel, and what Triton wrote down of how it was to be compiled.
Noted = list[tuple[Any, str]]

# Launches are noted for one thread at a time.
_turn = threading.Lock()
_log = logging.getLogger("einet")


def rehearse(call: Callable[..., object], *arguments: Any) -> int:
    """Compile the kernels that a call will launch, unless they are compiled already.

    Args:
        call: The call; it is made with copies of the arguments, which have no memory.
        arguments: A model, a batch and whatever else belongs to the call.

    Returns:
        How many kernels were compiled, or found in Triton's cache.
    """
    try:
        noted = _noted(call, *arguments)
    except Exception as error:
        # A copy without memory cannot follow everything, and need not.
        _log.debug("a call could not be rehearsed: %s", error)
        return 0
    _compile(noted)
    return len(noted)


def _noted(call: Callable[..., object], *arguments: Any) -> Noted:
    """The kernels of a call that are not compiled yet."""
    copies = _without_memory(arguments)
    with _noting() as noted, backend("triton"), torch.no_grad():
        call(*copies)
    return noted


def _without_memory(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of modules and all else, with tensors of the same shapes on the meta device."""
    memo: dict[int, Any] = {}
    for module in arguments:
        for part in module.modules() if isinstance(module, nn.Module) else ():
            # A graph never changes, and may be large.
            graphs = (value for value in vars(part).values() if isinstance(value, RegionGraph))
            memo.update((id(graph), graph) for graph in graphs)
    with _OnMeta():
        return copy.deepcopy(arguments, memo)


class _OnMeta(TorchFunctionMode):
    """Within it copies of tensors have no memory."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is Tensor.__deepcopy__:
            tensor, memo = args
            return memo.setdefault(id(tensor), _shape_of(tensor))
        if func is Tensor.clone:
            return _shape_of(args[0])
        return func(*args, **(kwargs or {}))


def _shape_of(tensor: Tensor) -> Tensor:
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta", requires_grad=False
    )


@contextmanager
def _noting() -> Iterator[Noted]:
    """Within it this thread's launches of kernels are noted and not made."""
    from triton import knobs
    from triton.runtime.jit import JITFunction

    noted: Noted = []
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


def _compile(noted: Noted) -> None:
    """Compile kernels side by side, and say so if it takes long."""
    if not noted:
        return
    with ThreadPoolExecutor(min(len(noted), _cores()), initializer=_same_device()) as threads:
        compiled = [threads.submit(kernel.preload, how) for kernel, how in noted]
        if wait(compiled, timeout=_PATIENCE).not_done:
            _tell(len(noted))
        for kernel in compiled:
            _look_at(kernel)


def _look_at(compiled: Future) -> None:
    error = compiled.exception()
    if error is not None:
        # The launch will meet the same error, and raise it where it belongs.
        _log.debug("a kernel could not be compiled ahead: %s", error)


def _same_device() -> Callable[[], None]:
    """What makes the current GPU that of another thread, too."""
    if not torch.cuda.is_available():
        return lambda: None
    device = torch.cuda.current_device()
    return lambda: torch.cuda.set_device(device)


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _tell(count: int) -> None:
    console = Console(stderr=True)
    if console.file.isatty() or console.is_jupyter:
        console.print(
            f"compiling {count} kernels for this model and this GPU, once: they are kept for later",
            highlight=False,
        )
