"""Processes that learn one model together: what they tell each other, and how they end together."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["ALONE", "SECONDS", "ProcessesError", "Team", "describe_error", "portable"]

Result = TypeVar("Result")

#: So long a process waits for another that does not answer, unless ``start`` says otherwise.
SECONDS = 600.0
# So long it waits for the last words of one whose connection broke.
_SECONDS_FOR_LAST_WORDS = 1.0
# No more characters of an error are told to others.
_MOST_WORDS = 2000
# Every team has entries of its own in the store that all processes see.
_teams = 0


class ProcessesError(RuntimeError):
    """Another process of the run has failed, or does not answer: this one cannot go on.

    Example:
        >>> import torch.distributed as dist
        >>> store = dist.HashStore()
        >>> dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        >>> team = Team(store=store, key="run/")
        >>> store.set("run/failed", "process 3 ended with MemoryError")  # as that one would
        >>> team.was_told("stop")
        Traceback (most recent call last):
        einet.distributed.team.ProcessesError: process 0 cannot go on: process 3 ended with ...
        >>> dist.destroy_process_group()
    """


class Team:
    """Processes that each hold a share of the rows, and all hold the same model.

    All its methods are called by all of them, in the same order: what one process asks for, the
    others have to answer. A process that fails says why and closes its connections, so that the
    others do not wait for it.

    Args:
        group: What small things are told by, and tensors in main memory: a gloo group of its own.
            None for a process that is alone; everything below then returns at once.
        on_devices: The group for tensors on GPUs; None for the same group.
        store: Where a process that fails leaves its last words.
        key: What the team's entries in the store begin with.

    Example:
        >>> team = Team()
        >>> team.alone, team.rank, team.size
        (True, 0, 1)
        >>> team.share(10)
        slice(0, 10, None)
    """

    def __init__(
        self, group: Any = None, on_devices: Any = None, store: Any = None, key: str = ""
    ) -> None:
        self._group, self._on_devices, self._store, self._key = group, on_devices, store, key
        self.rank = 0 if group is None else dist.get_rank(group)
        self.size = 1 if group is None else dist.get_world_size(group)
        #: Seconds in which this process did nothing but wait for sums.
        self.waited = 0.0

    @classmethod
    @contextmanager
    def of_all(cls, seconds: float = SECONDS) -> Iterator[Team]:
        """All processes of ``torch.distributed``, for as long as the block lasts.

        An error that leaves the block is told to the other processes, whose blocks then end with a
        :class:`ProcessesError` that names it.

        Args:
            seconds: So long they wait for one that does not answer.

        Example:
            >>> import torch.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> with Team.of_all() as team:
            ...     team.rank, team.size, team.alone
            (0, 1, False)
            >>> dist.destroy_process_group()
        """
        global _teams
        _teams += 1
        store, key = dist.distributed_c10d._get_default_store(), f"einet/{_teams}/"
        # Of all kinds of devices: a group may have one backend for each.
        backends = dist.distributed_c10d.get_backend_config()
        on_devices = dist.group.WORLD if "nccl" in backends else None
        # One may have failed, and left, before this one has met it.
        with cls(None, None, store, key)._others():
            group: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=seconds))
        team = cls(group, on_devices, store, key)
        try:
            # Nobody fails before all have met.
            with team._others():
                dist.barrier(group)
            yield team
        except BaseException as error:
            team._say_last_words(error)
            raise
        finally:
            team._group = team._on_devices = None
            dist.destroy_process_group(group)

    @property
    def alone(self) -> bool:
        """Whether there is nobody to ask: not even a group of one."""
        return self._group is None

    @property
    def first(self) -> bool:
        """Whether this is the process that writes, prints and calls back.

        Example:
            >>> Team().first
            True
        """
        return self.rank == 0

    def share(self, rows: int, start: int = 0) -> slice:
        """This process's part of so many rows, equal up to one; the first has some if any has.

        Args:
            rows: How many rows there are.
            start: The number of the first of them.

        Example:
            >>> team = Team()
            >>> team.rank, team.size = 1, 3
            >>> team.share(10)
            slice(4, 7, None)
        """
        low, high = (-(-rows * number // self.size) for number in (self.rank, self.rank + 1))
        return slice(start + low, start + high)

    # -- sums ------------------------------------------------------------------------------------

    def begin_sum_(self, tensor: Tensor) -> Any:
        """Begin to replace a tensor by its sum over all processes.

        The sum is the same on all of them, bit by bit.

        Args:
            tensor: The tensor; not to be touched before the sum is there.

        Returns:
            What to :meth:`wait` for.

        Example:
            >>> import torch.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> total = torch.tensor([2.0, 3.0])
            >>> with Team.of_all() as team:
            ...     work = team.begin_sum_(total)
            ...     team.wait(work)
            >>> dist.destroy_process_group()
            >>> total  # there is no other process that would add to it
            tensor([2., 3.])
        """
        group = self._on_devices if tensor.is_cuda and self._on_devices else self._group
        with self._others():
            return dist.all_reduce(tensor, group=group, async_op=True)

    def wait(self, work: Any) -> None:
        """Wait for a sum; on a GPU only the present stream waits.

        Args:
            work: What :meth:`begin_sum_` or :meth:`begin_most_` returned.

        Example:
            >>> import torch.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> with Team.of_all() as team:
            ...     team.wait(team.begin_sum_(torch.ones(3)))
            ...     team.waited > 0
            True
            >>> dist.destroy_process_group()
        """
        began = time.perf_counter()
        with self._others():
            work.wait()
        self.waited += time.perf_counter() - began

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all processes.

        Args:
            tensors: As many, and of the same shapes, in every process.

        Example:
            >>> total = torch.tensor([2.0, 3.0])
            >>> Team().sum_([total])
            >>> total
            tensor([2., 3.])
        """
        if not self.alone:
            for work in [self.begin_sum_(tensor) for tensor in tensors]:
                self.wait(work)

    def begin_most_(self, numbers: Tensor) -> Any:
        """Begin to replace whole numbers by the largest of all processes.

        Args:
            numbers: A tensor of integers in main memory.

        Returns:
            What to :meth:`wait` for.

        Example:
            >>> import torch.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> numbers = torch.tensor([7])
            >>> with Team.of_all() as team:
            ...     team.wait(team.begin_most_(numbers))
            >>> dist.destroy_process_group()
            >>> numbers
            tensor([7])
        """
        with self._others():
            return dist.all_reduce(numbers, dist.ReduceOp.MAX, group=self._group, async_op=True)

    def most(self, number: int) -> int:
        """The largest of the numbers that the processes have.

        Args:
            number: This process's own.

        Example:
            >>> Team().most(7)
            7
        """
        if self.alone:
            return number
        numbers = torch.tensor([number])
        self.wait(self.begin_most_(numbers))
        return int(numbers)

    def any(self, flag: bool) -> bool:
        """Whether one of the processes says so.

        Args:
            flag: Whether this process says so.

        Example:
            >>> Team().any(False)
            False
        """
        return bool(self.most(int(flag)))

    # -- the same for all ------------------------------------------------------------------------

    def from_first(self, make: Callable[[], Result]) -> Result:
        """What the first process makes, for all of them; an error too is raised by all.

        Args:
            make: Called in the first process alone.

        Example:
            >>> Team().from_first(lambda: 3)
            3
        """
        if self.alone:
            return make()
        told: list[Any] = [None]
        if self.first:
            try:
                told = [("result", make())]
            except Exception as error:
                told = [("error", portable(error))]
        with self._others():
            dist.broadcast_object_list(told, dist.get_global_rank(self._group, 0), self._group)
        kind, value = told[0]
        if kind == "error":
            raise value
        return value

    def from_each(self, value: Result) -> list[Result]:
        """What each process has, in their order.

        Args:
            value: This process's own; what can be pickled.

        Example:
            >>> Team().from_each("this process alone")
            ['this process alone']
        """
        if self.alone:
            return [value]
        told: list[Any] = [None] * self.size
        with self._others():
            dist.all_gather_object(told, value, self._group)
        return told

    def copy_from_(self, tensors: Sequence[Tensor], rank: int = 0) -> None:
        """Replace tensors by those of one process.

        Args:
            tensors: As many, and of the same shapes, in every process.
            rank: Whose tensors; those of the first by default.

        Example:
            >>> weights = torch.tensor([2.0, 3.0])
            >>> Team().copy_from_([weights])
            >>> weights
            tensor([2., 3.])
        """
        if self.alone or self.size == 1:
            return
        for tensor in tensors:
            # Not every backend moves tensors from where they lie, nor those with gaps.
            there = tensor.detach().contiguous().cpu()
            with self._others():
                dist.broadcast(there, dist.get_global_rank(self._group, rank), self._group)
            if self.rank != rank:
                with torch.no_grad():
                    tensor.copy_(there)

    def check_same(self, what: Mapping[str, Any]) -> None:
        """Raise, in all processes, unless all have the same values; the error names what differs.

        Args:
            what: Plain values by the names that a user knows them by.

        Example:
            >>> Team().check_same({"epochs": 10, "seed": 0})  # one process agrees with itself
        """
        if self.alone:
            return
        told = self.from_each({name: repr(value) for name, value in what.items()})
        differing = []
        for name in {name: None for each in told for name in each}:
            values = [each.get(name, "nothing") for each in told]
            rank = next((r for r, value in enumerate(values) if value != values[0]), None)
            if rank is not None:
                differing.append(
                    f"{name} is {values[0]:.80} in process 0 and {values[rank]:.80} in {rank}"
                )
        if differing:
            raise ValueError(
                f"the processes of this run must agree, but {'; '.join(differing)}. Start all of "
                "them with the same release, data and settings"
            )

    # -- ends ------------------------------------------------------------------------------------

    @contextmanager
    def _others(self) -> Iterator[None]:
        """What torch says of a connection that broke, told with why it did."""
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, ProcessesError):
                raise
            words = self.last_words(_SECONDS_FOR_LAST_WORDS)
            why = words or (
                f"a process ended without a word, or does not answer ({_first_line(error)})"
            )
            raise ProcessesError(f"process {dist.get_rank()} cannot go on: {why}") from error

    def _say_last_words(self, error: BaseException) -> None:
        """Tell the others why this process ends, unless it was told so itself."""
        if isinstance(error, ProcessesError) or self._store is None:
            return
        text = f"process {self.rank} ended with {describe_error(error)}"
        try:
            self._store.set(f"{self._key}failed", text[:_MOST_WORDS])
        except RuntimeError:
            # The store is with the first process, which may be gone; nobody is left to tell.
            return

    def last_words(self, seconds: float = 0.0) -> str | None:
        """What a process that failed has said; None where none has.

        Args:
            seconds: So long to wait for it.

        Example:
            >>> Team().last_words() is None
            True
        """
        ends = time.monotonic() + seconds
        try:
            while True:
                if self._store is not None and self._store.check([f"{self._key}failed"]):
                    return self._store.get(f"{self._key}failed").decode()
                if time.monotonic() >= ends:
                    return None
                time.sleep(0.05)
        except RuntimeError:
            return None

    def tell(self, name: str) -> None:
        """Leave a sign that the others see when they look, and that nobody has to wait for.

        Args:
            name: The name of the sign.

        Example:
            >>> import torch.distributed as dist
            >>> team = Team(store=dist.HashStore(), key="run/")
            >>> team.was_told("stop")
            False
            >>> team.tell("stop")
            >>> team.was_told("stop")
            True
        """
        if self._store is not None:
            self._store.set(f"{self._key}{name}", "1")

    def was_told(self, name: str) -> bool:
        """Whether one of them has left that sign; raises if one of them has failed.

        Args:
            name: The name of the sign.

        Example:
            >>> Team().was_told("stop")
            False
        """
        if self._store is None:
            return False
        with self._others():
            words = self.last_words()
            if words is not None:
                raise ProcessesError(f"process {dist.get_rank()} cannot go on: {words}")
            return self._store.check([f"{self._key}{name}"])


#: For those who work without others.
ALONE = Team()


def describe_error(error: BaseException) -> str:
    """An error in one line: what it is, and what it says."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def portable(error: BaseException) -> BaseException:
    """The same error where another process can be told of it, else one that says as much."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(describe_error(error))
    return error
