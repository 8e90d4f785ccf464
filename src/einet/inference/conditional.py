"""Densities of a query given the evidence: equation (1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.inference.conditioned import Conditioned, same_values

__all__ = ["log_prob"]


@torch.no_grad()
def log_prob(posterior: Conditioned, x: Any, observed: Any = None) -> Float[Tensor, " batch"]:
    """Equation (1): log p(x_q | e), everything neither in x nor in the evidence integrated out.

    Args:
        x: Query values ``[batch, variables]``, NaN where not asked for; a single row of
            evidence is asked about every row of x. A variable may stand in both; where the two
            contradict each other the answer is −∞. So it is where a value lies outside an event.
        observed: A mask of the same shape, for integer data.

    Example:
        >>> import einet
        >>> model = einet.Einet(einet.random_trees(3, 1, 2), einet.Gaussian(), num_sums=4)
        >>> nan = float("nan")
        >>> asked = model.given([[0.5, nan, nan]]).log_prob([[nan, 1.0, nan], [0.7, 1.0, nan]])
        >>> both, known = model.log_prob([[0.5, 1.0, nan], [0.5, nan, nan]])
        >>> torch.allclose(asked[0], both - known)
        True
        >>> asked[1]  # contradicts what is known
        tensor(-inf)
    """
    model, evidence = posterior.model, posterior.evidence
    query = model.as_batch(x, observed)
    log_evidence = posterior.exact_log_evidence
    if len(evidence) == 1 and len(query) != 1:
        evidence = evidence[torch.zeros(len(query), dtype=torch.long, device=query.x.device)]
        log_evidence = log_evidence.expand(len(query))
    if len(query) != len(evidence):
        raise ValueError(
            f"x must have as many rows as the evidence, {len(evidence)}, got {len(query)}"
        )
    both = query.mask & evidence.mask
    values = torch.where(evidence.mask, evidence.x.double(), query.x.double())
    contradiction = (both & ~same_values(query, evidence)).any(1)
    joined = replace(evidence, x=values, observed=query.mask | evidence.mask)
    if evidence.events is not None:
        # Where the query has a value the event only says whether, or how well, the two agree.
        joined = replace(joined, events=evidence.events.without(query.mask))
    joint = model.log_joint(joined)
    if evidence.events is not None:
        joint = joint + evidence.events.log_weight(query.x, query.mask).sum(1)
    impossible = contradiction | (log_evidence == -torch.inf)
    return torch.where(impossible, -torch.inf, joint - log_evidence).to(model.dtype)
