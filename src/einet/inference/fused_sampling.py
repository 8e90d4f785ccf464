"""Samples by fused kernels: some launches for all of them, and none that waits for the device.

They can be recorded as a CUDA graph: what is random comes from a seed in memory, where another one
may lie at the next replay. Only families whose leaves are drawn in torch wait for the device, and
take their random numbers from a generator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet._memory import chunks
from einet.engine.passes import Passes
from einet.engine.values import EinetValues
from einet.inference.sampling import Leaves
from einet.layers.choices import choose, draw_leaves

__all__ = ["at_once", "can_draw", "draw_points", "new_seed"]


def can_draw(model: Passes) -> bool:
    """Whether fused kernels draw from a model: all of its layers have to know how."""
    return model.is_fused and model.circuit.has_choices


def at_once(model: Passes, n: int, rows: int) -> Iterator[slice]:
    """Slices of ``n`` samples of so many rows each, for which the choices of all nodes fit."""
    circuit = model.circuit
    each = 4 * rows * (circuit.num_body + circuit.num_top)
    return chunks(n, "choices", each, model.device)


def new_seed(model: Passes, generator: torch.Generator | None) -> Int[Tensor, " 1"]:
    """A random number beside a model, from a generator there or from torch's own."""
    return torch.randint(2**63 - 1, (1,), generator=generator, device=model.device)


def draw_points(
    model: Passes,
    joint: Float[Tensor, "classes rows"] | None,
    values: EinetValues | None,
    seed: Int[Tensor, " 1"],
    leaves: Leaves,
    out: Float[Tensor, "samples variables"],
    generator: torch.Generator | None = None,
) -> None:
    """Draw all cells of ``out``, whose row s belongs to row s of the evidence, modulo their number.

    Args:
        model: An Einet that :func:`can_draw`.
        joint: log p(c, e) of all classes; None where nothing is known, not even of the class.
        values: Of all nodes; None where no cell is known.
        seed: What all choices are made of, and draws from leaves that have kernels for that.
        leaves: What is read off a leaf.
        out: The cells, which follow one another in memory.
        generator: For draws from other leaves; torch's own by default.
    """
    if model.num_classes == 1:
        joint = None
    elif joint is None:
        joint = model.log_class_prior.detach().double().unsqueeze(-1)
    # Triton launches on the current device, whichever the tensors are on.
    with torch.cuda.device(out.device) if out.is_cuda else nullcontext():
        choices = choose(model.circuit, len(out), seed, joint, values)
        draw_leaves(model.leaf, choices, out, leaves, generator)
