"""Joining the processes of a script that ``torchrun``, or a launcher like it, has started."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist

from einet._checks import as_number, check_choice, check_flag
from einet.distributed import team as teams
from einet.distributed.team import ALONE, Team

__all__ = ["as_wanted", "jointly", "start"]

# What torchrun tells a process.
_NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_BACKENDS = ("gloo", "nccl")

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@contextmanager
def start(
    backend: str | None = None, timeout: float | int = teams.SECONDS
) -> Iterator[torch.device]:
    """Join the processes that ``torchrun`` has started; within the block, they learn together.

    Without ``torchrun`` there is one process, and nothing changes: the same script serves both.
    Where a group of processes is there already, it is used and left as it was.

    Args:
        backend: ``"nccl"`` or ``"gloo"``; by default NCCL where every process of this machine can
            have a GPU of its own, gloo elsewhere.
        timeout: Seconds after which a process that does not answer is given up.

    Yields:
        The device of this process: its own GPU with NCCL, the CPU with gloo.

    Example:
        >>> import einet
        >>> with einet.distributed.start() as device:
        ...     print(device.type in ("cpu", "cuda"))
        True
    """
    seconds = float(as_number("timeout", timeout, at_least=1))
    if backend is not None:
        check_choice("backend", backend, _BACKENDS)
    local = int(os.environ.get("LOCAL_RANK", 0))
    beside = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    enough = torch.cuda.is_available() and torch.cuda.device_count() >= beside
    if backend is None:
        backend = "nccl" if enough and dist.is_nccl_available() else "gloo"
    if backend == "nccl" and not enough:
        raise ValueError(
            f"backend nccl needs a GPU for each of {beside} processes on this machine, which has "
            f"{torch.cuda.device_count()}; 'gloo' works without"
        )
    device = torch.device("cuda", local) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    started = not dist.is_initialized() and all(name in os.environ for name in _NAMES)
    earlier, teams.SECONDS = teams.SECONDS, seconds
    if started:
        dist.init_process_group(backend, timeout=timedelta(seconds=seconds))
    try:
        yield device
    finally:
        teams.SECONDS = earlier
        if started and dist.is_initialized():
            dist.destroy_process_group()


def as_wanted(distributed: Any) -> bool:
    """Whether to work with other processes, by what a user gave as ``distributed``."""
    there = dist.is_available() and dist.is_initialized()
    if distributed is None:
        return there
    check_flag("distributed", distributed)
    if distributed and not there:
        raise ValueError(
            "distributed is True, but no group of processes is there: call this within "
            "einet.distributed.start(), in a script that torchrun has started"
        )
    return distributed


def jointly(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let a function work with other processes where ``distributed`` says so.

    Within it, that argument is a :class:`Team`: of all processes, or of this one alone. Should one
    of them fail, the others do not wait for it.
    """

    @wraps(function)
    def joint(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        if isinstance(options.get("distributed"), Team):
            return function(*arguments, **options)
        if not as_wanted(options.pop("distributed", None)):
            options["distributed"] = ALONE
            return function(*arguments, **options)
        with Team.of_all(teams.SECONDS) as team:
            options["distributed"] = team
            return function(*arguments, **options)

    return joint
