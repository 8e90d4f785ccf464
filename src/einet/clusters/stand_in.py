"""One Einet in the place of many: what is recorded for it serves all of them."""

from __future__ import annotations

import copy
import threading

import torch

from einet.models.einet import Einet

__all__ = ["StandIn", "copy_parameters", "twin"]


class StandIn:
    """An Einet that takes the parameters of others of its structure, one after the other.

    On a GPU the calls of a model are recorded (see :mod:`einet.engine.replay`). To record them for
    each of a hundred components would take longer than training those, and each recording keeps
    memory. Parameters are copied in place here, so that the recordings of one model stay valid.

    Args:
        like: An Einet of this structure, on the same device and of the same type.
    """

    def __init__(self, like: Einet) -> None:
        # Tensors made in inference mode could not be written to outside of it.
        with torch.inference_mode(False):
            self.model = twin(like)
        #: To be held from :meth:`become` until the answer is there.
        self.lock = threading.RLock()
        self._stream: torch.cuda.Stream | None = None

    def serves(self, other: Einet) -> bool:
        """Whether another model is on the same device and of the same type still."""
        return (self.model.device, self.model.dtype) == (other.device, other.dtype)

    def become(self, other: Einet) -> Einet:
        """The stand-in with the parameters of another model."""
        if self.model.device.type == "cuda":
            # What was begun in another stream may read the old parameters still.
            stream = torch.cuda.current_stream(self.model.device)
            if self._stream is not None and self._stream != stream:
                stream.wait_stream(self._stream)
            self._stream = stream
        self.model.precision = other.precision
        self.model.initialized = other.initialized
        # What it is given comes in the order of the model it stands in for.
        self.model.columns = None
        copy_parameters(other, self.model)
        return self.model

    def give(self, other: Einet) -> None:
        """Copy the parameters to another model."""
        other.initialized = self.model.initialized
        copy_parameters(self.model, other)


def twin(model: Einet) -> Einet:
    """A copy with parameters of its own; the graph is shared."""
    return copy.deepcopy(model, {id(model.graph): model.graph})


@torch.no_grad()
def copy_parameters(source: Einet, target: Einet) -> None:
    """Give one model all numbers of another of its structure, in place."""
    for new, old in zip(target.places(), source.places(), strict=True):
        new.value.copy_(old.value)
