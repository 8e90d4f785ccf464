"""How much memory training takes, known before it begins; and pieces that fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from einet._memory import budget

if TYPE_CHECKING:
    from einet.engine.passes import Passes

__all__ = ["LEAST_ROWS", "Memory", "halve_pieces", "memory_of", "parameter_bytes"]

#: No piece of a batch has fewer rows, unless the batch has.
LEAST_ROWS = 64
# Temporaries of the torch kernels, in multiples of their budget; measured.
_BLOCKS = 8
# Entries of wide linear sums that the fused kernels keep cut into bf16 numbers, three for each
# product and three for each gradient.
_BYTES_OF_PLANES = 12
# Numbers that leaves make of each cell: its value, whether it is known, and statistics of it.
_NUMBERS_OF_A_CELL = 4


@dataclass(frozen=True)
class Memory:
    """What a training step takes at its peak, in bytes, on the device of the model.

    Attributes:
        device: Where.
        parameters: The model itself.
        copies: The copy of it that :func:`einet.fit` goes back to should something fail. It keeps
            one more where there are validation rows.
        values: Values of all nodes and their flows, for as many rows as are in work at a time.
        statistics: Expected statistics, where a step keeps them.
        work: What kernels need on the way.
        rows: How many rows are in work at a time; a larger batch goes through in pieces.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(64, 3, 5), einet.Gaussian(), num_sums=10)
        >>> print(model.memory(batch_size=500))
        12.5 MiB on cpu: parameters 0.1, copies 0.1, values 3.1, statistics 0.1, work 9.0
    """

    device: torch.device
    parameters: int
    copies: int
    values: int
    statistics: int
    work: int
    rows: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.parameters + self.copies + self.values + self.statistics + self.work

    def __str__(self) -> str:
        names = ("parameters", "copies", "values", "statistics", "work")
        parts = ", ".join(f"{name} {getattr(self, name) / 2**20:.1f}" for name in names)
        return f"{self.total / 2**20:.1f} MiB on {self.device}: {parts}"


def parameter_bytes(model: nn.Module) -> int:
    """All tensors that belong to a model."""
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


def memory_of(model: Passes, batch_size: int, full: bool) -> Memory:
    """What a step with so many rows takes.

    Args:
        model: The model.
        batch_size: Rows in a mini-batch.
        full: Whether statistics of all sums are kept, as full-batch EM and several processes do. A
            batch that goes through in pieces keeps them anyway.
    """
    circuit, size = model.circuit, model.log_class_prior.element_size()
    pieces = model.pieces(batch_size)
    rows = max((piece.stop - piece.start for piece in pieces), default=0)
    nodes = ((circuit.num_body, circuit.width), (circuit.num_top, circuit.num_classes))
    # Values and flows in the model's type, a scale of each node in float64, and a peak.
    each = sum(count * (2 * width * size + 8 + size) for count, width in nodes)
    blocks = model.leaf.leaf_blocks
    of_leaves = [
        8 * block.stored.shape[0] * block.stored.shape[1] * (1 + block.group.num_statistics)
        for block in blocks
    ]
    # The fused kernels turn those of leaves into parameters at once.
    statistics = 0 if model.is_fused else max(of_leaves, default=0)
    if full or len(pieces) > 1:
        statistics = sum(of_leaves) + sum(weight.nbytes for weight in circuit.weights)
    own = parameter_bytes(model)
    return Memory(
        device=model.device,
        parameters=own,
        copies=own,
        values=rows * each,
        statistics=statistics,
        work=_work(model, rows) + rows * model.num_variables * 8 * _NUMBERS_OF_A_CELL,
        rows=rows,
    )


def _work(model: Passes, rows: int) -> int:
    """What kernels need on their way, beside values and statistics."""
    if not model.is_fused:
        return _BLOCKS * budget("block", model.device)
    # The fused kernels work in registers. Tables are turned around before states are looked up, and
    # operands of wide sums are kept as tensor cores take them.
    tables = [block.stored.nbytes for block in model.leaf.leaf_blocks if block.stored.shape[-1] > 2]
    wide = sum(len(tree.parents) for tree in model.circuit.linear_trees if tree.is_wide)
    planes = wide * model.circuit.width * _BYTES_OF_PLANES
    return max(tables, default=0) + planes * rows


def halve_pieces(model: nn.Module, batch_size: int) -> int | None:
    """Let batches go through in pieces of half as many rows as so far.

    Returns:
        How many rows are in work at a time from now on; None where fewer would not help.
    """
    from einet.engine.passes import Passes

    halved = None
    for part in model.modules():
        if isinstance(part, Passes):
            rows = max(piece.stop - piece.start for piece in part.pieces(batch_size))
            if rows > LEAST_ROWS:
                part.most_rows = max(LEAST_ROWS, -(-rows // 2))
                halved = max(halved or 0, part.most_rows)
    return halved
