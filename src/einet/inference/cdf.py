"""Distribution functions of single variables given the evidence."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.batch import Batch
from einet.inference.conditioned import Conditioned
from einet.inference.mixtures import Mixtures, is_ordered, up_to

__all__ = ["cdf"]


@torch.no_grad()
def cdf(posterior: Conditioned, x: Any, observed: Any = None) -> Float[Tensor, "batch variables"]:
    r"""The distribution function :math:`P(X_d \le x_d \mid e)` of each variable by itself; exact.

    It is the sum :math:`\sum_L p(L \mid e)\, P_L(X_d \le x_d)` over leaves.

    Args:
        x: Values ``[batch, variables]``; or one row, or one number, for all rows of evidence.
            NaN where nothing is asked; ±∞ are allowed.
        observed: A mask of the same shape, for integer data.

    Returns:
        NaN where x is missing, and for categories, which have no order (those of
        ``Categorical(..., numeric=True)`` have one). Where the evidence holds a value, 1 if x is
        at least that and 0 if not.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
        >>> posterior = model.given([[0.5, float("nan")]])
        >>> posterior.cdf(torch.tensor([[0.7, torch.inf]]))
        tensor([[1., 1.]])
        >>> below, above = posterior.cdf(0.3)[0, 1], 1 - posterior.cdf(0.3)[0, 1]
        >>> bool(0 < below < 1), (below + above).item()
        (True, 1.0)
    """
    posterior.check_possible()
    query, evidence = _as_points(posterior, x, observed), posterior.evidence
    values = query.x.double()
    answer = torch.full_like(values, torch.nan)
    asked = query.mask & ~evidence.mask & is_ordered(posterior.model)
    variables = asked.any(0).nonzero().flatten()
    if len(variables):
        values_of = torch.where(query.mask, values, 0.0)[:, variables]
        for rows, mixtures in Mixtures.pieces(posterior, variables):
            # Rounding may leave sums of leaves a little above 1.
            answer[rows, variables] = mixtures.at(up_to, values_of[rows]).clamp(0.0, 1.0)
    certain = (values >= evidence.x.double()).double()
    answer = torch.where(evidence.mask & is_ordered(posterior.model), certain, answer)
    return torch.where(query.mask, answer, torch.nan).to(posterior.model.dtype)


def _as_points(posterior: Conditioned, x: Any, observed: Any) -> Batch:
    """A value for each cell: rows of their own, or one row or number for all of them."""
    variables = posterior.model.num_variables
    if isinstance(x, Real) or (isinstance(x, Tensor) and x.ndim == 0):
        if observed is not None:
            raise ValueError("observed is for rows of x, but x is a single number")
        x = torch.full((1, variables), float(x), dtype=torch.float64)
    elif isinstance(x, Tensor) and x.ndim == 1:
        x, observed = x.unsqueeze(0), None if observed is None else observed.unsqueeze(0)
    elif isinstance(x, list | tuple) and x and all(isinstance(value, Real) for value in x):
        x = [list(x)]
    query = posterior.model.as_batch(x, observed)
    if len(query) == 1 and len(posterior) != 1:
        shape = (len(posterior), variables)
        query = replace(query, x=query.x.expand(shape), observed=query.mask.expand(shape))
    if len(query) != len(posterior):
        raise ValueError(
            f"x must have one row, or as many as the evidence, {len(posterior)}, got {len(query)}"
        )
    return query
