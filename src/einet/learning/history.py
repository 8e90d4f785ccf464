"""The record of a training run."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from einet._checks import missing_package

__all__ = ["History", "Stopped"]

#: Why training ended: all epochs done, no improvement on validation data, a callback, or Ctrl-C.
Stopped = Literal["finished", "early", "callback", "interrupted"]


@dataclass(repr=False)
class History:
    """What :func:`einet.fit` measured, one entry for each full epoch.

    Attributes:
        train: Mean log-likelihood of the training rows in the course of the epoch: each
            mini-batch is measured just before the model learns from it.
        valid: Mean log-likelihood of the validation rows after the epoch; empty without them.
        seconds: Wall time of the epoch, validation included.
        step_size: Step size of the epoch's last mini-batch, for epochs of learners that have one.
        best_epoch: The epoch (counted from 0) with the highest ``valid``, whose parameters the
            model was given back; None without validation data.
        stopped: Why training ended: ``"finished"``, ``"early"``, ``"callback"`` or
            ``"interrupted"``.
        skipped: How many rows were left out of the epoch because of their numbers, with
            ``on_error="skip"``; empty where none ever was.

    Example:
        >>> history = History(train=[-3.0, -2.0], valid=[-3.5, -2.5], seconds=[0.5, 0.5])
        >>> history.best_epoch = 1
        >>> history
        History(2 epochs in 1.0 s, train -3 → -2, valid -3.5 → -2.5 (best, epoch 2 of 2), finished)
        >>> history.bits_per_dimension(num_variables=2)["valid"]
        [2.52, 1.80]
    """

    train: list[float] = field(default_factory=list)
    valid: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    step_size: list[float] = field(default_factory=list)
    best_epoch: int | None = None
    stopped: Stopped = "finished"
    skipped: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        """The number of full epochs."""
        return len(self.train)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as lists and plain values: ``History(**that)`` makes it again.

        Example:
            >>> history = History(train=[-3.0, -2.0], seconds=[0.5, 0.5])
            >>> history.to_dict()["train"], History(**history.to_dict()) == history
            ([-3.0, -2.0], True)
        """
        return asdict(self)

    def cut(self, epochs: int) -> History:
        """The first epochs alone.

        Args:
            epochs: How many.

        Example:
            >>> History(train=[-3.0, -2.5, -2.0], seconds=[0.5, 0.5, 0.5]).cut(2)
            History(2 epochs in 1.0 s, train -3 → -2.5, finished)
        """
        return replace(
            self,
            train=self.train[:epochs],
            valid=self.valid[:epochs],
            seconds=self.seconds[:epochs],
            step_size=self.step_size[:epochs],
            skipped=self.skipped[:epochs],
        )

    def bits_per_dimension(self, num_variables: int) -> dict[str, list[float]]:
        """``train`` and ``valid`` as −log₂ p(x) / D, the usual measure for images (less is better).

        It compares models of the same discrete data; for densities it depends on their units.

        Args:
            num_variables: D.

        Example:
            >>> history = History(train=[-3.0, -2.0])
            >>> history.bits_per_dimension(num_variables=2)["train"]
            [2.16, 1.44]
        """
        if num_variables < 1:
            raise ValueError(f"num_variables must be at least 1, got {num_variables}")
        unit = num_variables * math.log(2)
        return {
            "train": [-value / unit for value in self.train],
            "valid": [-value / unit for value in self.valid],
        }

    def plot(self, ax: Any = None) -> Any:
        """Draw the log-likelihoods over epochs and return the axes.

        Args:
            ax: matplotlib axes to draw into; a new figure's if not given.

        Example:
            >>> from matplotlib.figure import Figure
            >>> history = History(train=[-3.0, -2.0], valid=[-3.5, -2.5])
            >>> axes = history.plot(ax=Figure().subplots())
            >>> axes.get_xlabel(), len(axes.lines)
            ('epoch', 2)
        """
        try:
            from matplotlib.ticker import MaxNLocator
        except ImportError as error:
            raise missing_package("matplotlib", "History.plot", "plots") from error
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots()[1]
        for label, values in (("train", self.train), ("valid", self.valid)):
            if values:
                # A single point would be invisible as a line.
                marker = "o" if len(values) == 1 else None
                ax.plot(range(1, len(values) + 1), values, label=label, marker=marker)
        if self.best_epoch is not None:
            best = (self.best_epoch + 1, self.valid[self.best_epoch])
            ax.plot(*best, "k.", label=f"best: {best[1]:.6g}")
        ax.set_xlabel("epoch")
        ax.set_ylabel("mean log-likelihood")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if self.train:
            ax.legend()
        return ax

    def __repr__(self) -> str:
        epochs = "1 epoch" if len(self) == 1 else f"{len(self)} epochs"
        parts = [f"{epochs} in {sum(self.seconds):.1f} s"]
        if self.train:
            parts.append(f"train {self.train[0]:.6g} → {self.train[-1]:.6g}")
        if self.best_epoch is not None:
            # The model holds the parameters of this epoch, not those of the last one.
            best = f"best, epoch {self.best_epoch + 1} of {len(self)}"
            parts.append(f"valid {self.valid[0]:.6g} → {self.valid[self.best_epoch]:.6g} ({best})")
        elif self.valid:
            parts.append(f"valid {self.valid[0]:.6g} → {self.valid[-1]:.6g} (no best epoch)")
        return f"History({', '.join([*parts, self.stopped])})"
