"""The one abstract exponential family that every leaf of an Einsum Network is made of."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

from einet.families.hyper import Limits, check_limits

__all__ = ["ExponentialFamily", "as_bounds", "as_values"]

# In place of typing.Self, which the run-time checks of the tests cannot read in methods.
Family = TypeVar("Family", bound="ExponentialFamily")


def as_values(
    x: Real[Tensor, "*batch"] | Bool[Tensor, "*batch"], parameters: Float[Tensor, "*batch2"]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch2"]]:
    """Both in one floating type: the wider of the two, or the parameters' for integer values.

    Example:
        >>> x, parameters = as_values(torch.tensor([5]), torch.tensor([0.3]))
        >>> x.dtype, parameters.dtype
        (torch.float32, torch.float32)
    """
    kind = parameters.dtype
    if x.is_floating_point():
        kind = torch.promote_types(x.dtype, kind)
    return x.to(kind), parameters.to(kind)


def as_bounds(
    lower: Real[Tensor, "*batch"], upper: Real[Tensor, "*batch2"], parameters: Float[Tensor, "*P"]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch2"], Float[Tensor, "*P"], torch.dtype]:
    """All three in float64, and the type that an answer is given in: the widest of theirs.

    Example:
        >>> lower, upper, _, kind = as_bounds(torch.tensor(0), torch.tensor(1), torch.rand(3, 1))
        >>> lower.dtype, kind
        (torch.float64, torch.float32)
    """
    kind = parameters.dtype
    for bound in (lower, upper):
        if bound.is_floating_point():
            kind = torch.promote_types(kind, bound.dtype)
    return lower.double(), upper.double(), parameters.double(), kind


class ExponentialFamily(ABC):
    r"""A univariate exponential family, :math:`p(x) = h(x)\exp(\theta^\top T(x) - A(\theta))`.

    This class is also the guide to adding a family: one file with one final subclass under
    :func:`~einet.families.register`, its name in ``families/__init__.py``, and one entry in the
    list of ``tests/families/cases.py``. A family outside this package needs the first only.

    **Shapes.** Everything is vectorised over variables. Values are ``x[..., V]``; natural
    parameters θ, expectation parameters φ and statistics T carry one more axis at the end,
    ``[..., V, S]`` with ``S = num_statistics``. Hyper-parameters (a binomial's ``n``, a
    Gaussian's variance bounds) are tensors of shape ``[]`` or ``[V]``, listed by name in
    ``hyperparameters``; they broadcast against ``x``. All arithmetic is written in torch
    operations, in the floating type of its inputs (the leaf layer calls it in float64).

    **Three parametrisations.** φ = E[T(x)] is what EM averages, θ is what the density uses. A
    third, the *stored* one, is what a model keeps (``[..., V, P]``, ``P = num_parameters``): by
    default φ itself; a family overrides :meth:`store`, :meth:`phi_of` and :meth:`theta_of` where
    φ would lose digits in float32 (Gaussian) or θ(φ) is costly to solve (Beta, Gamma).

    **Intervals.** The four methods that end in ``_between`` answer for values that are known to lie
    between two bounds; queries ask them about such evidence. Without them a family serves all
    other queries.

    **Support.** ``log_h`` is −∞ outside the support, ``T`` stays finite there. Neither ever sees
    NaN: missing values are replaced by :attr:`filler` and masked out before. A support ends where
    numbers would no longer be right, at :attr:`largest`: learning refuses what lies beyond, and its
    density is 0. Inside it, EM never takes a step that lowers its objective by more than rounding.

    Example:
        >>> import einet
        >>> family: einet.ExponentialFamily = einet.Poisson()
        >>> parameters = family.store(torch.tensor([[2.0]]))  # of one variable with mean 2
        >>> theta, x = family.theta_of(parameters), torch.tensor([3.0])
        >>> by_hand = (theta * family.T(x)).sum(-1) - family.A(theta) + family.log_h(x)
        >>> by_hand.exp(), family.log_prob(x, parameters).exp()
        (tensor([0.1804]), tensor([0.1804]))
    """

    #: Names of the attributes that hold per-variable hyper-parameters (each ``[]`` or ``[V]``).
    hyperparameters: ClassVar[tuple[str, ...]] = ()
    #: What they may be, in the words of :func:`~einet.families.hyper.as_hyper`; a file that says
    #: otherwise is refused. Those left out may be anything.
    limits: ClassVar[Limits] = {}
    #: Which leaf kernel evaluates θ·T(x), by its name in ``kernels/leaf.py``: "product" serves all
    #: families, "table" looks θ up at an integer x. On the fused path "centred" and "binary" have
    #: no need of θ, but of the parameters and hyper-parameters of Gaussian and Bernoulli.
    kernel: ClassVar[str] = "product"
    #: The support in words, for error messages.
    support: ClassVar[str]
    #: The largest absolute value inside the support: up to there all arithmetic is right.
    largest: ClassVar[float] = math.inf
    #: Some value inside the support of every member, put where data are missing.
    filler: ClassVar[float] = 0.0
    #: Whether bounds keep the densities of a value, under any two members, within a factor that
    #: float32 can hold. Leaves that are not so may get sums of their own: see ``sums="linear"``.
    bounded: ClassVar[bool] = False
    #: Whether values are counted rather than measured: their densities are probabilities, and have
    #: no derivative in x.
    discrete: ClassVar[bool] = False

    # -- the family itself ---------------------------------------------------------------------

    @property
    @abstractmethod
    def num_statistics(self) -> int:
        """S, the length of the sufficient statistic T(x).

        Example:
            >>> import einet
            >>> einet.Gaussian().num_statistics, einet.Categorical(5).num_statistics
            (2, 5)
        """

    @property
    def num_parameters(self) -> int:
        """P, the length of the stored parameter vector; S unless the family overrides it.

        Example:
            >>> import einet
            >>> einet.Gaussian().num_parameters, einet.Bernoulli().num_parameters
            (2, 1)
        """
        return self.num_statistics

    @abstractmethod
    def T(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch S"]:
        """Sufficient statistics T(x).

        Args:
            x: Values ``[..., V]``, not NaN.

        Returns:
            ``[..., V, S]``.

        Example:
            >>> import einet
            >>> einet.Gaussian().T(torch.tensor([3.0]))  # x and x²
            tensor([[3., 9.]])
        """

    @abstractmethod
    def log_h(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Log base measure; −∞ outside the support.

        Args:
            x: Values ``[..., V]``, not NaN.

        Returns:
            ``[..., V]``.

        Example:
            >>> import einet
            >>> einet.Bernoulli().log_h(torch.tensor([0.0, 1.0, 2.0]))
            tensor([0., 0., -inf])
        """

    @abstractmethod
    def A(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch"]:
        """Log-normaliser; its gradient is φ(θ).

        Args:
            theta: Natural parameters ``[..., V, S]``.

        Returns:
            ``[..., V]``.

        Example:
            >>> import einet
            >>> theta = torch.tensor([[0.0]], requires_grad=True)  # heads and tails alike
            >>> einet.Bernoulli().A(theta).sum().backward()
            >>> theta.grad
            tensor([[0.5000]])
        """

    @abstractmethod
    def theta(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        """Natural from expectation parameters, θ(φ).

        Args:
            phi: ``[..., V, S]``.

        Example:
            >>> import einet
            >>> einet.Poisson().theta(torch.tensor([[1.0], [2.0]]))  # log of the mean
            tensor([[0.0000],
                    [0.6931]])
        """

    @abstractmethod
    def phi(self, theta: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch S"]:
        """Expectation from natural parameters, φ(θ) = ∂A/∂θ.

        Args:
            theta: ``[..., V, S]``.

        Example:
            >>> import einet
            >>> family, phi = einet.Bernoulli(), torch.tensor([[0.2]])
            >>> family.phi(family.theta(phi))
            tensor([[0.2000]])
        """

    # -- the stored parametrisation ------------------------------------------------------------

    def store(self, phi: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch P"]:
        """Stored parameters with expectation φ, before :meth:`project`.

        Where they would lie outside the bounds, the likeliest ones inside may be given instead.

        Args:
            phi: ``[..., V, S]``.

        Returns:
            ``[..., V, P]``.

        Example:
            >>> import einet
            >>> einet.Gaussian().store(
            ...     torch.tensor([[3.0, 10.0]])
            ... )  # of E[x] and E[x²]: mean and variance
            tensor([[3., 1.]])
        """
        return phi

    def phi_of(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch S"]:
        """Expectation parameters of stored parameters.

        Args:
            parameters: Stored ones, ``[..., V, P]``.

        Returns:
            ``[..., V, S]``.

        Example:
            >>> import einet
            >>> einet.Gaussian().phi_of(
            ...     torch.tensor([[3.0, 1.0]])
            ... )  # of mean and variance: E[x] and E[x²]
            tensor([[ 3., 10.]])
        """
        return parameters

    def theta_of(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch S"]:
        """Natural parameters of stored parameters (differentiable).

        Args:
            parameters: Stored ones, ``[..., V, P]``.

        Returns:
            ``[..., V, S]``.

        Example:
            >>> import einet
            >>> einet.Gaussian().theta_of(torch.tensor([[3.0, 1.0]]))  # μ/σ² and −1/2σ²
            tensor([[ 3.0000, -0.5000]])
        """
        return self.theta(self.phi_of(parameters))

    @abstractmethod
    def project(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        """The nearest stored parameters inside the family's bounds; applied after every M-step.

        Args:
            parameters: Stored ones, ``[..., V, P]``.

        Example:
            >>> import einet
            >>> family = einet.Gaussian(min_variance=0.1)
            >>> family.project(torch.tensor([[3.0, 0.001]]))
            tensor([[3.0000, 0.1000]])
        """

    def rounded(
        self, parameters: Float[Tensor, "*batch P"], dtype: torch.dtype
    ) -> Float[Tensor, "*batch P"]:
        """Stored parameters in the type that they are kept in.

        A family overrides it where rounding could leave its bounds, as of a probability to 1.

        Args:
            parameters: Stored ones, ``[..., V, P]``.
            dtype: The type that a model keeps them in.

        Example:
            >>> import einet
            >>> nearly_one = torch.tensor([[1 - 1e-12]], dtype=torch.float64)
            >>> family = einet.Bernoulli(min_probability=1e-12)
            >>> bool(
            ...     family.rounded(nearly_one, torch.float32) < 1
            ... )  # the nearest float32 would be 1
            True
        """
        return parameters.to(dtype)

    @abstractmethod
    def constrain(self, raw: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        """Stored parameters from unconstrained reals (differentiable): for gradient learning.

        Args:
            raw: Any real numbers, ``[..., V, P]``.

        Example:
            >>> import einet
            >>> einet.Bernoulli(min_probability=0.1).constrain(torch.tensor([[-1e9], [1e9]]))
            tensor([[0.1000],
                    [0.9000]])
        """

    @abstractmethod
    def unconstrain(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        """A right inverse of :meth:`constrain` on projected parameters.

        Args:
            parameters: Stored ones, ``[..., V, P]``.

        Example:
            >>> import einet
            >>> family, parameters = einet.Gaussian(), torch.tensor([[3.0, 0.5]])
            >>> family.constrain(family.unconstrain(parameters))
            tensor([[3.0000, 0.5000]])
        """

    # -- what queries ask of a leaf ------------------------------------------------------------

    @abstractmethod
    def sample(
        self, parameters: Float[Tensor, "*batch P"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch"]:
        """One draw for each parameter vector.

        Args:
            parameters: Stored parameters ``[..., V, P]``.
            generator: Where it is drawn from; torch's own by default.

        Returns:
            ``[..., V]``.

        Example:
            >>> import einet
            >>> parameters = torch.tensor([[0.2]]).expand(1000, 1, 1)
            >>> draws = einet.Bernoulli().sample(parameters, torch.Generator().manual_seed(0))
            >>> draws.shape, 0.15 < draws.mean() < 0.25
            (torch.Size([1000, 1]), tensor(True))
        """

    @abstractmethod
    def mean(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        """E[x]; NaN where x has no numeric meaning (Categorical).

        Args:
            parameters: Stored ones, ``[..., V, P]``.

        Returns:
            ``[..., V]``.

        Example:
            >>> import einet
            >>> einet.Binomial(10).mean(torch.tensor([[0.3]]))
            tensor([3.])
        """

    @abstractmethod
    def variance(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        """Var[x]; NaN where x has no numeric meaning (Categorical).

        Args:
            parameters: Stored ones, ``[..., V, P]``.

        Returns:
            ``[..., V]``.

        Example:
            >>> import einet
            >>> einet.Bernoulli().variance(torch.tensor([[0.5]]))
            tensor([0.2500])
        """

    @abstractmethod
    def mode(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch"]:
        """A value of maximal density inside the support.

        Args:
            parameters: Stored ones, ``[..., V, P]``.

        Returns:
            ``[..., V]``.

        Example:
            >>> import einet
            >>> einet.Poisson().mode(torch.tensor([[2.5]]))
            tensor([2.])
        """

    @property
    def num_states(self) -> int | None:
        """The largest number of states of any variable, or None if the support is not finite.

        A family with states counts them 0, 1, …, so that tables of probabilities can be made.

        Example:
            >>> import einet
            >>> einet.Categorical([2, 5]).num_states, einet.Poisson().num_states
            (5, None)
        """
        return None

    # -- what queries ask of a leaf in an interval ---------------------------------------------

    def log_prob_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        """log P(lower ≤ x ≤ upper) under stored parameters, with broadcasting.

        Both ends belong to the interval, and either may be infinite; an empty one (lower > upper)
        has −∞. Types are as in :meth:`log_prob`, but the arithmetic is in float64, so that nothing
        underflows or cancels, be the interval ever so narrow or far out.

        Args:
            lower, upper: The ends of the interval.
            parameters: Stored ones, ``[..., V, P]``.

        Example:
            >>> import einet
            >>> family, parameters = einet.Gaussian(), torch.tensor([[0.0, 1.0]])
            >>> family.log_prob_between(torch.tensor(-1.96), torch.tensor(1.96), parameters).exp()
            tensor([0.9500])
        """
        raise NotImplementedError(self._no_intervals("log_prob_between"))

    def moments_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> tuple[Float[Tensor, "*batch4"], Float[Tensor, "*batch4"]]:
        """E[x] and Var[x] given lower ≤ x ≤ upper; NaN where that has no probability.

        NaN too where x has no numeric meaning (Categorical).

        Args:
            lower, upper: The ends of the interval.
            parameters: Stored ones, ``[..., V, P]``.

        Returns:
            The means and the variances.

        Example:
            >>> import einet
            >>> parameters = torch.tensor([[0.2]])
            >>> einet.Bernoulli().moments_between(torch.tensor(1), torch.tensor(1), parameters)
            (tensor([1.]), tensor([0.]))
        """
        raise NotImplementedError(self._no_intervals("moments_between"))

    def sample_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch4"]:
        """One exact draw given lower ≤ x ≤ upper; NaN where that has no probability.

        Args:
            lower, upper: The ends of the interval.
            parameters: Stored ones, ``[..., V, P]``.
            generator: Where it is drawn from; torch's own by default.

        Example:
            >>> import einet
            >>> family, parameters = einet.Gaussian(), torch.zeros(1000, 1, 2).add_(1.0)
            >>> draws = family.sample_between(torch.tensor(7.0), torch.tensor(9.0), parameters)
            >>> bool((draws >= 7).all() and (draws <= 9).all())  # however far out that is
            True
        """
        raise NotImplementedError(self._no_intervals("sample_between"))

    def mode_between(
        self,
        lower: Real[Tensor, "*batch"],
        upper: Real[Tensor, "*batch2"],
        parameters: Float[Tensor, "*batch3 P"],
    ) -> Float[Tensor, "*batch4"]:
        """A value of maximal density from lower to upper; NaN where that has no probability.

        Args:
            lower, upper: The ends of the interval.
            parameters: Stored ones, ``[..., V, P]``.

        Example:
            >>> import einet
            >>> family, parameters = einet.Gaussian(), torch.tensor([[0.0, 1.0]])
            >>> family.mode_between(torch.tensor(2.0), torch.tensor(3.0), parameters)
            tensor([2.])
        """
        raise NotImplementedError(self._no_intervals("mode_between"))

    def _no_intervals(self, method: str) -> str:
        name = type(self).__name__
        return f"{name} leaves do not know about intervals: {name} does not define {method}"

    def interval_bound(
        self, width: Float[Tensor, ""], parameters: Float[Tensor, "*batch P"]
    ) -> tuple[Float[Tensor, "*batch S"], Float[Tensor, "*batch"]]:
        """θ and c with log P(a ≤ X ≤ b) ≤ θ·T((a + b) / 2) + c wherever b − a ≤ ``width``.

        For families over the reals. The default is that no probability exceeds 1; a closer bound
        spares mixtures the integrals of components that do not matter.

        Args:
            width: The largest width of an interval.
            parameters: Stored parameters ``[..., V, P]``.

        Returns:
            θ ``[..., V, S]`` and c ``[..., V]``.

        Example:
            >>> import einet
            >>> family, parameters = einet.Gaussian(), torch.tensor([[0.0, 1.0]]).double()
            >>> theta, c = family.interval_bound(torch.tensor(0.5).double(), parameters)
            >>> bound = (theta * family.T(torch.tensor([2.0]).double())).sum(-1) + c
            >>> log_p = family.log_prob_between(torch.tensor(1.75), torch.tensor(2.25), parameters)
            >>> bool(log_p <= bound)
            True
        """
        constant = parameters.new_zeros(parameters.shape[:-1])
        return constant.unsqueeze(-1).expand(*constant.shape, self.num_statistics), constant

    # -- initialisation ------------------------------------------------------------------------

    @abstractmethod
    def random_phi(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch S"]:
        """Random φ of shape ``[*shape, S]`` for a model that has seen no data (float64, CPU).

        The last axis of ``shape`` is the variable axis, against which hyper-parameters broadcast.

        Args:
            shape: That of φ without its last axis.
            generator: Where it is drawn from; torch's own by default.

        Example:
            >>> import einet
            >>> einet.Gaussian().random_phi((7, 3), torch.Generator().manual_seed(0)).shape
            torch.Size([7, 3, 2])
        """

    def adapt(self: Family, x: Float[Tensor, "N V"], observed: Bool[Tensor, "N V"]) -> Family:
        """This family with the hyper-parameters that are read off the data (default: itself).

        Args:
            x: Rows of the variables of this family.
            observed: Which cells are known.

        Example:
            >>> import einet
            >>> x = torch.tensor([[1.0], [3.0], [5.0]])
            >>> einet.Gaussian().adapt(x, torch.ones_like(x, dtype=torch.bool)).location
            tensor([3.], dtype=torch.float64)
        """
        return self

    def log_density(
        self, x: Float[Tensor, "*batch"], parameters: Float[Tensor, "*batch2 P"]
    ) -> Float[Tensor, "*batch3"]:
        """log p(x) of one floating type, for x inside the support; anything but NaN outside of it.

        A family overrides it where the terms of θ·T(x) − A(θ) + log h(x) are large and cancel.

        Args:
            x: Values ``[..., V]``, not NaN.
            parameters: Stored ones, ``[..., V, P]``.

        Example:
            >>> import einet
            >>> einet.Bernoulli().log_density(torch.tensor([1.0]), torch.tensor([[0.25]])).exp()
            tensor([0.2500])
        """
        theta = self.theta_of(parameters)
        log_h = self.log_h(x)
        log_h = torch.where(log_h == -math.inf, 0.0, log_h)
        return (theta * self.T(x)).sum(-1) - self.A(theta) + log_h

    # -- shared machinery (not to be overridden) -----------------------------------------------

    def log_prob(
        self,
        x: Real[Tensor, "*batch"] | Bool[Tensor, "*batch"],
        parameters: Float[Tensor, "*batch2 P"],
    ) -> Float[Tensor, "*batch3"]:
        """Log density of ``x`` under stored parameters, with broadcasting.

        It is computed, and given, in the wider of the two floating types; values that are integers
        or bools take the parameters' type.

        Args:
            x: Values ``[..., V]``, not NaN.
            parameters: Stored ones, ``[..., V, P]``.

        Example:
            >>> import einet
            >>> einet.Bernoulli().log_prob(torch.tensor([0, 1, 2]), torch.tensor([[0.25]])).exp()
            tensor([0.7500, 0.2500, 0.0000])
        """
        x, parameters = as_values(x, parameters)
        outside = self.log_h(x) == -math.inf
        return torch.where(outside, -math.inf, self.log_density(x, parameters))

    def at(self: Family, index: Int[Tensor, "*index"] | Tensor) -> Family:
        """The same family with its per-variable hyper-parameters gathered at ``index``.

        Args:
            index: Numbers of variables.

        Example:
            >>> import einet
            >>> einet.Categorical([2, 3, 5]).at(torch.tensor([2, 0])).num_categories
            tensor([5., 2.], dtype=torch.float64)
        """
        return self.with_hyperparameters(
            {name: value if value.ndim == 0 else value[index] for name, value in self.hyper.items()}
        )

    def to(self: Family, device: torch.device | str) -> Family:
        """The same family with its hyper-parameters on ``device``.

        Args:
            device: Where they shall lie.

        Example:
            >>> import einet
            >>> einet.Binomial(10).to("cpu").n.device
            device(type='cpu')
        """
        return self.with_hyperparameters(
            {name: value.to(device) for name, value in self.hyper.items()}
        )

    @property
    def hyper(self) -> dict[str, Tensor]:
        """The hyper-parameters by name.

        Example:
            >>> import einet
            >>> list(einet.Categorical(3).hyper)
            ['num_categories', 'min_probability']
        """
        return {name: getattr(self, name) for name in self.hyperparameters}

    def with_hyperparameters(self: Family, values: dict[str, Tensor]) -> Family:
        """A copy with other hyper-parameter tensors (other device, other variables).

        Args:
            values: The tensors by name; hyper-parameters that are left out stay.

        Example:
            >>> import einet
            >>> einet.Bernoulli().with_hyperparameters({"min_probability": torch.tensor(0.1)})
            Bernoulli(min_probability=0.1)
        """
        other = copy(self)
        for name, value in values.items():
            setattr(other, name, value)
        return other

    def check_hyperparameters(self) -> None:
        """Raise unless the hyper-parameters are allowed, also where they come from a file.

        These are the ``limits`` of each; a family with rules that concern several adds to it.

        Example:
            >>> import einet
            >>> family = einet.Bernoulli().with_hyperparameters(
            ...     {"min_probability": torch.tensor(7.0)}
            ... )
            >>> family.check_hyperparameters()
            Traceback (most recent call last):
            ValueError: ...min_probability...
        """
        check_limits(self.hyper, self.limits)

    def is_within_bounds(self, parameters: Float[Tensor, "*batch P"]) -> Bool[Tensor, "*batch"]:
        """Which stored parameters are finite and inside the bounds, up to rounding.

        Args:
            parameters: Stored ones, ``[..., V, P]``.

        Returns:
            ``[..., V]``.

        Example:
            >>> from einet import Bernoulli
            >>> Bernoulli(0.1).is_within_bounds(torch.tensor([[0.1], [0.0999], [math.nan]]))
            tensor([ True, False, False])
        """
        wide = parameters.double()
        nearest = self.project(wide)
        # Parameters of float64 may have been rounded to float32 before.
        rounding = max(torch.finfo(parameters.dtype).eps, torch.finfo(torch.float32).eps)
        slack = 128 * rounding * nearest.abs() + torch.finfo(parameters.dtype).tiny
        return ((wide - nearest).abs() <= slack).all(-1)

    @classmethod
    def stack(cls: type[Family], families: Sequence[Family]) -> Family:
        """One family over ``len(families)`` variables from one family for each of them.

        Args:
            families: One for each variable, all of this class.

        Example:
            >>> import einet
            >>> einet.Binomial.stack([einet.Binomial(10), einet.Binomial(255)]).n
            tensor([ 10., 255.], dtype=torch.float64)
        """
        for family in families:
            for name, value in family.hyper.items():
                if value.numel() != 1:
                    raise ValueError(
                        f"{cls.__name__}.{name} holds {value.numel()} values, but this family "
                        "stands for one variable; give one value"
                    )
        stacked = {
            name: torch.stack([getattr(family, name).reshape(()) for family in families])
            for name in cls.hyperparameters
        }
        # The one with the longest statistic lends all else, such as the width of its tables.
        longest = max(families, key=lambda family: family.num_statistics)
        return longest.with_hyperparameters(stacked)

    def expand(self: Family, num_variables: int) -> Family:
        """This family with every hyper-parameter of shape ``[num_variables]``.

        Args:
            num_variables: V.

        Example:
            >>> import einet
            >>> einet.Bernoulli().expand(3).min_probability.shape
            torch.Size([3])
        """
        for name, value in self.hyper.items():
            if value.ndim == 1 and value.shape[0] != num_variables:
                raise ValueError(
                    f"{type(self).__name__}.{name} holds {value.shape[0]} values, but the model "
                    f"has {num_variables} variables of this family; give one value or one each"
                )
        return self.with_hyperparameters(
            {name: value.expand(num_variables).clone() for name, value in self.hyper.items()}
        )

    def config(self) -> dict[str, Any]:
        """What a saved file records of the family beside its hyper-parameter tensors.

        Example:
            >>> import einet
            >>> einet.Categorical(3).config(), einet.Gaussian().config()
            ({'width': 3}, {})
        """
        return {}

    def __repr__(self) -> str:
        parts = []
        for name, value in self.hyper.items():
            distinct = torch.unique(value)
            shown = f"{distinct.item():g}" if distinct.numel() == 1 else f"<{value.numel()} values>"
            parts.append(f"{name}={shown}")
        return f"{type(self).__name__}({', '.join(parts)})"
