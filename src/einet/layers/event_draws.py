"""Values that are read off leaves under events: draws, means and modes of truncated densities."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.data.batch_events import Events, StateColumn
from einet.families import ExponentialFamily
from einet.families.arithmetic import clipped
from einet.layers.leaf_block import LeafBlock

__all__ = ["answer_events_"]


def answer_events_(
    values: Float[Tensor, "visits s"],
    block: LeafBlock,
    leaf: Int[Tensor, " visits"],
    entry: Int[Tensor, " visits"],
    row: Int[Tensor, " visits"],
    events: Events,
    answer: str,
    generator: torch.Generator | None = None,
) -> None:
    """Put values that obey the events in place of those that were read off without.

    Args:
        values: What was read off the leaves.
        block: Their block.
        leaf, entry, row: Which leaf, and entry of it, was visited, for which row of the evidence.
        events: The events of those rows.
        answer: ``"sample"``, ``"mean"`` or ``"mode"``.
        generator: Where randomness comes from.
    """
    columns = block.columns[leaf]
    variables = block.group.variables[columns]
    named = torch.tensor(events.variables, dtype=torch.long, device=leaf.device)
    number = _places(variables, named)
    kinds: list[tuple[Tensor, StateColumn | None]] = [(number >= 0, None)]
    kinds += [(variables == column.variable, column) for column in events.states]
    for asked, column in kinds:
        visit, position = asked.nonzero().unbind(1)
        if not len(visit):
            continue
        stored = block.by_leaf.detach()[entry[visit], leaf[visit], position].double()
        family = block.group.family.at(columns[visit, position])
        if column is not None:
            found = _of_states(family, stored, column, row[visit], answer, generator)
            kept = column.free[row[visit]]
            found = torch.where(kept, values[visit, position].double(), found)
            values[visit, position] = found.to(values)
            continue
        which = row[visit], number[visit, position]
        bounds = (events.lower[which], events.upper[which])
        if answer == "sample":
            found = family.sample_between(*bounds, stored, generator)
        elif answer == "mean":
            found = family.moments_between(*bounds, stored)[0]
        else:
            found = family.mode_between(*bounds, stored)
        values[visit, position] = clipped(found, *bounds, values.dtype)


def _places(
    variables: Int[Tensor, "visits s"], named: Int[Tensor, " intervals"]
) -> Int[Tensor, "visits s"]:
    """Where each variable is among those that are named; −1 for others."""
    if not len(named):
        return torch.full_like(variables, -1)
    order = named.argsort()
    place = torch.searchsorted(named[order], variables).clamp(max=len(named) - 1)
    return torch.where(named[order][place] == variables, order[place], -1)


def _of_states(
    family: ExponentialFamily,
    stored: Float[Tensor, "visits P"],
    column: StateColumn,
    row: Int[Tensor, " visits"],
    answer: str,
    generator: torch.Generator | None,
) -> Float[Tensor, " visits"]:
    values = column.values
    if family.kernel == "table":
        logs = family.theta_of(stored)[:, values.long()]
    else:
        each = family.with_hyperparameters(
            {name: hyper.unsqueeze(-1) for name, hyper in family.hyper.items()}
        )
        logs = each.log_prob(values.expand(len(stored), -1), stored.unsqueeze(1))
    logs = logs + column.weights[row].log()
    if answer == "mode":
        return values[logs.argmax(-1)]
    share = logs.softmax(-1)
    if answer == "mean":
        # NaN where states are no numbers.
        return share @ values + 0 * family.mean(stored)
    uniform = torch.rand(
        (len(share), 1), generator=generator, dtype=share.dtype, device=share.device
    )
    cumulative = share.cumsum(-1)
    # Counting what is at or below the target passes over states of probability 0.
    chosen = (cumulative <= uniform * cumulative[:, -1:]).sum(-1)
    return values[chosen.clamp(max=len(values) - 1)]
