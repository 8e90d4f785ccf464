"""Log densities of the roots as one function that torch can differentiate.

It is a function of the rows, the sum weights, and θ and A of the leaves. One backward pass through
the circuit gives all of its gradients (sec. 3.5): Σ ∂log P/∂w of every sum, Σ p_L T(x) and −Σ p_L
of every leaf, and Σ_L p_L ∂log f_L/∂x of every cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.batch import Batch
from einet.engine.values import EinetValues
from einet.layers.expectation import input_gradient

if TYPE_CHECKING:
    from einet.engine.passes import Passes

__all__ = ["class_roots"]


def class_roots(
    model: Passes,
    batch: Batch,
    weights: Sequence[Tensor] | None = None,
    natural: Sequence[tuple[Tensor, Tensor]] | None = None,
) -> Float[Tensor, "classes batch"]:
    """log p(x | c) of every class (float64), differentiable in the rows and the parameters.

    Large batches are cut into pieces, forwards and backwards: the values of all nodes are kept for
    the backward pass only where there is one piece, and are computed anew otherwise.

    Args:
        model: The model.
        batch: Rows that have been checked.
        weights: Those of every layer; the model's own by default.
        natural: θ and A of every block of leaves; the model's own by default.
    """
    if batch.events is not None:
        raise NotImplementedError(
            "log_prob has no derivatives where rows have events (where): ask under torch.no_grad()"
        )
    if batch.x.requires_grad and all(g.family.discrete for g in model.leaf.family_groups):
        kinds = ", ".join(sorted({type(g.family).__name__ for g in model.leaf.family_groups}))
        raise ValueError(
            f"x requires gradients, but all variables of this model are discrete ({kinds}): "
            "log_prob has no derivative in them; give x.detach()"
        )
    weights = model.circuit.weights if weights is None else weights
    natural = [block.natural() for block in model.leaf.leaf_blocks] if natural is None else natural
    flat = [tensor for pair in natural for tensor in pair]
    call = _Call(model, len(weights))
    return _Roots.apply(call, batch.x, batch.observed, *weights, *flat)  # type: ignore[return-value]


@dataclass
class _Call:
    """One evaluation: what forward leaves for backward beside tensors."""

    model: Passes
    num_weights: int
    #: The values of all nodes, where the batch was in one piece.
    values: EinetValues | None = None

    def split(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
        """Weights, and pairs of θ and A."""
        weights, flat = list(tensors[: self.num_weights]), tensors[self.num_weights :]
        return weights, list(zip(flat[::2], flat[1::2], strict=True))

    def fill(self, batch: Batch, tensors: Sequence[Tensor]) -> EinetValues:
        # The fused kernels find missing cells by themselves; by now others may be in use.
        batch = batch if self.model.is_fused else batch.scanned()
        return self.model.fill(batch, *self.split(tensors))


class _Roots(torch.autograd.Function):
    @staticmethod
    def forward(call: _Call, x: Tensor, observed: Tensor | None, *tensors: Tensor) -> Tensor:
        model, batch = call.model, Batch(x, observed)
        pieces, parts = model.pieces(len(batch)), []
        for rows in pieces:
            values = call.fill(batch[rows], tensors)
            parts.append(model.circuit.root_of(values))
            if len(pieces) == 1:
                call.values = values
        return torch.cat(parts, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        call, *tensors = inputs
        ctx.call = call
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, seed: Tensor) -> tuple[Tensor | None, ...]:
        needed = tuple(ctx.needs_input_grad[1:])
        gradients = iter(_Gradients.apply(ctx.call, needed, seed, *ctx.saved_tensors))  # type: ignore[arg-type]
        return None, *(next(gradients) if need else None for need in needed)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        raise NotImplementedError(_FORWARD_MODE)

    @staticmethod
    def vmap(*arguments: Any) -> Any:
        raise NotImplementedError(_VECTORISED)


class _Gradients(torch.autograd.Function):
    """The backward pass; a function of its own, so that its derivatives are refused, not 0."""

    @staticmethod
    def forward(
        call: _Call,
        needed: tuple[bool, ...],
        seed: Tensor,
        x: Tensor,
        observed: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        model, batch = call.model, Batch(x, observed)
        weights, natural = call.split(tensors)
        count = 2 + call.num_weights
        of_x = torch.zeros_like(x) if needed[0] else None
        of_weights = [torch.zeros_like(w) for w in weights] if any(needed[2:count]) else None
        of_leaves = model.leaf.empty_statistics() if any(needed[count:]) else None
        for rows in model.pieces(len(batch)):
            piece = batch[rows]
            values = call.fill(piece, tensors) if call.values is None else call.values
            possible = model.circuit.root_of(values) > -torch.inf
            some = torch.where(possible, seed[:, rows], 0.0)
            flow = model.circuit.backpropagate_(weights, values, some, of_weights)
            if of_leaves is not None:
                model.leaf.statistics(values.evidence, flow, of_leaves)
            if of_x is not None:
                of_x[rows] = input_gradient(model.leaf, flow, piece, natural).to(of_x)
        wanted = [of_x, None, *(of_weights or [None] * call.num_weights)]
        for statistic in of_leaves or []:
            wanted += [statistic.weighted, -statistic.total]
        pairs = zip(wanted, needed, strict=False)
        return tuple(tensor for tensor, need in pairs if need and tensor is not None)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *seeds: Tensor) -> tuple[None, ...]:
        raise NotImplementedError(
            "log_prob has first derivatives only: a Hessian, or a gradient of a gradient "
            "(create_graph=True), needs second ones"
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        raise NotImplementedError(_FORWARD_MODE)

    @staticmethod
    def vmap(*arguments: Any) -> Any:
        raise NotImplementedError(_VECTORISED)


_FORWARD_MODE = (
    "log_prob has no forward-mode derivatives (torch.func.jvp, jacfwd), but gradients of first "
    "order by backward, torch.autograd.grad and torch.func.grad"
)
_VECTORISED = (
    "log_prob has no rule for torch.func.vmap (which jacrev and hessian use): give it all rows as "
    "one batch; the gradient of log_prob(x).sum() has the gradient of each row"
)
