"""Log-likelihoods on a GPU that cost gradients only those who ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from einet.data.batch import Batch
from einet.engine import replay

if TYPE_CHECKING:
    from einet.engine.passes import Passes

__all__ = ["log_likelihood", "parameters"]


def log_likelihood(model: Passes, batch: Batch, given: list[Tensor]) -> Tensor:
    """Of every row, by the fused kernels; differentiable in the parameters ``given``.

    Values come from a replayed graph, as without gradients. Should gradients be asked for, the
    passes through the circuit are made then.
    """
    return _LogLikelihood.apply(model, batch, *given)  # type: ignore[return-value]


def parameters(model: Passes) -> list[Tensor] | None:
    """The parameters of a model; None where they are computed from others."""
    owners = [(block._parameters, "stored") for block in model.leaf.leaf_blocks]
    owners += [(layer._parameters, "weight") for layer in model.circuit.sum_layers]
    found: list[Tensor | None] = [tensors.get(name) for tensors, name in owners]
    found.append(model.log_class_prior)
    return None if any(tensor is None for tensor in found) else found  # type: ignore[return-value]


class _LogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, model: Passes, batch: Batch, *given: Tensor) -> Tensor:
        ctx.model, ctx.batch = model, batch
        # Saved for the check alone that nobody changes them before the gradients are computed.
        ctx.save_for_backward(batch.x, *given)
        parts = [replay.log_likelihood(model, batch[rows]) for rows in model.pieces(len(batch))]
        return torch.cat(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors
        given = parameters(ctx.model)
        if given is None:
            raise RuntimeError("the model was parametrised anew between log_prob and backward")
        needed = [t for t, need in zip(given, ctx.needs_input_grad[2:], strict=True) if need]
        # The fused kernels find missing cells by themselves; meanwhile others may be in use.
        batch = ctx.batch if ctx.model.is_fused else ctx.batch.scanned()
        with torch.enable_grad():
            result = ctx.model.differentiable_log_likelihood(batch)
            found = iter(torch.autograd.grad(result, needed, gradient, allow_unused=True))
        return None, None, *(next(found) if need else None for need in ctx.needs_input_grad[2:])
