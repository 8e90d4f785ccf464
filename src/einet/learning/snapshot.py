"""Going back to an earlier state of a model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from einet.models.values import check_values

__all__ = ["Snapshot", "check_numbers", "numbers_by_name", "restore_numbers"]


def numbers_by_name(model: nn.Module) -> dict[str, Tensor]:
    """What is learnt or read off data, by name; indices follow from the structure."""
    state = model.state_dict()
    return {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}


@torch.no_grad()
def restore_numbers(model: nn.Module, numbers: dict[str, Tensor]) -> None:
    """Give a model those numbers of an earlier state that it has under the same names."""
    for name, tensor in numbers_by_name(model).items():
        if name in numbers and numbers[name].shape == tensor.shape:
            tensor.copy_(numbers[name])


def check_numbers(model: nn.Module, numbers: dict[str, Tensor], prefix: str = "") -> None:
    """Raise unless these are all the numbers that a model has, and such as a model may have.

    Args:
        model: The model, or several side by side.
        numbers: Tensors by name.
        prefix: What errors put in front of the names.
    """
    here = numbers_by_name(model)
    for name in [*here, *numbers]:
        if name not in here or name not in numbers:
            raise ValueError(f"{prefix}{name} is {'missing' if name in here else 'too much'}")
        there, own = numbers[name], here[name]
        if (there.shape, there.dtype) != (own.shape, own.dtype):
            raise ValueError(
                f"{prefix}{name} must be {own.dtype} of shape {list(own.shape)}, "
                f"got {there.dtype} of shape {list(there.shape)}"
            )
    try:
        check_values(model, numbers)
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from error


class Snapshot:
    """A copy of a model's numbers to go back to.

    Args:
        model: The model, as it is now. Its tensors must stay where they are.
    """

    def __init__(self, model: nn.Module) -> None:
        # Found once: a state dictionary takes as long as some epochs on a GPU.
        self._here = numbers_by_name(model)
        #: The copies, by name.
        self.numbers = {name: tensor.clone() for name, tensor in self._here.items()}
        #: When the copy was made, for error messages.
        self.since = "before training"

    @torch.no_grad()
    def take(self, since: str) -> None:
        """Copy the present state."""
        _copy(self.numbers, self._here)
        self.since = since

    @torch.no_grad()
    def restore(self) -> None:
        """Go back to the copied state."""
        _copy(self._here, self.numbers)

    def load(self, numbers: dict[str, Tensor]) -> None:
        """Take the numbers of another time, which have been checked, as the copy."""
        for name, tensor in self.numbers.items():
            tensor.copy_(numbers[name])


def _copy(to: dict[str, Tensor], source: dict[str, Tensor]) -> None:
    """One launch for all of them, rather than one for each."""
    pairs = [(to[name], source[name]) for name in to]
    torch._foreach_copy_(*map(list, zip(*pairs, strict=True)))  # type: ignore[attr-defined]
