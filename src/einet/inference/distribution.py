"""A distribution that can be asked: what every model of this library answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from einet.data.batch import Batch
from einet.engine.passes import Passes
from einet.inference.sampling import Leaves
from einet.inference.surprise import surprise

if TYPE_CHECKING:
    from einet.inference.posterior import Posterior

__all__ = ["Distribution"]


class Distribution(nn.Module, ABC):
    """A distribution over ``num_variables`` variables.

    Every query answers through :meth:`given`; the queries without evidence on this class are short
    for ``given`` with nothing observed. ``NaN`` (or False in ``observed``) means missing.
    """

    num_variables: int

    @abstractmethod
    def log_prob(
        self, x: Any = None, observed: Any = None, *, labels: Any = None, where: Any = None
    ) -> Float[Tensor, " batch"]:
        """Log density of each row, missing cells integrated out exactly.

        Args:
            x: ``[batch, variables]``: a tensor, array, data frame or nested list. NaN is missing,
                and so are None, nulls and what a mask hides. A data frame is matched by name where
                the model has ``columns``. Whole numbers beyond 2⁵³ are rounded to float64.
                A :class:`~einet.data.Batch` that was checked before is taken as it is, with its
                labels.
            observed: A mask of the same shape, True where a cell is known (for integer data).
            labels: The class of each row where it is known, −1 where not.
            where: What else is known, ``{variable: event}``: that cells lie in an interval
                (:func:`einet.between`) or in some states (:func:`einet.among`), or how likely what
                was seen of them is in each state (:func:`einet.likelihood`). A variable is a number
                or one of ``columns``. Cells of ``x`` must not hold a value of it. Without ``x``
                nothing else is known.

        With classes this is log Σ_c π_c p(x | c), or log π_c p(x | c) where the class is known. A
        value outside a family's support has density 0 (−∞). An event counts with its probability
        in place of a density.

        It is differentiable once in ``x`` where that requires gradients (0 in missing cells and
        discrete columns), and inside :func:`einet.unconstrained` in the parameters. With events it
        is not.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> x = torch.tensor([[0.5, float("nan")]], requires_grad=True)
            >>> model.log_prob(x).sum().backward()
            >>> x.grad.isfinite().all().item()
            True
        """

    @abstractmethod
    def as_batch(self, x: Any, observed: Any = None, **options: Any) -> Batch:
        """What a method was given, checked and on the model's device.

        Args:
            x, observed: The rows; as in :meth:`log_prob`.
            options: More for :func:`einet.data.as_batch`.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.as_batch([[0.5, float("nan")]]).mask
            tensor([[ True, False]])
        """

    @abstractmethod
    def batch_log_prob(self, batch: Batch) -> Float[Tensor, " batch"]:
        """:meth:`log_prob` of a batch that has been checked and lies beside the model (float64).

        Args:
            batch: The rows.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> batch = model.as_batch([[0.5, float("nan")]])
            >>> torch.equal(model.batch_log_prob(batch).float(), model.log_prob(batch))
            True
        """

    @abstractmethod
    def given(self, x: Any = None, observed: Any = None, *, where: Any = None) -> Posterior:
        """The distribution of everything, given the observed cells of each row, and events.

        Args:
            x, observed, where: The evidence; as in :meth:`log_prob`. With none of them nothing is
                known, as in :meth:`prior`.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> posterior = model.given([[0.5, float("nan")]], where={1: einet.between(2, 3)})
            >>> 2 < posterior.mean()[0, 1] < 3
            tensor(True)
        """

    @abstractmethod
    def conditioned_on(self, evidence: Batch, room: int | None = None) -> Posterior:
        """:meth:`given` for rows that were checked, and that nobody else will write to.

        Args:
            evidence: The rows, on the model's device.
            room: How many bytes of its passes the posterior keeps; the device decides by default.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> batch = model.as_batch([[0.5, float("nan")]])
            >>> torch.equal(model.conditioned_on(batch).mean(), model.given(batch).mean())
            True
        """

    @abstractmethod
    def log_joint(self, batch: Batch) -> Float[Tensor, " batch"]:
        """log p of checked rows, jointly with class labels where there are any.

        In float64, and without gradients: this is what questions ask a model.

        Args:
            batch: The rows.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3, num_classes=4)
            >>> x = torch.tensor([[0.5, 1.0]])
            >>> joint = [model.log_joint(model.as_batch(x, labels=[c])) for c in range(4)]
            >>> torch.allclose(torch.cat(joint).exp().sum().float(), model.log_prob(x).exp())
            True
        """

    @abstractmethod
    def weighted_einets(self) -> list[tuple[Float[Tensor, ""], Passes]]:
        """The distribution as one mixture of Einets: the log weight of each (float64), and it.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> parts = [einet.Einet(graph, einet.Gaussian(), 3, seed=seed) for seed in (0, 1)]
            >>> model = einet.Mixture(parts, weights=[1, 3])
            >>> [round(log_weight.exp().item(), 6) for log_weight, part in model.weighted_einets()]
            [0.25, 0.75]
        """

    def prior(self) -> Posterior:
        """The distribution given nothing: a posterior over one row without evidence.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.prior().quantile(0.9).shape
            torch.Size([1, 2])
        """
        nothing = torch.zeros(1, self.num_variables, device=self.device, dtype=self.dtype)
        batch = Batch(nothing, torch.zeros_like(nothing, dtype=torch.bool))
        posterior = self.conditioned_on(batch)
        # Nobody need wait for a GPU to say so.
        posterior.kept.put("known", False)
        return posterior

    @property
    def device(self) -> torch.device:
        """Where the parameters are.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.device, model.double().dtype
            (device(type='cpu'), torch.float64)
        """
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.dtype, model.double().dtype
            (torch.float32, torch.float64)
        """
        return next(self.parameters()).dtype

    def sample(
        self, n: int, leaves: Leaves = "sample", seed: int | torch.Generator | None = None
    ) -> Float[Tensor, "n variables"]:
        """Independent draws of all variables.

        Args:
            n: How many.
            leaves: ``"mean"`` takes the leaves' means in place of draws from them: the noise-free
                images of the paper's addendum, not samples of the model.
            seed: A seed, or a generator on the model's device.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> draws = model.sample(500, seed=0)
            >>> draws.shape, torch.allclose(draws.mean(0), model.mean(), atol=0.3)
            (torch.Size([500, 2]), True)
            >>> len(model.sample(500, leaves="mean", seed=0)[:, 0].unique())  # those of 3 leaves
            3
        """
        return self.prior().sample(n, leaves=leaves, seed=seed)[:, 0]

    def mean(self) -> Float[Tensor, " variables"]:
        """E[x] of every variable.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> torch.equal(model.mean(), model.given().mean()[0])
            True
        """
        return self.prior().mean()[0]

    def variance(self) -> Float[Tensor, " variables"]:
        """Var[x] of every variable.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> torch.allclose(model.variance(), model.mean() * (1 - model.mean()))
            True
        """
        return self.prior().variance()[0]

    def mode(self) -> Float[Tensor, " variables"]:
        """An approximation of the most probable point; see :meth:`Posterior.mode`.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> likeliest = model.mode()
            >>> likeliest.shape, bool(((likeliest == 0) | (likeliest == 1)).all())
            (torch.Size([2]), True)
        """
        return self.prior().mode()[0]

    # A question about the cells of whole rows, which no posterior can be asked.
    surprise = surprise

    def log_normalizer(self) -> Float[Tensor, ""]:
        """The log of the total probability: 0 up to rounding, a check of the weights.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(8, 2, 4), einet.Gaussian(), num_sums=3)
            >>> abs(model.log_normalizer().item()) < 1e-5
            True
        """
        return self.prior().log_evidence[0]
