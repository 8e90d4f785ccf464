"""What an upward pass over some rows finds, and copies of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from einet.data.batch import Batch
from einet.engine.passes import Passes
from einet.engine.root import join
from einet.engine.values import EinetValues
from einet.kernels.nodes import Nodes

__all__ = ["UpwardPass"]


@dataclass(frozen=True, eq=False)
class UpwardPass:
    """What an upward pass over some rows finds: values of all nodes, and log p(c, e)."""

    values: EinetValues
    joint: Float[Tensor, "classes rows"]

    @classmethod
    def over(cls, model: Passes, batch: Batch) -> UpwardPass:
        """Make the pass."""
        values, root = model.upward(batch)
        # Only statistics need the data at the leaves again.
        values.evidence = []
        return cls(values, join(root, model.log_class_prior, batch.labels))

    def at(self, rows: slice | Int[Tensor, " some"]) -> UpwardPass:
        """The same for some of the rows."""

        def some(tensor: Tensor) -> Tensor:
            return tensor[..., rows].contiguous()

        batch = self.joint.shape[-1]
        return self._map(some, lambda each: each.at(rows, batch))

    def clone(self) -> UpwardPass:
        """The same in memory of its own."""

        def copied(each: Any) -> Any:
            return replace(each, **{name: part.clone() for name, part in _parts_of(each)})

        return self._map(Tensor.clone, copied)

    def copy_(self, other: UpwardPass) -> None:
        """Take the numbers of another pass over as many rows."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine.copy_(theirs)

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, in an order that is the same for all passes of a model."""
        for nodes in (self.values.body, self.values.top):
            yield from (nodes.v, nodes.m, nodes.peak)
        for each in self.values.kept.values():
            if isinstance(each, Tensor):
                yield each
            else:
                yield from (part for _, part in _parts_of(each))
        yield self.joint

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return sum(tensor.nbytes for tensor in self.tensors())

    def _map(
        self, of_tensor: Callable[[Tensor], Tensor], of_kept: Callable[[Any], Any]
    ) -> UpwardPass:
        values = self.values
        body, top = (
            Nodes(of_tensor(nodes.v), of_tensor(nodes.m), of_tensor(nodes.peak))
            for nodes in (values.body, values.top)
        )
        kept = {
            layer: of_tensor(each) if isinstance(each, Tensor) else of_kept(each)
            for layer, each in values.kept.items()
        }
        new = EinetValues(body, top, values.fused, values.precision, kept)
        return UpwardPass(new, of_tensor(self.joint))


def _parts_of(kept: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors of what a layer has kept for its way back, by name."""
    for field in fields(kept):
        value = getattr(kept, field.name)
        if isinstance(value, Tensor):
            yield field.name, value
