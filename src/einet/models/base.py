"""What every model of this library can do, be it one Einet or a mixture of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from einet._checks import as_step_size
from einet.data.batch import Batch
from einet.data.columns import as_columns
from einet.distributed.team import ALONE, Team
from einet.engine.memory import Memory
from einet.engine.pseudo_counts import PseudoCounts, check_pseudo_counts
from einet.engine.statistics import Statistics
from einet.inference.distribution import Distribution
from einet.layers.parameter import canonicalize
from einet.models.record import write_model
from einet.models.state import check_state
from einet.structures import RegionGraph

__all__ = ["Model", "check_no_team"]


def check_no_team(team: Team) -> None:
    """Raise where statistics of earlier rows are given: nobody knows whose they are."""
    if not team.alone:
        raise ValueError("into is of this process, and team asks for sums of all; give one of them")


class Model(Distribution):
    """A probabilistic circuit: a distribution that can be asked, learnt and saved.

    Example:
        >>> import einet
        >>> graph = einet.random_trees(num_variables=4, depth=1, replicas=2)
        >>> one, two = (einet.Einet(graph, einet.Gaussian(), 3, seed=seed) for seed in (0, 1))
        >>> [isinstance(each, einet.Model) for each in (one, einet.Mixture([one, two]))]
        [True, True]
    """

    #: With more than one, p(x) is a mixture of distributions p(x | c) that labels can tell apart.
    num_classes: int = 1
    #: Whether the leaves have been set from data; :func:`einet.fit` does so otherwise.
    initialized: bool
    # Of the class, for models that were pickled before there were names.
    _columns: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the variables; None where they have none.

        A model that learns from a data frame remembers its columns. From then on data frames are
        matched by name, whatever the order of their columns; those that lack one, or have another,
        are refused. Arrays go by position. Names can be set by hand too.

        Example:
            >>> import einet, pandas
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.columns = ["age", "height"]
            >>> frame = pandas.DataFrame({"height": [1.7], "age": [30.0]})
            >>> (model.log_prob(frame) == model.log_prob([[30.0, 1.7]])).item()
            True
        """
        return self._columns

    @columns.setter
    def columns(self, names: Any) -> None:
        self._columns = None if names is None else as_columns(names, self.num_variables)

    def remember(self, columns: tuple[str, ...] | None) -> None:
        """Take the names of a data frame that the model learns from, if it has none yet.

        Args:
            columns: A name for each variable; None where the rows have no names.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.remember(("age", "height"))
            >>> model.remember(("these", "come too late"))
            >>> model.columns
            ('age', 'height')
        """
        if columns is not None and self.columns is None:
            self.columns = columns

    def forward(
        self, x: Any = None, observed: Any = None, *, labels: Any = None, where: Any = None
    ) -> Float[Tensor, " batch"]:
        """``model(x)`` is ``model.log_prob(x)``.

        Args:
            x, observed, labels, where: As in :meth:`log_prob`.

        Example:
            >>> import einet, torch
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> x = torch.zeros(5, 2)
            >>> torch.equal(model(x), model.forward(x)) and torch.equal(model(x), model.log_prob(x))
            True
        """
        return self.log_prob(x, observed, labels=labels, where=where)

    @abstractmethod
    def initialize(self, data: Any, observed: Any = None, seed: int = 0) -> Model:
        """Set leaves from data, as a start for learning; :func:`einet.fit` does so by itself.

        Args:
            data, observed: Rows; as in :meth:`log_prob`.
            seed: Seed of all that is random.

        Returns:
            The model itself.

        Example:
            >>> import einet, torch
            >>> x = 100 + torch.randn(50, 2, generator=torch.manual_seed(0))
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> before = model.log_prob(x).mean()
            >>> model = model.initialize(x)
            >>> model.initialized, (model.log_prob(x).mean() > before).item()
            (True, True)
        """

    @abstractmethod
    def e_step(
        self,
        x: Any,
        observed: Any = None,
        *,
        labels: Any = None,
        weights: Any = None,
        into: Statistics | None = None,
        team: Team = ALONE,
    ) -> Statistics:
        """Expected statistics of the latent variables, added to ``into`` where given.

        Args:
            x, observed: The data; as in :meth:`log_prob`.
            labels: The class of each row, −1 where unknown.
            weights: How often each row counts; once by default.
            into: Statistics to add to.
            team: Processes with rows of their own each: the statistics are those of all rows.

        Example:
            >>> import einet, torch
            >>> x = torch.randn(50, 2, generator=torch.manual_seed(0))
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> statistics = model.e_step(x[:30])
            >>> statistics = model.e_step(x[30:], into=statistics)
            >>> statistics.rows.item()
            50.0
            >>> torch.allclose(statistics.log_likelihood, model.log_prob(x).double().sum())
            True
        """

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

        Example:
            >>> import einet, torch
            >>> x = torch.randn(50, 2, generator=torch.manual_seed(0))
            >>> model = einet.Einet(
            ...     einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3
            ... ).initialize(x)
            >>> before = model.log_prob(x).mean()
            >>> model.m_step(model.e_step(x))  # one step of EM, which never makes it worse
            >>> (model.log_prob(x).mean() > before).item()
            True
        """

    @abstractmethod
    def memory(self, batch_size: int = 500, *, full_batch: bool = False) -> Memory:
        """What a step of EM takes at its peak, before one is made.

        Printed, it says so in words. Work on a GPU that is recorded keeps this much reserved.
        Gradient learning takes about twice the values, and what its optimiser keeps.

        Args:
            batch_size: Rows in a mini-batch.
            full_batch: Whether statistics of all sums are kept, as :class:`~einet.EM` and several
                processes do.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=64, depth=3, replicas=4)
            >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=8)
            >>> small, large = model.memory(batch_size=100), model.memory(batch_size=1000)
            >>> large.values == 10 * small.values
            True
            >>> str(small).partition(":")[0].endswith("MiB on cpu")
            True
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
        """``m_step(e_step(x), step_size, prior)``; the mean log-likelihood before the update.

        Args:
            x, observed: The data; as in :meth:`log_prob`.
            labels: The class of each row, −1 where unknown.
            weights: How often each row counts; once by default.
            step_size: λ: how far to move; 1 is all the way.
            prior: Pseudo-counts on the scale of these rows.

        Example:
            >>> import einet, torch
            >>> x = torch.randn(50, 2, generator=torch.manual_seed(0))
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> means = [model.em_step(x, step_size=0.5).item() for _ in range(5)]
            >>> means == sorted(means)
            True
        """
        step_size = as_step_size(step_size)
        check_pseudo_counts(prior)
        batch = self.as_batch(x, observed, labels=labels, weights=weights, allow_empty=False)
        statistics = self.e_step(batch)
        self.m_step(statistics, step_size, prior)
        self.remember(batch.columns)
        return statistics.log_likelihood / statistics.rows

    @abstractmethod
    def check_statistics(self, statistics: Any, name: str) -> None:
        """Raise unless these are statistics that :meth:`e_step` made for a model of this form.

        Args:
            statistics: What was given.
            name: What the error calls it.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.check_statistics(model.e_step([[0.5, 1.0]]), "statistics")
            >>> model.check_statistics([1, 2, 3], "statistics")
            Traceback (most recent call last):
            TypeError: statistics must be the statistics of an Einet, ...
        """

    @abstractmethod
    def check_support(self, batch: Batch, name: str) -> None:
        """Raise if an observed value has density zero whatever the parameters.

        Args:
            batch: The rows, checked.
            name: What the error calls them.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> model.check_support(model.as_batch([[0, 1], [1, 7]]), "data")
            Traceback (most recent call last):
            ValueError: data[1, 1] is 7, outside the support of Bernoulli: 0 or 1
        """

    @property
    def num_parameters(self) -> int:
        """How many numbers the model keeps as parameters.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3)
            >>> model.num_parameters  # 2 leaves of 3 Gaussians, and 9 weights of their products
            21
        """
        return sum(parameter.numel() for parameter in self.parameters())

    def __setattr__(self, name: str, value: Any) -> None:
        # Torch would take a module or parameter for a part of the model, past what is checked.
        is_part = isinstance(value, nn.Module | nn.Parameter)
        if is_part and isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

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
        """What a file says of the model beside its tensors.

        Args:
            graphs: The structures described before, with what the file calls them; those that are
                new are added.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> graphs = {}
            >>> described = model.describe(graphs)
            >>> described["kind"], described["num_sums"], list(graphs.values())
            ('Einet', 3, ['graphs.0'])
        """

    def save(self, path: str | PathLike[str], metadata: Mapping[Any, Any] | None = None) -> None:
        """Write the model to one file, atomically; :func:`einet.load` reads it back.

        Args:
            path: The file; its folder must exist.
            metadata: What else the file shall tell, for :func:`einet.load_metadata`.

        Raises:
            ValueError: The parameters are not those of a distribution, but NaN, say, or weights
                that do not add up to 1. Nothing is written then.

        Example:
            >>> import einet, tempfile, torch
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     model.save(f"{folder}/model.einet", metadata={"trained on": "nothing yet"})
            ...     again = einet.load(f"{folder}/model.einet")
            >>> torch.equal(again.log_prob([[0.5, 1.0]]), model.log_prob([[0.5, 1.0]]))
            True
        """
        graphs: dict[RegionGraph, str] = {}
        description = self.describe(graphs)
        if self.columns is not None:
            description["columns"] = list(self.columns)
        write_model(path, self, description, graphs, metadata)
