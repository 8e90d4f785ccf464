"""Gradients of the rows of all processes, summed while the backward pass still runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from einet.data.batch import Batch
from einet.distributed.reduction import Reduction
from einet.distributed.team import Team
from einet.learning.learner import Objective
from einet.learning.objective import objective_of, row_weights
from einet.models.base import Model

__all__ = ["joint_backward"]


def joint_backward(
    model: Model, batch: Batch, objective: Objective, team: Team
) -> Float[Tensor, ""]:
    r"""Leave the gradients of the negative mean objective of all processes' rows; that mean.

    .. math:: \nabla = -\frac{\sum_r \nabla \sum_{x \in r} w_x f(x)}{\sum_r \sum_{x \in r} w_x}

    Every process differentiates the sum over its rows. Gradients set out to the others as soon as
    the backward pass has made them, bucket by bucket; with them go the sums by which they are
    divided.

    Args:
        model: The model, inside :func:`einet.unconstrained`.
        batch: The rows of this process, perhaps none.
        objective: What is maximised.
        team: The processes.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # The last are made first; the order only decides which of them travel together.
    parameters.reverse()
    sums = torch.zeros(2, dtype=torch.float64, device=model.device)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    reduction = Reduction(team, [sums, *grads])
    if len(batch):
        with torch.enable_grad(), parametrize.cached():
            values = objective_of(model, batch, objective)
            weights = row_weights(batch, objective)
            shares = torch.ones_like(values) if weights is None else weights.to(values)
            # Rows of weight 0 count for nothing, whatever their density is.
            total = torch.where(shares > 0, values * shares, 0.0).sum()
            sums.copy_(torch.stack([total.detach().double(), shares.sum().double()]))
            reduction.ready(0)
            with _as_they_come(parameters, reduction):
                (-total).backward()
    reduction.finish()
    # In the type of the objective, as weighted_mean does it.
    weight = sums[1].clamp(min=torch.finfo(model.dtype).tiny)
    for grad in grads:
        grad /= weight.to(grad)
    return sums[0] / weight


@contextmanager
def _as_they_come(parameters: Sequence[nn.Parameter], reduction: Reduction) -> Iterator[None]:
    """Send each gradient once the backward pass has made it."""

    def sender(number: int) -> object:
        return lambda parameter: reduction.ready(number)

    hooks = [
        # The sums of rows come before them.
        parameter.register_post_accumulate_grad_hook(sender(number + 1))
        for number, parameter in enumerate(parameters)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
