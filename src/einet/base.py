"""What every model of this library can do, be it one Einet or a mixture of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from einet.data.batch import Batch

if TYPE_CHECKING:
    from einet.inference.posterior import Posterior
    from einet.learning.prior import PseudoCounts
    from einet.learning.statistics import Statistics

__all__ = ["Leaves", "Model", "as_generator"]

Leaves = Literal["sample", "mean"]


class Model(nn.Module, ABC):
    """A probabilistic circuit over ``num_variables`` variables.

    Every query answers through :meth:`given`; the queries without evidence on this class are short
    for ``given`` with nothing observed. ``NaN`` (or False in ``observed``) means missing.
    """

    num_variables: int
    #: With more than one, p(x) is a mixture of distributions p(x | c) that labels can tell apart.
    num_classes: int = 1
    #: Whether the leaves have been set from data; :func:`einet.fit` does so otherwise.
    initialized: bool

    def log_prob(self, x: Any, observed: Any = None) -> Float[Tensor, " batch"]:
        """Log density of each row, missing cells integrated out exactly.

        Args:
            x: ``[batch, variables]``: a tensor, array, data frame or nested list. NaN is missing.
                A :class:`~einet.data.Batch` that was checked before is taken as it is.
            observed: A mask of the same shape, True where a cell is known (for integer data).

        With classes this is log Σ_c π_c p(x | c). A value outside a family's support has density 0
        (−∞).
        """
        return self.log_likelihood(x.cells if isinstance(x, Batch) else x, observed)

    @abstractmethod
    def log_likelihood(
        self, x: Any, observed: Any = None, *, labels: Any = None
    ) -> Float[Tensor, " batch"]:
        """What learning maximises: the log density, jointly with class labels where given."""

    @abstractmethod
    def given(self, x: Any, observed: Any = None) -> Posterior:
        """The distribution of everything, given the observed cells of each row."""

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

    def prior(self) -> Posterior:
        """The distribution given nothing: a posterior over one row without evidence."""
        nothing = torch.zeros(1, self.num_variables, device=self.device, dtype=self.dtype)
        return self.given(nothing, torch.zeros_like(nothing, dtype=torch.bool))

    @property
    def num_parameters(self) -> int:
        """How many numbers the model keeps as parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def sample(
        self, n: int, leaves: Leaves = "sample", seed: int | torch.Generator | None = None
    ) -> Float[Tensor, "n variables"]:
        """Independent draws; ``leaves="mean"`` takes the leaves' means in place of their draws.

        The latter are the noise-free images of the paper's addendum, not samples of the model.
        """
        return self.prior().sample(n, leaves=leaves, seed=seed)[:, 0]

    def mean(self) -> Float[Tensor, " variables"]:
        """E[x] of every variable."""
        return self.prior().mean()[0]

    def variance(self) -> Float[Tensor, " variables"]:
        """Var[x] of every variable."""
        return self.prior().variance()[0]

    def mode(self) -> Float[Tensor, " variables"]:
        """An approximation of the most probable point; see :meth:`Posterior.mode`."""
        return self.prior().mode()[0]

    def log_normalizer(self) -> Float[Tensor, ""]:
        """The log of the total probability: 0 up to rounding, a check of the weights."""
        nothing = torch.zeros(1, self.num_variables, device=self.device)
        with torch.no_grad():
            return self.log_prob(nothing, torch.zeros_like(nothing, dtype=torch.bool))[0]

    def save(self, path: str | PathLike[str], metadata: Mapping[Any, Any] | None = None) -> None:
        """Write the model to one file, atomically; :func:`einet.load` reads it back.

        Args:
            path: The file; its folder must exist.
            metadata: What else the file shall tell, for :func:`einet.load_metadata`.
        """
        from einet.storage import save

        save(self, path, metadata)


def as_generator(
    seed: int | torch.Generator | None, device: torch.device
) -> torch.Generator | None:
    """A generator on ``device`` from a seed; None leaves the choice to torch's global state."""
    if seed is None or isinstance(seed, torch.Generator):
        return seed
    return torch.Generator(device).manual_seed(seed)
