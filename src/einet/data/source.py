"""Training rows as they were given, and as a model sees them, a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.data.batch import Batch, as_batch
from einet.data.rows import Rows

__all__ = ["Source", "Transform"]

#: From rows as they are kept to rows as the model sees them, such as ``lambda x: x / 255``.
Transform = Callable[[Tensor], Tensor]

# Converted rows take about so much memory at a time.
_CPU_PART_BYTES, _GPU_PART_BYTES = 32 << 20, 256 << 20


class Source:
    """Rows that stay in the type they came in; parts are converted when they are needed.

    Making one looks through all rows once, for missing cells and the columns' means.

    Args:
        x, observed: The rows, and a mask of the same shape, True where a cell is known.
        num_variables: The number of columns.
        device: Where parts are wanted. The rows are moved there too if they do not crowd it.
        transform: What is done to ``x`` on the way.
        check: Called with every part and its name; raises if the rows are not fit for a model.
        name: What error messages call the rows.

    Example:
        >>> images = torch.tensor([[0, 255], [255, 255]], dtype=torch.uint8)
        >>> source = Source(images, None, 2, torch.device("cpu"), lambda x: x / 255)
        >>> source.mean
        tensor([0.5000, 1.0000], dtype=torch.float64)
        >>> [part.x for part in source.parts()]
        [tensor([[0., 1.],
                 [1., 1.]])]
    """

    def __init__(
        self,
        x: Any,
        observed: Any,
        num_variables: int,
        device: torch.device,
        transform: Transform | None = None,
        check: Callable[[Batch, str], None] | None = None,
        name: str = "train",
    ) -> None:
        if transform is not None and not callable(transform):
            raise TypeError(
                f"transform must be a function of a tensor of rows or None, got {transform!r}"
            )
        # NaN is looked for below, part by part and where the model is.
        batch = as_batch(x, num_variables, observed, name=name, allow_empty=False, scan=False)
        self._rows, self._transform, self._name = Rows(batch.cells, device), transform, name
        self.num_variables, self.device = num_variables, device
        self._complete = False
        self._look(check)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def part_rows(self) -> int:
        """How many rows there are in a part."""
        room = _CPU_PART_BYTES if self.device.type == "cpu" else _GPU_PART_BYTES
        return max(1, room // (4 * self.num_variables))

    def _look(self, check: Callable[[Batch, str], None] | None) -> None:
        total = torch.zeros(self.num_variables, dtype=torch.float64, device=self.device)
        count = torch.zeros_like(total)
        by_row = torch.zeros((), dtype=torch.float64, device=self.device)
        start = 0
        for part in self.parts():
            if check is not None:
                check(part, self._name if not start else f"{self._name}[{start}:]")
            known = torch.where(part.mask, part.x, 0).double()
            total += known.sum(0)
            count += part.mask.sum(0)
            place = torch.arange(start, start + len(part), device=self.device) % 1009 + 1
            by_row += known.sum(1) @ place.double()
            start += len(part)
        #: The mean of each column's known cells, 0 where there are none.
        self.mean: Float[Tensor, " variables"] = total / count.clamp(min=1)
        self._complete = bool((count == len(self)).all())
        place = torch.arange(self.num_variables, device=self.device) % 1013 + 1
        sums = torch.stack([total @ place.double(), by_row, count.sum()])
        #: Sums that tell these rows, in this order, from others.
        self.checksum: list[float] = sums.tolist()

    def seen(self, part: Batch) -> Batch:
        """Rows as they were given, turned into what the model sees."""
        if self._transform is not None:
            x = self._transform(part.x)
            if not isinstance(x, Tensor) or x.shape != part.x.shape:
                got = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
                raise ValueError(
                    f"transform must keep the shape of its rows, {list(part.x.shape)}, got {got}"
                )
            part = replace(part, x=x.to(part.x.device))
        return replace(part, observed=None) if self._complete else part.scanned()

    @property
    def whole(self) -> Batch:
        """All rows as they were given, wherever they lie; :meth:`seen` is still to be applied."""
        return self._rows.batch

    def parts(self, order: Int[Tensor, " rows"] | None = None) -> Iterator[Batch]:
        """All rows, or those named, as the model sees them, on its device."""
        return self.batches(self.part_rows, order)

    def batches(self, size: int, order: Int[Tensor, " rows"] | None = None) -> Iterator[Batch]:
        """The same with so many rows in a part."""
        for part in self._rows.batches(size, order):
            yield self.seen(part)

    def centred(self, order: Int[Tensor, " rows"] | None = None) -> Iterator[Tensor]:
        """The same in float32, less the columns' means; 0 where a cell is missing."""
        for part in self.parts(order):
            # One shift for all rows: it may be rounded, as long as the differences are not.
            kind = torch.float64 if part.x.dtype == torch.float64 else torch.float32
            x = (part.x.to(kind) - self.mean.to(kind)).float()
            yield x if part.observed is None else torch.where(part.observed, x, 0.0)
