"""A mixture of models is again a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from einet._checks import as_seed, as_step_size, shown
from einet.data.batch import Batch, as_batch, as_weights
from einet.data.columns import as_columns
from einet.distributed.team import ALONE, Team
from einet.engine.m_step import update_log_weights
from einet.engine.memory import Memory, parameter_bytes
from einet.engine.pseudo_counts import PseudoCounts, check_pseudo_counts
from einet.engine.root import join, log_sum, responsibilities, share_out
from einet.engine.statistics import MixtureStatistics, Statistics
from einet.engine.tracing import eagerly, is_traced
from einet.inference.distribution import Distribution
from einet.inference.mixture import MixtureDistribution
from einet.layers.event_checks import check_events
from einet.layers.parameter import CanonicalParameter
from einet.models.base import Model, check_no_team
from einet.models.record import common_dtype
from einet.structures import RegionGraph

__all__ = ["Mixture", "as_models"]

Kind = TypeVar("Kind", bound=Model)


def as_models(components: Any, kind: type[Kind]) -> list[Kind]:
    """The components of a mixture, of which there must be one at least."""
    several = isinstance(components, Iterable) and not isinstance(components, Tensor | nn.Module)
    models: list[Any] = list(components) if several else []
    if not models or not all(isinstance(model, kind) for model in models):
        what = "model" if kind is Model else kind.__name__
        raise TypeError(
            f"components must be a sequence of at least one {what}, got {shown(components)}"
        )
    return models


class Mixture(MixtureDistribution, Model):
    r"""The mixture :math:`p(x) = \sum_m w_m\, p_m(x)` of models over the same variables.

    Weights are added to log densities, in log space; a component may be a mixture itself. All
    queries of a single model work, with components weighted by their posterior, and so does EM.

    Args:
        components: The models.
        weights: A weight for each, not negative; they are normalised. Equal by default.

    Example:
        >>> import einet, torch
        >>> graph = einet.random_trees(num_variables=4, depth=1, replicas=2)
        >>> parts = [einet.Einet(graph, einet.Gaussian(), num_sums=3, seed=s) for s in (0, 1)]
        >>> model = einet.Mixture(parts, weights=[0.25, 0.75])
        >>> x = torch.zeros(1, 4)
        >>> by_hand = 0.25 * parts[0].log_prob(x).exp() + 0.75 * parts[1].log_prob(x).exp()
        >>> torch.allclose(model.log_prob(x).exp(), by_hand)
        True
    """

    log_weights: Float[Tensor, " components"]

    def __init__(self, components: Sequence[Model], weights: Any = None) -> None:
        super().__init__()
        components = as_models(components, Model)
        variables = {component.num_variables for component in components}
        if len(variables) > 1:
            raise ValueError(
                f"components must have the same number of variables, got {sorted(variables)}"
            )
        if len(set(map(id, components))) < len(components):
            raise ValueError("components must be distinct models; copy.deepcopy makes another")
        named = {component.columns for component in components} - {None}
        if len(named) > 1:
            raise ValueError(
                "components must have the same columns in the same order, got models fitted on "
                "different ones; set model.columns = None where that is meant"
            )
        self.components = nn.ModuleList(components)
        self.num_variables = variables.pop()
        count = len(components)
        given = torch.ones(count) if weights is None else as_weights(weights, count)
        if not bool(given.sum() > 0):
            raise ValueError("weights must not all be 0")
        logs = (given.double() / given.double().sum()).log()
        logs = logs.to(self.models[0].dtype).to(self.models[0].device)
        self.log_weights = CanonicalParameter(logs)
        if named:
            self.columns = named.pop()

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the variables; None where they have none. All components have the same."""
        return self._columns

    @columns.setter
    def columns(self, names: Any) -> None:
        self._columns = None if names is None else as_columns(names, self.num_variables)
        for model in self.models:
            model.columns = self._columns

    @property
    def models(self) -> list[Model]:
        """The components."""
        return list(self.components)  # type: ignore[arg-type]

    @property
    def initialized(self) -> bool:  # type: ignore[override]
        """Whether the leaves of all components have been set from data.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> one, two = (einet.Einet(graph, einet.Gaussian(), 3, seed=seed) for seed in (0, 1))
            >>> model = einet.Mixture([one.initialize([[0.5, 1.0], [1.5, 2.0]]), two])
            >>> model.initialized
            False
        """
        return all(model.initialized for model in self.models)

    @property
    def dtype(self) -> torch.dtype:
        return self.models[0].dtype

    def log_prob(
        self, x: Any = None, observed: Any = None, *, labels: Any = None, where: Any = None
    ) -> Float[Tensor, " batch"]:
        if is_traced():
            return eagerly(self.log_prob, x, observed, labels=labels, where=where)
        options: Any = {"where": where, "events": True, "differentiable": True}
        batch = self.as_batch(x, observed, labels=labels, **options)
        return self.batch_log_prob(batch).to(self.dtype)

    log_prob.__doc__ = Distribution.log_prob.__doc__

    def batch_log_prob(self, batch: Batch) -> Float[Tensor, " batch"]:
        return log_sum(self.component_log_prob(batch))

    def component_log_prob(self, batch: Batch) -> Float[Tensor, "components batch"]:
        """log w_m p_m(x) of every component (float64)."""
        logs = [model.log_prob(batch) for model in self.models]
        return join(torch.stack(logs), self.log_weights)

    def responsibilities(
        self, x: Any = None, observed: Any = None, *, where: Any = None
    ) -> Float[Tensor, "batch components"]:
        """The posterior probability of each component; the weights where p(x) = 0.

        Args:
            x, observed, where: The rows; as in :meth:`log_prob`.

        Returns:
            ``[batch, components]``; the rows add up to 1.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> low, high = (einet.Einet(graph, einet.Gaussian(), num_sums=3) for _ in range(2))
            >>> low = low.initialize([[0.0, 0.1], [0.2, 0.0]])
            >>> high = high.initialize([[9.0, 9.1], [9.2, 9.0]])
            >>> model = einet.Mixture([low, high])
            >>> model.responsibilities([[0.0, 0.0], [float("nan"), 9.0]]).argmax(1)
            tensor([0, 1])
        """
        batch = self.as_batch(x, observed, where=where, events=True)
        with torch.no_grad():
            joint = self.component_log_prob(batch)
            return responsibilities(joint, self.log_weights.double()).T.to(self.dtype)

    def initialize(self, data: Any, observed: Any = None, seed: int = 0) -> Mixture:
        """Set the leaves of every component from data, each with a seed of its own."""
        seed = as_seed(seed)
        options = {"name": "data", "allow_empty": False, "device": None}
        batch = self.as_batch(data, observed, **options)
        # All of them first: none is changed where one refuses the data.
        self.check_support(batch, "data")
        for number, model in enumerate(self.models):
            model.initialize(batch, seed=(seed + number) % (1 << 63))
        self.remember(batch.columns)
        return self

    def check_support(self, batch: Batch, name: str) -> None:
        for model in self.models:
            model.check_support(batch, name)

    @torch.no_grad()
    def e_step(
        self,
        x: Any,
        observed: Any = None,
        *,
        labels: Any = None,
        weights: Any = None,
        into: Statistics | None = None,
        team: Team = ALONE,
    ) -> MixtureStatistics:
        """Expected statistics; a component counts each row by its responsibility for it.

        With a ``team`` of processes that have rows of their own each, those of all rows.
        """
        batch = self.as_batch(x, observed, labels=labels, weights=weights)
        if into is not None:
            self.check_statistics(into, "into")
            check_no_team(team)
        joint = self.component_log_prob(batch)
        log_prob, share, row_weights = share_out(joint, batch.weights)
        old = into.components if isinstance(into, MixtureStatistics) else [None] * len(self.models)
        parts: list[Statistics] = [
            model.e_step(replace(batch, weights=part), into=statistic, team=team)
            for model, part, statistic in zip(self.models, share, old, strict=True)
        ]
        if not isinstance(into, MixtureStatistics):
            zero = log_prob.new_zeros(3)
            counts = share.new_zeros(len(self.models))
            into = MixtureStatistics(zero[0], zero[1], zero[2], parts, counts)
        into.counts += share.sum(1)
        into.add_rows(log_prob, row_weights)
        team.sum_([into.counts, into.log_likelihood, into.rows, into.impossible])
        return into

    @torch.no_grad()
    def m_step(
        self,
        statistics: Statistics,
        step_size: float | Tensor = 1.0,
        prior: PseudoCounts | None = None,
    ) -> None:
        step_size = as_step_size(step_size)
        check_pseudo_counts(prior)
        self.check_statistics(statistics, "statistics")
        assert isinstance(statistics, MixtureStatistics)
        for model, part in zip(self.models, statistics.components, strict=True):
            model.m_step(part, step_size, prior)
        self.update_weights(statistics.counts, step_size)

    def check_statistics(self, statistics: Any, name: str) -> None:
        count = len(self.models)
        if not isinstance(statistics, MixtureStatistics):
            raise TypeError(
                f"{name} must be the statistics of a mixture, as its e_step makes them, "
                f"got {type(statistics).__name__}"
            )
        if len(statistics.components) != count or statistics.counts.shape != (count,):
            raise ValueError(f"{name} must be of a model of the same form as this one")
        for model, part in zip(self.models, statistics.components, strict=True):
            model.check_statistics(part, name)

    @torch.no_grad()
    def update_weights(
        self, counts: Float[Tensor, " components"], step_size: float | Tensor = 1.0
    ) -> None:
        """The M-step of the weights, given how often each component was chosen.

        Args:
            counts: A count for each component, of whatever total.
            step_size: λ: how far to move; 1 is all the way.

        Example:
            >>> import einet, torch
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> parts = [einet.Einet(graph, einet.Gaussian(), 3, seed=seed) for seed in (0, 1)]
            >>> model = einet.Mixture(parts)
            >>> model.update_weights(torch.tensor([10.0, 30.0]))
            >>> model.log_weights.exp()
            tensor([0.2500, 0.7500])
        """
        update_log_weights(self.log_weights, counts, step_size)

    def memory(self, batch_size: int = 500, *, full_batch: bool = False) -> Memory:
        # Components are in work one after the other, and all statistics are kept.
        parts = [model.memory(batch_size, full_batch=True) for model in self.models]
        largest = max(parts, key=lambda part: part.values + part.work)
        own = parameter_bytes(self)
        kept = sum(part.statistics for part in parts)
        return replace(largest, parameters=own, copies=own, statistics=kept)

    def describe(self, graphs: dict[RegionGraph, str]) -> dict[str, Any]:
        components = [model.describe(graphs) for model in self.models]
        return {"kind": "Mixture", "dtype": common_dtype(self), "components": components}

    def as_batch(self, x: Any, observed: Any = None, **options: Any) -> Batch:
        """What a method was given, checked and on the model's device."""
        if options.get("labels") is not None or (isinstance(x, Batch) and x.labels is not None):
            raise ValueError(
                f"{options.get('prefix', '')}labels are for models with classes (num_classes > 1), "
                "not for mixtures"
            )
        options = {"device": self.device, "columns": self.columns, **options}
        batch = as_batch(x, self.num_variables, observed, **options)
        if batch.events is not None:
            for _, einet in self.weighted_einets():
                check_events(einet.leaf, batch.events, self.columns)
        return batch
