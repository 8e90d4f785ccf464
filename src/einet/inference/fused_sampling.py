"""Samples by fused kernels: some launches for all of them, and none that waits for the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import torch
from jaxtyping import Float
from torch import Tensor

from einet._memory import chunks
from einet.engine.passes import Passes
from einet.engine.values import EinetValues
from einet.inference.sampling import Leaves
from einet.layers.choices import choose, draw_leaves

__all__ = ["at_once", "can_draw", "draw_points"]


def can_draw(model: Passes) -> bool:
    """Whether fused kernels draw from a model: all of its layers have to know how."""
    return model.is_fused and model.circuit.has_choices


def at_once(model: Passes, n: int, rows: int) -> Iterator[slice]:
    """Slices of ``n`` samples of so many rows each, for which the choices of all nodes fit."""
    circuit = model.circuit
    each = 4 * rows * (circuit.num_body + circuit.num_top)
    return chunks(n, "choices", each, model.device)


def draw_points(
    model: Passes,
    joint: Float[Tensor, "classes rows"] | None,
    values: EinetValues | None,
    generator: torch.Generator | None,
    leaves: Leaves,
    out: Float[Tensor, "samples variables"],
) -> None:
    """Draw all cells of ``out``, whose row s belongs to row s of the evidence, modulo their number.

    Args:
        model: An Einet that :func:`can_draw`.
        joint: log p(c, e) of all classes; None where nothing is known, not even of the class.
        values: Of all nodes; None where no cell is known.
        generator: What the seed of the draws is drawn from; torch's own by default.
        leaves: What is read off a leaf.
        out: The cells, which follow one another in memory.
    """
    seed = torch.randint(2**63 - 1, (1,), generator=generator, device=model.device)
    if model.num_classes == 1:
        joint = None
    elif joint is None:
        joint = model.log_class_prior.detach().double().unsqueeze(-1)
    # Triton launches on the current device, whichever the tensors are on.
    with torch.cuda.device(out.device) if out.is_cuda else nullcontext():
        choices = choose(model.circuit, len(out), seed, joint, values)
        draw_leaves(model.leaf, choices, out, leaves, generator)
