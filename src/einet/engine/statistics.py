"""Expected statistics: what an E-step adds up and an M-step consumes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.distributed.reduction import Reduction
from einet.distributed.team import Team
from einet.layers import LeafStatistics

if TYPE_CHECKING:
    from einet.engine.passes import Passes

__all__ = ["EinetStatistics", "MixtureStatistics", "Statistics", "check_statistics", "row_sums"]


def row_sums(
    log_prob: Float[Tensor, " batch"], weight: Float[Tensor, " batch"]
) -> Float[Tensor, " sums"]:
    """The weighted log-likelihood, the weights, and the number of impossible rows."""
    counted = torch.where(weight > 0, log_prob * weight, 0.0)
    impossible = (log_prob == -torch.inf) & (weight > 0)
    return torch.stack([counted.sum(), weight.sum(), impossible.sum().to(weight)])


@dataclass
class Statistics(ABC):
    """Sums over rows, so they can be accumulated, added and summed over processes.

    ``model.e_step`` makes them, and ``model.m_step`` takes them.

    Args:
        log_likelihood: The weighted sum of the log-densities of rows.
        rows: The sum of their weights.
        impossible: How many rows have density zero; these add nothing else.

    Example:
        >>> import einet, torch
        >>> x = torch.randn(50, 2, generator=torch.manual_seed(0))
        >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
        >>> statistics = model.e_step(x[:30])
        >>> statistics = statistics.add_(model.e_step(x[30:]))
        >>> isinstance(statistics, einet.Statistics), statistics.rows.item()
        (True, 50.0)
        >>> model.m_step(statistics)
    """

    log_likelihood: Float[Tensor, ""]
    rows: Float[Tensor, ""]
    impossible: Float[Tensor, ""]

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """Every sum; the shared methods below work through these.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> statistics = model.e_step([[0.5, 1.0]])
            >>> statistics.rows is statistics.tensors()[1]
            True
        """

    def add_rows(self, log_prob: Float[Tensor, " batch"], weight: Float[Tensor, " batch"]) -> None:
        """Count rows with their log-likelihoods.

        Args:
            log_prob: That of each row.
            weight: How often each counts.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> statistics = einet.Mixture([model]).e_step([[0.5, 1.0]]).zero_()
            >>> statistics.add_rows(torch.tensor([-2.0, -torch.inf]), torch.tensor([3.0, 1.0]))
            >>> statistics.rows.item(), statistics.impossible.item()
            (4.0, 1.0)
        """
        self.add_sums(row_sums(log_prob, weight))

    def add_sums(self, sums: Float[Tensor, " sums"]) -> None:
        """Count rows given what they add up to; see :func:`row_sums`.

        Args:
            sums: Log-likelihood, weight and impossible rows, and the weight of each class of an
                Einet.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> statistics = model.e_step([[0.5, 1.0]]).zero_()
            >>> statistics.add_sums(
            ...     torch.tensor([-6.0, 3.0, 0.0, 3.0])
            ... )  # the last is of the one class
            >>> statistics.log_likelihood.item(), statistics.rows.item()
            (-6.0, 3.0)
        """
        self.log_likelihood += sums[0]
        self.rows += sums[1]
        self.impossible += sums[2]

    def leaf_statistics(self) -> list[LeafStatistics]:
        """Those of all leaves.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> (leaves,) = model.e_step([[0.5, 1.0], [1.5, 2.0]]).leaf_statistics()
            >>> leaves.total.sum(0)  # Σ p_L over the densities of each of two leaves
            tensor([2.0000, 2.0000], dtype=torch.float64)
        """
        return []

    def add_(self, other: Statistics) -> Statistics:
        """Add the sums of other rows.

        Args:
            other: Statistics of the same model.

        Returns:
            These statistics themselves.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> one, two = model.e_step([[0.5, 1.0]]), model.e_step([[1.5, 2.0], [2.5, 3.0]])
            >>> one.add_(two).rows.item()
            3.0
        """
        leaves = zip(self.leaf_statistics(), other.leaf_statistics(), strict=True)
        for own, its in leaves:
            if own.origin is not None and its.origin is not None:
                if own.empty:
                    own.origin.copy_(its.origin)
                elif own.origin is not its.origin:
                    # Where the others are counted from: that is where the model is by now.
                    own.move_(its.origin)
            own.empty = own.empty and its.empty
        pairs = list(zip(self.tensors(), other.tensors(), strict=True))
        # One launch for each type: deep circuits have hundreds of small tensors.
        for dtype in {totals.dtype for totals, _ in pairs}:
            some = [pair for pair in pairs if pair[0].dtype == dtype]
            totals, others = map(list, zip(*some, strict=True))
            torch._foreach_add_(totals, others)  # pyright: ignore[reportPrivateImportUsage]
        return self

    def zero_(self) -> Statistics:
        """Forget all rows; memory is kept.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.e_step([[0.5, 1.0]]).zero_().rows.item()
            0.0
        """
        for tensor in self.tensors():
            tensor.zero_()
        for leaf in self.leaf_statistics():
            leaf.empty = True
        return self

    def all_reduce_(self, team: Team | None = None) -> Statistics:
        """Sum over processes: those of a team, or all of ``torch.distributed``.

        Args:
            team: The processes; all of ``torch.distributed`` by default.

        Example:
            >>> import einet
            >>> from einet.distributed import Team
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.e_step([[0.5, 1.0]]).all_reduce_(Team()).rows.item()  # one process
            1.0
        """
        if team is None:
            with Team.of_all() as team:
                return self.all_reduce_(team)
        for leaf in self.leaf_statistics():
            if leaf.origin is not None:
                # All processes count from where the first does; one without rows may not know.
                origin = leaf.origin.clone()
                team.copy_from_([origin])
                leaf.move_(origin)
            leaf.empty = False
        Reduction(team, self.as_completed()).finish()
        return self

    def as_completed(self) -> list[Tensor]:
        """Every sum, in the order in which a backward pass completes them.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> statistics = model.e_step([[0.5, 1.0]])
            >>> statistics.as_completed()[0] is statistics.weights[
            ...     -1
            ... ]  # those at the top come first
            True
        """
        return self.tensors()


@dataclass
class EinetStatistics(Statistics):
    """Expected statistics of an Einet: Σ n/w of every sum layer, Σ p_L and Σ p_L T(x) of leaves.

    Those of Gaussian leaves are counted from the means they have, wherever the data may lie.
    """

    weights: list[Tensor] = field(default_factory=list)
    leaves: list[LeafStatistics] = field(default_factory=list)
    classes: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))

    @classmethod
    def zeros(cls, model: Passes) -> EinetStatistics:
        """Statistics of no rows."""

        def zero() -> Tensor:
            return torch.zeros((), dtype=torch.float64, device=model.device)

        return cls(
            zero(),
            zero(),
            zero(),
            [torch.zeros_like(w.detach()) for w in model.circuit.weights],
            model.leaf.empty_statistics(centred=True),
            torch.zeros(model.num_classes, dtype=torch.float64, device=model.device),
        )

    def add_sums(self, sums: Float[Tensor, " sums"]) -> None:
        super().add_sums(sums)
        self.classes += sums[3:]

    def sums(self) -> Float[Tensor, " sums"]:
        """What :meth:`add_sums` has added up."""
        rows = torch.stack([self.log_likelihood, self.rows, self.impossible])
        return torch.cat([rows, self.classes])

    def leaf_statistics(self) -> list[LeafStatistics]:
        return self.leaves

    def as_completed(self) -> list[Tensor]:
        leaves = [t for leaf in self.leaves for t in (leaf.total, leaf.sums)]
        rows = [self.log_likelihood, self.rows, self.impossible, self.classes]
        # Layers from the top down; then the leaves.
        return [*reversed(self.weights), *leaves, *rows]

    def tensors(self) -> list[Tensor]:
        leaves = [t for leaf in self.leaves for t in (leaf.total, leaf.sums)]
        return [
            self.log_likelihood, self.rows, self.impossible, *self.weights, *leaves, self.classes
        ]  # fmt: skip


def check_statistics(statistics: Any, model: Passes, name: str) -> None:
    """Raise unless these are statistics of an Einet of the same form."""
    if not isinstance(statistics, EinetStatistics):
        raise TypeError(
            f"{name} must be the statistics of an Einet, as its e_step makes them, "
            f"got {type(statistics).__name__}"
        )
    wanted = [weight.shape for weight in model.circuit.weights]
    wanted += [block.stored.shape[:2] for block in model.leaf.leaf_blocks]
    wanted.append(torch.Size([model.num_classes]))
    found = [weight.shape for weight in statistics.weights]
    found += [leaves.total.shape for leaves in statistics.leaves]
    found.append(statistics.classes.shape)
    if found != wanted:
        raise ValueError(f"{name} must be of a model of the same form as this one")


@dataclass
class MixtureStatistics(Statistics):
    """Expected statistics of a mixture: those of its components, and how often each was chosen."""

    components: list[Statistics] = field(default_factory=list)
    counts: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))

    def leaf_statistics(self) -> list[LeafStatistics]:
        return [leaf for component in self.components for leaf in component.leaf_statistics()]

    def tensors(self) -> list[Tensor]:
        inner = [t for component in self.components for t in component.tensors()]
        return [self.log_likelihood, self.rows, self.impossible, *inner, self.counts]
