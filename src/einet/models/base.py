"""What every model of this library can do, be it one Einet or a mixture of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

from jaxtyping import Float
from torch import Tensor

from einet.data.batch import Batch
from einet.engine.pseudo_counts import PseudoCounts
from einet.engine.statistics import Statistics
from einet.inference.distribution import Distribution
from einet.layers.parameter import canonicalize
from einet.models.record import write_model
from einet.models.state import check_state
from einet.structures import RegionGraph

__all__ = ["Model"]


class Model(Distribution):
    """A probabilistic circuit: a distribution that can be asked, learnt and saved."""

    #: With more than one, p(x) is a mixture of distributions p(x | c) that labels can tell apart.
    num_classes: int = 1
    #: Whether the leaves have been set from data; :func:`einet.fit` does so otherwise.
    initialized: bool

    def forward(
        self, x: Any, observed: Any = None, *, labels: Any = None
    ) -> Float[Tensor, " batch"]:
        """``model(x)`` is ``model.log_prob(x)``."""
        return self.log_prob(x, observed, labels=labels)

    @abstractmethod
    def initialize(self, data: Any, observed: Any = None, seed: int = 0) -> Model:
        """Set leaves from data, as a start for learning."""

    @abstractmethod
    def e_step(
        self,
        x: Any,
        observed: Any = None,
        *,
        labels: Any = None,
        weights: Any = None,
        into: Statistics | None = None,
    ) -> Statistics:
        """Expected statistics of the latent variables, added to ``into`` where given."""

    @abstractmethod
    def m_step(
        self,
        statistics: Statistics,
        step_size: float | Tensor = 1.0,
        prior: PseudoCounts | None = None,
    ) -> None:
        """Move the parameters towards those that maximise the expected log-likelihood.

        Args:
            statistics: What :meth:`e_step` found.
            step_size: λ: how far to move; 1 is all the way.
            prior: Pseudo-counts on the scale of these statistics: see :class:`einet.Prior`.
        """

    def em_step(
        self,
        x: Any,
        observed: Any = None,
        *,
        labels: Any = None,
        weights: Any = None,
        step_size: float | Tensor = 1.0,
        prior: PseudoCounts | None = None,
    ) -> Float[Tensor, ""]:
        """``m_step(e_step(x), step_size, prior)``; the mean log-likelihood before the update."""
        statistics = self.e_step(x, observed, labels=labels, weights=weights)
        self.m_step(statistics, step_size, prior)
        return statistics.log_likelihood / statistics.rows

    @abstractmethod
    def check_support(self, batch: Batch, name: str) -> None:
        """Raise if an observed value has density zero whatever the parameters."""

    @property
    def num_parameters(self) -> int:
        """How many numbers the model keeps as parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    # Torch puts plain parameters in the place of canonical ones here and there: in pickles, where
    # a state is assigned, and on devices that no parameter can be moved to in place.

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Model:
        super()._apply(fn, recurse)
        canonicalize(self)
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        canonicalize(self)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Take the parameters of another model of the same structure, as every torch module does.

        A state that does not fit is refused before anything is changed: one of another graph, of
        other families or shapes, and one that holds NaN, or weights that are negative or do not add
        up to 1. The model is then as initialised as the other was, so that :func:`einet.fit` goes
        on from there; states of releases that did not record this count as initialised.

        Args:
            state_dict: What ``state_dict()`` of the other model returned.
            strict: Whether the names must be the same, none missing and none too many.
            assign: Whether to keep the tensors given, in place of copying them.

        Example:
            >>> import einet, torch
            >>> graph = einet.random_trees(4, 1, 2)
            >>> one, two = (einet.Einet(graph, einet.Gaussian(), 3, seed=s) for s in (0, 1))
            >>> two.load_state_dict(one.state_dict())
            <All keys matched successfully>
            >>> torch.equal(one.log_prob(torch.zeros(1, 4)), two.log_prob(torch.zeros(1, 4)))
            True
        """
        result = super().load_state_dict(state_dict, strict, assign)
        canonicalize(self)
        return result

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any
    ) -> None:
        # Here, and not only where a model itself is asked: it may be part of a larger module. Of a
        # mixture this comes before any component is touched.
        check_state(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    @abstractmethod
    def describe(self, graphs: dict[RegionGraph, str]) -> dict[str, Any]:
        """What a file says of the model beside its tensors; graphs that are new get a name."""

    def save(self, path: str | PathLike[str], metadata: Mapping[Any, Any] | None = None) -> None:
        """Write the model to one file, atomically; :func:`einet.load` reads it back.

        Args:
            path: The file; its folder must exist.
            metadata: What else the file shall tell, for :func:`einet.load_metadata`.

        Raises:
            ValueError: The parameters are not those of a distribution, but NaN, say, or weights
                that do not add up to 1. Nothing is written then.
        """
        graphs: dict[RegionGraph, str] = {}
        write_model(path, self, self.describe(graphs), graphs, metadata)
