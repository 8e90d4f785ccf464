"""Going on from a checkpoint: it is taken up whole, or the model stays what it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor

from einet.data.files import FormatError
from einet.learning.snapshot import numbers_by_name, restore_numbers
from einet.models.base import Model
from einet.models.einet import Einet
from einet.models.values import check_values

__all__ = ["Resumption", "take_units"]


class Resumption:
    """Guards a model until the state of a run has been taken up.

    Args:
        path: The file that the state is from, for errors; None where there is nothing to resume,
            and nothing to guard.
        model: The model, as it is now. Should an error end the block before :meth:`done` is called,
            it is put back on its device, with its numbers.
    """

    def __init__(self, path: Path | None, model: Model) -> None:
        self._path, self._model = path, model
        self._numbers: dict[str, Tensor] | None = None

    def __enter__(self) -> Resumption:
        if self._path is not None:
            model = self._model
            self._device = model.device
            # In main memory, where the state of the file lies as well.
            numbers = numbers_by_name(model)
            self._numbers = {name: tensor.cpu().clone() for name, tensor in numbers.items()}
            self._initialized = [(einet, einet.initialized) for einet in _einets(model)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._numbers is not None:
            if self._model.device != self._device:
                self._model.to(self._device)
            restore_numbers(self._model, self._numbers)
            for einet, initialized in self._initialized:
                einet.initialized = initialized
        self._numbers = None

    def done(self) -> None:
        """The state has been taken up: from here on errors leave what was learnt."""
        self._numbers = None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Within this block any error is one of the file's content."""
        try:
            yield
        except (torch.OutOfMemoryError, OSError):
            raise
        except Exception as error:
            # Learners from outside the library may say in any way that they cannot go on.
            said = str(error) if isinstance(error, ValueError) else repr(error)
            raise FormatError(
                f"checkpoint: {self._path} is no checkpoint that can be resumed: {said}"
            ) from error


def take_units(model: Model, numbers: dict[str, Tensor]) -> None:
    """Give a model the numbers that a learner may ask for before the loop takes up its state.

    Inside :func:`einet.unconstrained`, where numbers may be from, hyper-parameters have the names
    that they have outside.
    """
    here = numbers_by_name(model)
    for name, tensor in numbers.items():
        own = here.get(name.replace("parametrizations.", "").removesuffix(".original"))
        if own is not None and (own.shape, own.dtype) != (tensor.shape, tensor.dtype):
            raise ValueError(
                f"last.{name} must be {own.dtype} of shape {list(own.shape)}, "
                f"got {tensor.dtype} of shape {list(tensor.shape)}"
            )
    check_values(model, numbers)
    restore_numbers(model, numbers)
    for einet in _einets(model):
        einet.initialized = True


def _einets(model: Model) -> list[Einet]:
    return [module for module in model.modules() if isinstance(module, Einet)]
