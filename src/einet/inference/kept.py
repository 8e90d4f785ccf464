"""What a posterior keeps of its passes, so that the next question need not make them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

__all__ = ["Kept", "Parameters", "room_on"]

Result = TypeVar("Result")

# So many bytes of values and flows does a posterior keep: what a batch of a usual size needs.
_CPU_ROOM, _GPU_ROOM = 256 << 20, 1 << 30


def room_on(device: torch.device) -> int:
    """How many bytes of its passes a posterior keeps on ``device``."""
    return _CPU_ROOM if device.type == "cpu" else _GPU_ROOM


class Kept:
    """Results by name, which last as long as the parameters of a model stay as they are.

    There is no lock. Threads that ask for the same result at the same time may compute it twice,
    and either serves.

    Args:
        model: The model whose parameters the results depend on.
        room: How many bytes all results together may take; one that does not fit is not kept.
    """

    def __init__(self, model: nn.Module, room: int) -> None:
        self._model, self._room = model, room
        self._results = _Results(Parameters(model))

    def get(self, name: str) -> Any:
        """The result of that name; None if there is none, or if parameters have changed since."""
        return self._current().values.get(name)

    def put(self, name: str, value: Any, size: int = 0) -> None:
        """Keep a result of so many bytes, if there is room for it."""
        self._put(self._current(), name, value, size)

    def once(
        self, name: str, compute: Callable[[], Result], size: Callable[[Result], int] | None = None
    ) -> Result:
        """The result of that name, computed unless it is there.

        Args:
            name: What the result is called.
            compute: How to come by it.
            size: How many bytes it takes; without, it always has room.
        """
        results = self._current()
        value = results.values.get(name)
        if value is None:
            value = compute()
            self._put(results, name, value, 0 if size is None else size(value))
        return value

    def drop(self, name: str) -> None:
        """Forget a result."""
        results = self._current()
        results.values.pop(name, None)
        results.sizes.pop(name, None)

    def _put(self, results: _Results, name: str, value: Any, size: int) -> None:
        others = sum(used for other, used in list(results.sizes.items()) if other != name)
        if size == 0 or others + size <= self._room:
            results.values[name], results.sizes[name] = value, size

    def _current(self) -> _Results:
        """The results of the parameters as they are now."""
        results = self._results
        if not results.parameters.are_the_same():
            # A new object: threads that still write to the old one do no harm.
            results = self._results = _Results(Parameters(self._model))
        return results


class _Results:
    """Results of the parameters in one state."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.values: dict[str, Any] = {}
        self.sizes: dict[str, int] = {}


class Parameters:
    """The parameters of a model in one state: where each lies, and how often it has changed.

    Every question asks several times whether they are still the same, so that the way through the
    modules, which takes longer, is gone once. Tensors made in inference mode are not watched;
    whoever changes those asks for a new posterior.

    Example:
        >>> module = nn.Linear(2, 3)
        >>> parameters = Parameters(module)
        >>> parameters.are_the_same()
        True
        >>> _ = nn.init.zeros_(module.bias)
        >>> parameters.are_the_same()
        False
    """

    def __init__(self, model: nn.Module) -> None:
        self._seen: list[tuple[dict[str, Any], str, torch.Tensor, int]] = []
        self._versions: list[tuple[torch.Tensor, int]] = []
        rest = [model]
        while rest:
            module = rest.pop()
            for name, tensor in module._parameters.items():
                if tensor is not None:
                    self._seen.append((module._parameters, name, tensor, tensor.data_ptr()))
                    if not tensor.is_inference():
                        self._versions.append((tensor, tensor._version))
            rest += [child for child in module._modules.values() if child is not None]

    def are_the_same(self) -> bool:
        """Whether every parameter is the same tensor, at the same place, with the same numbers."""
        for parameters, name, tensor, place in self._seen:
            if parameters.get(name) is not tensor or tensor.data_ptr() != place:
                return False
        return all(tensor._version == version for tensor, version in self._versions)
