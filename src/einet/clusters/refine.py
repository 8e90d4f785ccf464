"""EM of a whole mixture of Einets on one structure, component by component."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from einet.clusters.stand_in import StandIn
from einet.data.rows import Rows
from einet.data.source import Source
from einet.engine.root import share_out
from einet.learning.checkpoint import Checkpoint, floating_state
from einet.learning.console import Bar, Interrupt
from einet.learning.epoch import Run, generator_of
from einet.learning.history import History
from einet.learning.kept import Kept

if TYPE_CHECKING:
    from einet.clusters.clustered import ClusteredEinet

__all__ = ["Refinement"]

# A component does not look at rows that it is less responsible for than this.
_LEAST_SHARE = 1e-6


class Refinement:
    """One run of EM on a mixture.

    In every epoch all rows are first shared out between the components by their responsibilities;
    then each component learns from its rows, weighted by its share in them. With one M-step for
    each component (:class:`~einet.EM`) that is EM of the mixture as a whole. A component that has
    to learn from mini-batches still gets full ones, of rows that are its own.

    Args:
        model: The mixture.
        run: The training rows, and how components learn from them.
        valid: Validation rows or None.
        checkpoint: Where to write the state after an epoch.
        stand_in: What learns in place of each component.
    """

    def __init__(
        self,
        model: ClusteredEinet,
        run: Run,
        valid: Source | None,
        checkpoint: Checkpoint,
        stand_in: StandIn,
    ) -> None:
        self.model, self.run, self.source, self.valid = model, run, run.source, valid
        self.checkpoint, self.stand_in = checkpoint, stand_in
        self.history = History()
        #: As after the last full epoch, and after the best one.
        self._last = Kept(model)
        self._best = None if valid is None else Kept(model)
        self._best_score = -torch.inf

    # -- going on --------------------------------------------------------------------------------

    def resume(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Take up what a checkpoint holds."""
        self.history = History(**state["history"])
        self.history.stopped = "finished"
        self._best_score = state["best_score"]
        for prefix, kept in (("last.", self._last), ("best.", self._best)):
            if kept is not None:
                for name in floating_state(self.model):
                    kept.state[name].copy_(tensors[prefix + name])
        self._last.restore()

    def save(self) -> None:
        """Write a checkpoint."""
        state = {"history": self.history.to_dict(), "best_score": self._best_score}
        names = floating_state(self.model)
        tensors = {f"last.{name}": self._last.state[name] for name in names}
        if self._best is not None:
            tensors |= {f"best.{name}": self._best.state[name] for name in names}
        self.checkpoint.write(state, tensors)

    # -- learning --------------------------------------------------------------------------------

    @torch.no_grad()
    def train(self, bar: Bar, interrupt: Interrupt) -> History:
        """Go through the epochs that are left."""
        if len(self.history):
            bar.advance(len(self.history))
        if self.valid is not None and not self.history.train:
            self._best_score = self._score(self.valid)
        try:
            for epoch in range(len(self.history), self.run.epochs):
                began = time.perf_counter()
                mean = self._epoch(epoch, interrupt)
                if mean is None:
                    self.history.stopped = "interrupted"
                    break
                score = None if self.valid is None else self._score(self.valid)
                self._last.take(epoch)
                self._note(epoch, mean, score, time.perf_counter() - began)
                bar.show(train=mean, valid=score)
                bar.advance()
                if self.checkpoint.due:
                    self.save()
        finally:
            (self._last if self._best is None else self._best).restore()
        if self.checkpoint.path is not None:
            self.save()
        return self.history

    def _note(self, epoch: int, mean: float, score: float | None, seconds: float) -> None:
        history = self.history
        history.train.append(mean)
        history.seconds.append(seconds)
        step_size = self.run.learner.step_size_at((epoch + 1) / self.run.epochs)
        if step_size is not None:
            history.step_size.append(step_size)
        if score is None or self._best is None:
            return
        history.valid.append(score)
        if score > self._best_score:
            self._best_score, history.best_epoch = score, epoch
            self._best.take(epoch)

    def _score(self, valid: Source) -> float:
        total = torch.zeros((), dtype=torch.float64, device=self.model.device)
        for part in valid.parts():
            total += self.model.batch_log_prob(part).sum()
        return float(total) / len(valid)

    def _epoch(self, epoch: int, interrupt: Interrupt) -> float | None:
        """One round of EM; the mean log-likelihood before it, None if interrupted."""
        shared = self._share_out(interrupt)
        if shared is None:
            return None
        mean, counts, rows, shares = shared
        for number, (mine, share) in enumerate(zip(rows, shares, strict=True)):
            if len(mine) and not self._learn(number, mine, share, epoch, interrupt):
                return None
        self.model.update_weights(counts)
        self._sound(torch.stack([p.sum() for p in self.model.parameters()]).isnan().any())
        return mean

    def _share_out(
        self, interrupt: Interrupt
    ) -> tuple[float, Tensor, tuple[Tensor, ...], tuple[Tensor, ...]] | None:
        """The mean log-likelihood, and for each component its count, its rows and its shares."""
        total = torch.zeros((), dtype=torch.float64, device=self.model.device)
        counts = total.new_zeros(len(self.model.models))
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        start = 0
        for part in self.source.parts():
            log_prob, share, _ = share_out(self.model.component_log_prob(part))
            total += log_prob.sum()
            counts += share.sum(1)
            component, row = (share > _LEAST_SHARE).nonzero(as_tuple=True)
            found.append((component, row + start, share[component, row]))
            start += len(part)
            if interrupt.requested:
                return None
        self._sound(total.isnan())
        components, rows, shares = map(torch.cat, zip(*found, strict=True))
        order = components.argsort(stable=True)
        sizes = components.bincount(minlength=len(counts)).tolist()
        device = self.source.whole.x.device
        rows, shares = (each[order].to(device).split(sizes) for each in (rows, shares))
        return float(total) / len(self.source), counts, rows, shares

    def _sound(self, wrong: Tensor) -> None:
        if bool(wrong):
            raise FloatingPointError(
                f"NaN in epoch {len(self.history)} of the refinement: look for extreme values in "
                f"the data, or too large a step. The model is what it was {self._last.since}"
            )

    def _learn(
        self, number: int, mine: Tensor, share: Tensor, epoch: int, interrupt: Interrupt
    ) -> bool:
        """Let a component learn from its rows; whether it could do so to the end."""
        rows = Rows(replace(self.source.whole[mine], weights=share), self.source.device)
        component = self.model.einets[number]
        with self.stand_in.lock:
            model = self.stand_in.become(component)
            self.run.start_learner(model, rows)
            try:
                generator = generator_of(self.run.seed, 3, number, epoch)
                mean = self.run.learn_epoch(model, rows, epoch, generator, interrupt)
            finally:
                self.run.learner.finish(model)
            if mean is None:
                return False
            self.stand_in.give(component)
        return True
