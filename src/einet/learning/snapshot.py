"""Going back to an earlier state of a model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Snapshot", "restore_numbers"]


@torch.no_grad()
def restore_numbers(model: nn.Module, numbers: dict[str, Tensor]) -> None:
    """Give a model those numbers of an earlier state that it has under the same names."""
    for name, tensor in model.state_dict().items():
        if name in numbers and numbers[name].shape == tensor.shape:
            tensor.copy_(numbers[name])


class Snapshot:
    """A copy of a model's state to go back to.

    Args:
        model: The model, as it is now.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        #: When the copy was made, for error messages.
        self.since = "before training"

    def take(self, since: str) -> None:
        """Copy the present state."""
        for name, tensor in self._model.state_dict().items():
            self.state[name].copy_(tensor)
        self.since = since

    @torch.no_grad()
    def restore(self) -> None:
        """Go back to the copied state."""
        for name, tensor in self._model.state_dict().items():
            tensor.copy_(self.state[name])

    def numbers(self) -> dict[str, Tensor]:
        """What is learnt or read off data, by name; indices follow from the structure."""
        return {name: tensor for name, tensor in self.state.items() if tensor.is_floating_point()}

    def load(self, numbers: dict[str, Tensor]) -> None:
        """Take :meth:`numbers` of another time as the copy."""
        for name, tensor in self.numbers().items():
            if name not in numbers or numbers[name].shape != tensor.shape:
                raise ValueError(f"checkpoint: the state of {name} is missing or of another shape")
            tensor.copy_(numbers[name])
