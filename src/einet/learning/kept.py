"""Going back to an earlier state of a model."""

from __future__ import annotations

import torch

from einet.models.base import Model

__all__ = ["Kept"]


class Kept:
    """A copy of a model's state to go back to."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        self.since = "before training"

    def take(self, epoch: int) -> None:
        """Keep the present state."""
        for name, tensor in self._model.state_dict().items():
            self.state[name].copy_(tensor)
        self.since = f"after epoch {epoch}"

    def restore(self) -> None:
        """Go back to the state that was kept."""
        with torch.no_grad():
            for name, tensor in self._model.state_dict().items():
                tensor.copy_(self.state[name])
