"""The posterior of one Einet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet._memory import fitting
from einet.data.batch import Batch
from einet.data.batch_events import Events
from einet.engine.passes import Passes
from einet.engine.root import join, log_sum, responsibilities
from einet.inference import recorded
from einet.inference.conditioned import WeightedLeaves
from einet.inference.distribution import Distribution
from einet.inference.fused_sampling import at_once, can_draw, draw_points, new_seed
from einet.inference.posterior import Posterior
from einet.inference.sampling import Leaves, as_generator, best, draw
from einet.inference.upward import UpwardPass
from einet.layers import Descent

__all__ = ["EinetDistribution", "EinetPosterior"]


class EinetDistribution(Passes, Distribution):
    """One Einet as a distribution that can be asked."""

    def given(
        self, x: Any = None, observed: Any = None, *, labels: Any = None, where: Any = None
    ) -> EinetPosterior:
        """The distribution of everything, given the observed cells of each row, and events.

        Args:
            x, observed, where: The evidence; as in :meth:`log_prob`.
            labels: The class of each row where it is known too, −1 where not.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> posterior = model.given([[0.5, float("nan")]], where={1: einet.between(2, 3)})
            >>> 2 < posterior.mean()[0, 1] < 3
            tensor(True)
        """
        options: Any = {"labels": labels, "where": where, "own": True, "events": True}
        return self.conditioned_on(self.as_batch(x, observed, **options))

    def conditioned_on(self, evidence: Batch, room: int | None = None) -> EinetPosterior:
        return EinetPosterior(self, evidence, room)

    @torch.no_grad()
    def log_joint(self, batch: Batch) -> Float[Tensor, " batch"]:
        pieces = [batch[rows] for rows in self.pieces(len(batch))]
        parts = [log_sum(self.class_log_joint(self.upward(piece)[1], piece)) for piece in pieces]
        return torch.cat(parts) if parts else self.log_class_prior.new_empty(0).double()

    def class_log_joint(
        self, root: Float[Tensor, "classes batch"], batch: Batch
    ) -> Float[Tensor, "classes batch"]:
        """log p(c, x) of every class that the labels admit, from the roots' log values.

        Args:
            root: log p(x | c) of every class.
            batch: The rows, with their labels.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3, num_classes=2)
            >>> batch = model.as_batch([[0.5, 1.0], [0.5, 1.0]], labels=[-1, 1])
            >>> model.class_log_joint(model.class_roots(batch), batch).isfinite()
            tensor([[ True, False],
                    [ True,  True]])
        """
        return join(root, self.log_class_prior, batch.labels)

    def weighted_einets(self) -> list[tuple[Float[Tensor, ""], Passes]]:
        return [(self.log_class_prior.new_zeros((), dtype=torch.float64), self)]


class EinetPosterior(Posterior):
    """p(· | e) of an Einet: one upward pass, and one downward where needed.

    Example:
        >>> import einet, torch
        >>> model = einet.Einet(einet.random_trees(3, depth=1, replicas=2), einet.Bernoulli(), 4)
        >>> posterior = model.given(torch.tensor([[1.0, float("nan"), float("nan")]]))
        >>> posterior.sample(5, seed=0).shape
        torch.Size([5, 1, 3])
        >>> torch.allclose(posterior.mean()[:, 1], posterior.probabilities(1)[:, 1])
        True
    """

    model: EinetDistribution

    def at(self, rows: slice | Int[Tensor, " rows"]) -> EinetPosterior:
        some = EinetPosterior(self.model, self.evidence[rows], self.room)
        upward = self.kept.get("upward")
        if upward is not None and len(some):
            part = upward.at(rows)
            some.kept.put("upward", part, part.nbytes)
        flow = self.kept.get("flow")
        if flow is not None and len(some):
            part = flow[..., rows].contiguous()
            some.kept.put("flow", part, part.nbytes)
        return some

    # -- passes --------------------------------------------------------------------------------

    def _upward(self, rows: slice) -> UpwardPass:
        """The upward pass over one piece of the evidence; kept if that is all of it."""
        if rows == slice(0, len(self)):
            return self.kept.once(
                "upward", lambda: self._go_up(rows), lambda computed: computed.nbytes
            )
        return self._go_up(rows)

    def _go_up(self, rows: slice) -> UpwardPass:
        piece = self.evidence[rows]
        found = recorded.upward(self.model, piece) if self._is_recorded(rows) else None
        return UpwardPass.over(self.model, piece) if found is None else found

    def _is_recorded(self, rows: slice) -> bool:
        """Whether passes over some rows may be recorded: over all of them at once."""
        return not self.is_part and rows == slice(0, len(self))

    def _flow(self, rows: slice) -> Float[Tensor, "leaf_nodes leaves batch"]:
        """p_L of every leaf entry for one piece of the evidence; kept if that is all of it."""
        if rows == slice(0, len(self)):
            return self.kept.once(
                "flow", lambda: self._go_down(rows), lambda computed: computed.nbytes
            )
        return self._go_down(rows)

    def _go_down(self, rows: slice) -> Float[Tensor, "leaf_nodes leaves batch"]:
        upward = self._upward(rows)
        if self._is_recorded(rows):
            found = recorded.flow(self.model, self.evidence, upward)
            if found is not None:
                return found
        # A copy of the leaves' part sets the memory of all other nodes free.
        return self.model.downward(upward.values, responsibilities(upward.joint)).clone()

    @torch.no_grad()
    def find_log_evidence(self) -> Float[Tensor, " batch"]:
        pieces = self.model.pieces(len(self))
        parts = [log_sum(self._upward(rows).joint) for rows in pieces]
        return torch.cat(parts) if parts else self.model.log_class_prior.new_empty(0).double()

    @torch.no_grad()
    def weighted_leaves(self) -> Iterator[WeightedLeaves]:
        pieces = self.model.pieces(len(self))
        # A device makes both passes before it is waited for.
        first = self._flow(pieces[0]) if len(pieces) == 1 else None
        self.check_possible()
        for rows in pieces:
            flow = self._flow(rows) if first is None else first
            share = flow.new_ones(flow.shape[-1], dtype=torch.float64)
            events = self.evidence[rows].events
            yield WeightedLeaves(rows, share, self.model.leaf, flow, events, alone=True)

    def moments_under(self, leaves: WeightedLeaves) -> tuple[Tensor, Tensor]:
        if isinstance(leaves.rows, slice) and self._is_recorded(leaves.rows):
            found = recorded.moments(self.model, self.evidence, leaves.flow)
            if found is not None:
                return found
        return super().moments_under(leaves)

    # -- points --------------------------------------------------------------------------------

    @torch.no_grad()
    def sample(
        self, n: int, leaves: Leaves = "sample", seed: int | torch.Generator | None = None
    ) -> Float[Tensor, "n batch variables"]:
        n = self.as_count(n, leaves)
        generator = as_generator(seed, self.model.device)
        if can_draw(self.model) and self.evidence.events is None:
            return self.keep_evidence(self._sample_fused(n, leaves, generator))
        self.check_possible()
        shape = (n, len(self), self.model.num_variables)
        result = self.evidence.x.new_empty(shape, dtype=self.result_dtype)
        options = {"generator": generator} if leaves == "sample" else {}
        for rows in self.model.pieces(len(self)):
            piece, upward = self.evidence[rows], self._upward(rows)
            known = piece.observed is None or bool(piece.observed.any())
            known = known or piece.events is not None
            classes = responsibilities(upward.joint).T
            step = fitting("samples", 8 * len(piece) * self.model.num_variables)
            for start in range(0, n, step):
                count = min(step, n - start)
                descent = Descent(draw(generator), values=upward.values if known else None)
                chosen = descent.pick(classes.repeat(count, 1))
                points = self._points(descent, chosen, leaves, piece.events, **options)
                result[start : start + count, rows] = points.view(count, len(piece), -1)
        return self.keep_evidence(result)

    def _sample_fused(
        self, n: int, leaves: Leaves, generator: torch.Generator | None
    ) -> Float[Tensor, "n batch variables"]:
        """Draws by fused kernels; observed cells are drawn too."""
        model = self.model
        # Given nothing there is nothing to compute, and nothing can be impossible.
        known = self.evidence.labels is not None or self._is_anything_known()
        if known:
            self.check_possible()
        if leaves == "sample" and self._records_draws(n):
            found = self._upward(slice(0, len(self))) if known else None
            options = (n, self.result_dtype, generator)
            drawn = recorded.draws(model, self.evidence, found, *options)
            if drawn is not None:
                return drawn
        shape = (n, len(self), model.num_variables)
        # A cell that no leaf writes would be an error: let it be seen.
        result = torch.full(shape, torch.nan, dtype=self.result_dtype, device=model.device)
        for rows in model.pieces(len(self)):
            upward = self._upward(rows) if known else None
            values = None if upward is None else upward.values
            joint = None if upward is None else upward.joint
            for some in at_once(model, n, rows.stop - rows.start):
                points = result[some, rows]
                drawn = points if points.is_contiguous() else torch.empty_like(points)
                seed, cells = new_seed(model, generator), drawn.flatten(0, 1)
                draw_points(model, joint, values, seed, leaves, cells, generator)
                if drawn is not points:
                    points.copy_(drawn)
        return result

    def _records_draws(self, n: int) -> bool:
        """Whether so many draws may be recorded: of all rows at once."""
        if self.is_part or len(self.model.pieces(len(self))) != 1:
            return False
        return recorded.serves_draws(self.model, self.evidence, n, self.result_dtype)

    def _is_anything_known(self) -> bool:
        """Whether any cell is observed; asked once, as a GPU has to be waited for."""
        observed = self.evidence.observed
        return observed is None or self.kept.once("known", lambda: bool(observed.any()))

    @torch.no_grad()
    def mode(self) -> Float[Tensor, "batch variables"]:
        self.check_possible()
        parts = []
        for rows in self.model.pieces(len(self)):
            piece = self.evidence[rows]
            values, root = self.model.upward(piece, maximise=True)
            descent = Descent(best, maximise=True, values=values)
            classes = best(self.model.class_log_joint(root, piece).T)
            parts.append(self._points(descent, classes, "mode", piece.events))
        return self.keep_evidence(
            torch.cat(parts) if parts else self.evidence.x.to(self.model.dtype)
        )

    def _points(
        self,
        descent: Descent,
        classes: Tensor,
        answer: str,
        events: Events | None,
        **options: Any,
    ) -> Tensor:
        """Follow the choices from the roots to the leaves; ``answer`` is the method of a family."""
        visits = self.model.circuit.descend(classes, descent)
        shape = (classes.shape[0], self.model.num_variables)
        points = torch.empty(shape, dtype=self.result_dtype, device=self.model.device)
        self.model.leaf.draw_(visits, points, answer, events, **options)
        return points
