"""How surprising each cell of a row is, given all other cells of that row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.inference.leave_one_out import leave_one_out

if TYPE_CHECKING:
    from einet.inference.distribution import Distribution

__all__ = ["surprise"]


@torch.no_grad()
def surprise(
    model: Distribution, x: Any, observed: Any = None, *, labels: Any = None
) -> Float[Tensor, "batch variables"]:
    r"""How surprising every cell is, :math:`-\log p(x_j \mid x_{-j})`, in nats.

    It is :math:`\log p(x_{-j}) - \log p(x)` with :math:`x_{-j}` all other observed cells of the
    row: what they say of cell j, against what it holds. Large numbers mark the cells that make a
    row unlikely. Of continuous variables it is the log of a density, so that it may be negative,
    and changes with the unit that a column is measured in.

    All cells of all rows are answered by one pass up and one down the circuit, in float64; an
    outlier however far out is as exact as a usual value. (The few cells for which these passes
    cannot vouch are asked one by one: see :mod:`einet.inference.leave_one_out`.)

    Args:
        x, observed: The rows; as in :meth:`log_prob`.
        labels: The class of each row where it is known, −1 where not.

    Returns:
        NaN where a cell is missing. In a row of probability 0 it is ∞ for a cell without which the
        row would be possible, and NaN where the other cells are impossible already: they say
        nothing of this one.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(3, 1, 2), einet.Gaussian(), num_sums=4)
        >>> x = torch.tensor([[0.0, 40.0, 0.5]])
        >>> found = model.surprise(x)
        >>> found.argmax().item()
        1
        >>> others = torch.tensor([[0.0, float("nan"), 0.5]])
        >>> torch.allclose(found[:, 1], model.log_prob(others) - model.log_prob(x))
        True
    """
    batch = model.as_batch(x, observed, labels=labels)
    parts = [part for part in model.weighted_einets() if part[0] > -torch.inf]
    found = [leave_one_out(einet, batch) for _, einet in parts]
    if len(found) == 1:
        answer = found[0].gain
    else:
        pairs = list(zip([log_weight for log_weight, _ in parts], found, strict=True))
        log_prob = torch.stack([weight + part.log_prob for weight, part in pairs]).logsumexp(0)
        without = torch.stack([weight + part.without for weight, part in pairs]).logsumexp(0)
        answer = without - log_prob.unsqueeze(1)
    return torch.where(batch.mask, answer, torch.nan).to(model.dtype)
