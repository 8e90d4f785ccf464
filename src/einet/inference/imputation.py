"""Missing cells filled in: by expectations, most probable states, or draws."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal, TypeAlias, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from einet._checks import check_choice
from einet.inference.conditioned import Conditioned
from einet.inference.distribution import Distribution
from einet.inference.moments import mean
from einet.inference.state_search import most_probable_by_search, range_of_modes
from einet.inference.states import state_sums

__all__ = ["Imputation", "impute"]

#: What missing cells are filled with; see :func:`impute`.
Imputation: TypeAlias = Literal["best", "mean", "mode", "sample"]

# Tables of probabilities of states that are made at a time take so many bytes.
_CPU_TABLE_BYTES, _GPU_TABLE_BYTES = 64 << 20, 1 << 30
# Counts of more states than this are searched, not tabulated.
_MOST_TABULATED = 1 << 10


@torch.no_grad()
def impute(
    posterior: Conditioned,
    method: Imputation = "best",
    seed: int | torch.Generator | None = None,
) -> Float[Tensor, "batch variables"]:
    """The evidence with its missing cells filled in; never NaN.

    Args:
        method: What a missing cell gets.

            * ``"best"``: the expectation E[x_d | e] of a continuous variable, and the most probable
              state of a discrete one: right for every family.
            * ``"mean"``: the expectation of every variable, which is between the states of
              discrete ones. Categories that are no numbers have none, and are refused.
            * ``"mode"``: the most probable state of every variable. Continuous ones have none, and
              are refused.
            * ``"sample"``: one draw of all missing cells together from p(x | e). The other methods
              answer for each cell by itself.

        seed: A seed or generator for ``"sample"``.

    The most probable state is the exact argmax_s of p(x_d = s | e), everything else integrated out;
    :meth:`mode` looks for the most probable row instead, and approximately.

    Example:
        >>> import einet
        >>> graph = einet.random_trees(3, depth=1, replicas=2)
        >>> families = [einet.Gaussian(), einet.Categorical(4), einet.Poisson()]
        >>> model = einet.Einet(graph, families, num_sums=4)
        >>> nan = float("nan")
        >>> filled = model.given(torch.tensor([[0.5, nan, nan], [nan, 3.0, 2.0]])).impute()
        >>> filled.isnan().any().item(), filled[0, 0].item()
        (False, 0.5)
        >>> filled[0, 1] == model.given([[0.5, nan, nan]]).probabilities(1).argmax()
        tensor(True)
    """
    check_choice("method", method, get_args(Imputation))
    if method == "sample":
        return posterior.sample(1, seed=seed)[0]
    if seed is not None:
        raise ValueError(f"seed is for method 'sample', but method is {method!r}")
    posterior.check_possible()
    missing = (~posterior.evidence.mask).any(0)
    discrete = _discrete(posterior.model, missing)
    _check_method(posterior.model, method, missing, discrete)
    averaged = missing if method == "mean" else missing & ~discrete
    shape, device = posterior.evidence.x.shape, posterior.model.device
    answer = torch.zeros(shape, dtype=posterior.result_dtype, device=device)
    if bool(averaged.any()):
        answer[:, averaged] = mean(posterior)[:, averaged].to(answer.dtype)
    chosen = (missing & ~averaged).nonzero().flatten()
    if len(chosen) and len(posterior):
        answer[:, chosen] = _most_probable(posterior, chosen).to(answer.dtype)
    return posterior.keep_evidence(answer)


def _discrete(
    model: Distribution, missing: Bool[Tensor, " variables"]
) -> Bool[Tensor, " variables"]:
    """Which variables are discrete; those that are missing must be so in all of a model or none."""
    kinds = []
    for _, einet in model.weighted_einets():
        kind = torch.zeros_like(missing)
        for group in einet.leaf.family_groups:
            kind[group.variables] = group.family.discrete
        kinds.append(kind)
    every = torch.stack(kinds)
    both = missing & every.any(0) & ~every.all(0)
    if bool(both.any()):
        raise ValueError(
            f"variable {int(both.nonzero()[0])} is discrete in some components and continuous in "
            "others, so that it has neither a most probable state nor a density"
        )
    return every.any(0)


def _check_method(
    model: Distribution,
    method: Imputation,
    missing: Bool[Tensor, " variables"],
    discrete: Bool[Tensor, " variables"],
) -> None:
    if method == "mode" and bool((missing & ~discrete).any()):
        variable = int((missing & ~discrete).nonzero()[0])
        raise ValueError(
            f"method 'mode' is for discrete variables, but variable {variable} is missing and "
            "continuous; 'best' takes its expectation"
        )
    if method == "mean":
        for _, einet in model.weighted_einets():
            for block in einet.leaf.leaf_blocks:
                nameless = block.family.mean(block.stored.detach().double()).isnan().any(0)
                variables = block.group.variables[block.columns].reshape(-1)[nameless]
                refused = variables[missing[variables]]
                if len(refused):
                    raise ValueError(
                        f"method 'mean' is for numbers, but variable {int(refused.min())} is "
                        "missing and holds categories; 'best' takes the most probable"
                    )


def _most_probable(
    posterior: Conditioned, variables: Int[Tensor, " some"]
) -> Float[Tensor, "batch some"]:
    """argmax_s p(x_d = s | e) of some discrete variables."""
    lowest, highest, one_peak = range_of_modes(posterior.model)
    answer = torch.empty(len(posterior), len(variables), dtype=torch.float64)
    answer = answer.to(posterior.model.device)
    # Variables with about as many states share a table.
    by_width: dict[int, list[int]] = defaultdict(list)
    events = posterior.evidence.events
    known = () if events is None else events.all_variables
    for place, variable in enumerate(variables.tolist()):
        width = int(highest[variable]) + 1
        if variable in known:
            bounds = float(lowest[variable]), float(highest[variable])
            answer[:, place] = _most_probable_in_event(posterior, variable, *bounds)
        elif one_peak[variable] and highest[variable] - lowest[variable] >= _MOST_TABULATED:
            bounds = float(lowest[variable]), float(highest[variable])
            answer[:, place] = most_probable_by_search(posterior, variable, *bounds)
        else:
            by_width[1 << (width - 1).bit_length()].append(place)
    for width, places in by_width.items():
        states = torch.arange(width, dtype=torch.float64, device=answer.device)
        room = _CPU_TABLE_BYTES if answer.device.type == "cpu" else _GPU_TABLE_BYTES
        at_once = max(1, room // (8 * width * len(places)))
        for start in range(0, len(posterior), at_once):
            rows = slice(start, min(start + at_once, len(posterior)))
            some = posterior if at_once >= len(posterior) else posterior.at(rows)
            columns = max(1, room // (8 * width * len(some)))
            for first in range(0, len(places), columns):
                part = torch.tensor(places[first : first + columns], device=answer.device)
                answer[rows, part] = _best_of_table(some, variables[part], states)
    return answer


def _most_probable_in_event(
    posterior: Conditioned, variable: int, lowest: float, highest: float
) -> Float[Tensor, " batch"]:
    """argmax_s p(x_d = s | e) of a variable with an event.

    Args:
        posterior: The posterior.
        variable: The variable.
        lowest, highest: Where its densities have their modes, or all states if they have several.
    """
    events = posterior.evidence.events
    assert events is not None
    columns = [column for column in events.states if column.variable == variable]
    if columns:
        states = columns[0].values
    else:
        number = events.variables.index(variable)
        lower, upper = events.lower[:, number].ceil(), events.upper[:, number].floor()
        # Between its bounds a density with one peak has it as near to the old one as can be.
        first = upper.clamp(max=lowest).maximum(lower).min().item()
        last = lower.clamp(min=highest).minimum(upper).max().item()
        if last - first >= _MOST_TABULATED:
            return torch.cat(
                [
                    _search_in_interval(posterior, variable, row, lowest, highest)
                    for row in range(len(posterior))
                ]
            )
        states = torch.arange(first, last + 1, dtype=torch.float64, device=lower.device)
    chosen = torch.tensor([variable], device=states.device)
    room = _CPU_TABLE_BYTES if states.device.type == "cpu" else _GPU_TABLE_BYTES
    at_once = max(1, room // (8 * len(states)))
    parts = []
    for start in range(0, len(posterior), at_once):
        rows = slice(start, min(start + at_once, len(posterior)))
        some = posterior if at_once >= len(posterior) else posterior.at(rows)
        parts.append(_best_of_table(some, chosen, states)[:, 0])
    return torch.cat(parts)


def _search_in_interval(
    posterior: Conditioned, variable: int, row: int, lowest: float, highest: float
) -> Float[Tensor, " one"]:
    """The same for one row, whose interval has too many states for a table."""
    one = posterior.at(slice(row, row + 1))
    events = one.evidence.events
    assert events is not None
    number = events.variables.index(variable)
    lower, upper = events.lower[0, number].ceil().item(), events.upper[0, number].floor().item()
    bounds = max(min(lowest, upper), lower), min(max(highest, lower), upper)
    return most_probable_by_search(one, variable, *bounds)


def _best_of_table(
    posterior: Conditioned, variables: Int[Tensor, " some"], states: Float[Tensor, " states"]
) -> Float[Tensor, "batch some"]:
    shape = (len(posterior), len(variables), len(states))
    flat = posterior.expectation(
        lambda leaves: state_sums(leaves, variables, states).permute(2, 0, 1).flatten(1),
        len(variables) * len(states),
    )
    return states[flat.view(shape).argmax(-1)]
