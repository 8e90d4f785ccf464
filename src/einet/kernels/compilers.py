"""Kernels compiled ahead, many at the same time.

Triton compiles a kernel when it is launched, and holds Python's lock while it does: threads gain
nothing. Other processes do. They need no GPU, only its name, and what they compile is found in
Triton's cache on disk when the kernel is launched. They are copies of this process (``fork``), as
it takes many seconds to import torch anew.

Nothing depends on it but time. What a copy fails to compile is compiled when it is launched.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

__all__ = ["NamedDriver", "Noted", "compile_all", "cores"]

#: A kernel, and what Triton wrote down of how it was to be compiled.
Noted = tuple[Any, str]

# A kernel that lies in Triton's cache is there sooner; one that is compiled takes longer.
_FOUND = 0.1
# Fewer are as soon compiled here.
_FEWEST = 2
# Seconds until copies that have compiled nothing more are given up: a kernel takes one or two.
_LONGEST = 60.0

_log = logging.getLogger("einet")


def compile_all(kernels: Sequence[Noted], tell: Callable[[int], None]) -> None:
    """Compile kernels for the current GPU, unless they lie in Triton's cache.

    Args:
        kernels: The kernels.
        tell: What is called once if there are several to compile, with their number.
    """
    told = False
    for number, kernel in enumerate(kernels):
        began = time.perf_counter()
        _compile(*kernel)
        rest = kernels[number + 1 :]
        if told or time.perf_counter() - began < _FOUND or len(rest) < _FEWEST:
            continue
        # One was missing, and so are most of those behind it.
        told = True
        tell(len(rest) + 1)
        if cores() > 1 and _compile_side_by_side(rest):
            return


def cores() -> int:
    """How many processes this one may keep busy."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _compile(kernel: Any, how: str) -> Any:
    try:
        return kernel.preload(how)
    except Exception as error:
        # The launch will meet the same error, and raise it where it belongs.
        _log.debug("a kernel could not be compiled ahead: %s", error)
        return None


def _compile_side_by_side(kernels: Sequence[Noted]) -> bool:
    """Compile kernels by copies of this process; whether that could be tried."""
    try:
        context = get_context("fork")
    except ValueError:  # not on this system
        return False
    count = min(cores(), len(kernels))
    beginning = (kernels, *_gpu())
    with warnings.catch_warnings():
        # Threads that hold a lock now hold it in a copy forever. What a copy does here needs no
        # lock of others; if one should wait all the same, it is given up.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        copies = ProcessPoolExecutor(count, context, _begin, beginning)
        compiled = [copies.submit(_compile_number, number) for number in range(len(kernels))]
    if not _all_done(compiled):
        _log.debug("kernels are compiled one by one, as copies of this process did not end")
        for process in list(copies._processes.values()):
            process.kill()
    copies.shutdown(wait=True, cancel_futures=True)
    return True


def _gpu() -> tuple[Any, Any]:
    """The name of the current GPU, and what makes the programs that launch kernels on it."""
    from triton.runtime import driver

    active: Any = driver.active
    return active.get_current_target(), active.launcher_cls


def _all_done(compiled: Sequence[Future]) -> bool:
    """Wait as long as one after the other is done; whether all are."""
    waiting = set(compiled)
    while waiting:
        done, waiting = wait(waiting, _LONGEST, "FIRST_COMPLETED")
        if not done:
            return False
    return True


# -- in a copy of this process ---------------------------------------------------------------------

_kernels: Sequence[Noted] = ()
_launcher: Any = None


class NamedDriver:
    """All that Triton's compiler asks of a GPU: its name.

    A copy of a process cannot ask the GPU itself.
    """

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_device(self) -> int:
        """There is one."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """Nothing will run in it."""
        return 0

    def get_current_target(self) -> Any:
        """What to compile for."""
        return self._target


def _begin(kernels: Sequence[Noted], target: Any, launcher: Any) -> None:
    global _kernels, _launcher
    _kernels, _launcher = kernels, launcher
    _become(target)


def _become(target: Any) -> None:
    """Compile for a GPU without asking it."""
    from triton.runtime import driver

    driver.set_active(NamedDriver(target))  # type: ignore[arg-type]


def _compile_number(number: int) -> None:
    compiled = _compile(*_kernels[number])
    if compiled is not None:
        # What calls it is a small program of its own, which a C compiler takes a while for.
        _launcher(compiled.src, compiled.metadata)
