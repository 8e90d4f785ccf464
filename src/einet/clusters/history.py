"""The record of the training of clusters."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from einet.learning.history import Stopped

__all__ = ["ClusterHistory"]


@dataclass(repr=False)
class ClusterHistory:
    """What :meth:`einet.ClusteredEinet.fit` measured.

    Attributes:
        sizes: The number of rows in each cluster.
        train: For each cluster, the mean log-likelihood of its rows in the course of every epoch
            under the cluster's own Einet; empty for an empty cluster and for one not reached.
        valid: For each cluster, the mean log-likelihood of its validation rows after every epoch,
            those nearest to its centre; empty where it has none.
        best_epochs: For each cluster, the epoch (counted from 0) with the highest ``valid``, whose
            parameters its Einet was given back; None without validation rows.
        inertia: The sum of squared distances between rows and their centres in every iteration of
            k-means; empty where clusters were given.
        clustering_seconds: Wall time of k-means, with a look through all rows.
        training_seconds: Wall time of the training after that.
        stopped: Why it ended: ``"finished"``, ``"callback"`` or ``"interrupted"``.

    Example:
        >>> import einet, torch
        >>> x = torch.randn(90, 2, generator=torch.manual_seed(0)) + torch.tensor(
        ...     [[0.0], [0.0], [9.0]] * 30
        ... )
        >>> model = einet.ClusteredEinet(
        ...     einet.random_trees(2, 1, 1), einet.Gaussian(), 2, num_clusters=2
        ... )
        >>> history = model.fit(x, epochs=2, progress=False)
        >>> sorted(history.sizes), history
        ([30, 60], ClusterHistory(2 of 2 clusters in ... s, finished))
    """

    sizes: list[int] = field(default_factory=list)
    train: list[list[float]] = field(default_factory=list)
    valid: list[list[float]] = field(default_factory=list)
    best_epochs: list[int | None] = field(default_factory=list)
    inertia: list[float] = field(default_factory=list)
    clustering_seconds: float = 0.0
    training_seconds: float = 0.0
    stopped: Stopped = "finished"

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as lists and plain values.

        Example:
            >>> history = ClusterHistory(sizes=[30, 60], train=[[-3.0], [-2.0]])
            >>> ClusterHistory(**history.to_dict()) == history
            True
        """
        return asdict(self)

    def __repr__(self) -> str:
        seconds = f"{self.clustering_seconds:.1f} + {self.training_seconds:.1f} s"
        trained = sum(map(bool, self.train))
        return (
            f"ClusterHistory({trained} of {len(self.sizes)} clusters in {seconds}, {self.stopped})"
        )
