"""CUDA graphs: a whole training step or forward pass as one launch.

A small circuit keeps a GPU busy for microseconds a kernel, less than it takes to launch one from
Python. So the launches of a step are recorded once and replayed. What changes from step to step is
read from memory at fixed places: the rows, their labels and weights, the step size, and a prior's
pseudo-counts. A batch smaller than the one recorded is filled up with rows of weight 0.

The first call of a kind runs as it is, the second one is recorded. Kernels are compiled before the
first, all at once (:mod:`einet.engine.rehearsal`). Whenever a parameter has moved elsewhere in
memory (``.to``, loading, a new optimiser), recordings are dropped and made anew. They keep the
memory that their call needs; :func:`forget` gives it back.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

from einet.data.batch import Batch, check_no_events
from einet.engine.rehearsal import rehearse
from einet.engine.statistics import EinetStatistics
from einet.engine.tape import on, turn

if TYPE_CHECKING:
    from einet.engine.passes import Layers, Passes
    from einet.engine.pseudo_counts import PseudoCounts

__all__ = ["Replays", "expect", "forget", "log_prob", "recordings_of", "step"]

# Recordings kept for a model; those not used for longest go first.
_MOST_KEPT = 8
# Rows are filled up to a multiple of this, which keeps every node's values aligned.
_ROWS = 16

# Recordings hold no reference to their model: it would never be freed.
_of_models: WeakKeyDictionary[Any, Replays] = WeakKeyDictionary()


def step(
    model: Layers,
    batch: Batch,
    step_size: float | Tensor,
    prior: PseudoCounts | None = None,
) -> Float[Tensor, "*sums"]:
    """``model.step_(batch, step_size, prior)``."""
    replays = recordings_of(model)
    with replays.lock:
        recording = replays.find(model, "step", batch, prior)
        if recording is None:
            return model.step_(batch, step_size, prior)
        recording.begin()
        _put(recording.size, step_size)
        recording.load_prior(prior)
        return recording.run(model, batch).clone()


def expect(model: Passes, batch: Batch, into: EinetStatistics) -> None:
    """``model.expect_(batch, into)``.

    What is recorded adds up to statistics of its own: those given lie somewhere else another time.
    """
    replays = recordings_of(model)
    with replays.lock:
        recording = replays.find(model, "expect", batch)
        if recording is None:
            model.expect_(batch, into)
            return
        recording.begin()
        recording.run(model, batch)
        into.add_(recording.statistics)


def log_prob(model: Passes, batch: Batch) -> Float[Tensor, " batch"]:
    """``model.piece_log_prob(batch)`` in float32; on a CPU without a recording."""
    if not batch.x.is_cuda or batch.events is not None:
        return model.piece_log_prob(batch).float()
    replays = recordings_of(model)
    with replays.lock:
        recording = replays.find(model, "log_prob", batch)
        if recording is None:
            return model.piece_log_prob(batch).float()
        recording.begin()
        return recording.run(model, batch)[: len(batch)].float()


def forget(model: nn.Module) -> None:
    """Drop what is recorded for a model and its components, and give the memory back."""
    for part in model.modules():
        replays = _of_models.get(part)
        if replays is not None:
            with replays.lock:
                replays.clear(part)


def recordings_of(model: Layers) -> Replays:
    """All that is recorded for a model; nothing at first."""
    known = _of_models.get(model)
    if known is None:
        known = _of_models[model] = Replays()
    return known


class Replays:
    """Recorded steps and forward passes of one model, and what its posteriors have recorded."""

    def __init__(self) -> None:
        #: Threads take turns: a recording has one place for its rows.
        self.lock = threading.Lock()
        self._places: list[tuple[dict[str, Any], str, int]] | None = None
        self._kept: OrderedDict[tuple, _Recording] = OrderedDict()
        #: What the last call asked for, and what it got.
        self._last: tuple[tuple, _Recording] | None = None
        self._pool = None
        #: How often posteriors have asked for what, the recordings they make from the second time
        #: on, and how often those of a shape were dropped: :mod:`einet.inference.recorded`.
        self.asked: OrderedDict[tuple, int] = OrderedDict()
        self.rooms: OrderedDict[tuple, Any] = OrderedDict()
        self.dropped: OrderedDict[tuple, int] = OrderedDict()

    def clear(self, model: Any) -> None:
        """Back to the beginning."""
        if self._places is None:
            return
        # A call that was begun may use the memory still.
        with turn:
            torch.cuda.synchronize(model.device)
        self._drop()
        self._places = self._pool = None
        torch.cuda.empty_cache()

    def _drop(self) -> None:
        """Forget all that was recorded and asked for."""
        self._kept.clear()
        self._last = None
        for known in (self.asked, self.rooms, self.dropped):
            known.clear()

    def are_of(self, model: Layers) -> bool:
        """Whether recordings are of a model as it lies in memory; others are dropped first.

        False where parameters are computed from others (:func:`einet.unconstrained`): they lie
        somewhere else at every call.
        """
        if not self._in_place():
            for room in self.rooms.values():
                room.settle()
            self._drop()
            self._places = _places(model)
        return self._places is not None

    def find(
        self, model: Layers, kind: str, batch: Batch, prior: PseudoCounts | None = None
    ) -> _Recording | None:
        """A recording that a batch fits in, if need be a new one; None if there can be none."""
        check_no_events(batch)
        if not self.are_of(model):
            return None
        rows = len(batch)
        data = (batch.x.dtype, batch.observed is None, batch.labels is None)
        what = (kind, *data, model.circuit.precision, _kind_of(prior))
        if self._last is None or self._last[0] != (what, rows):
            if prior is not None and prior.leaves is not None:
                # Raises here, rather than leave a recording behind that fits no prior.
                for group in model.leaf.family_groups:
                    prior.leaves.at(group)
            self._last = ((what, rows), self._fitting(what, batch, prior))
        return self._last[1]

    def _fitting(self, what: tuple, batch: Batch, prior: PseudoCounts | None) -> _Recording:
        rows = len(batch)
        fitting = [
            key for key in self._kept
            if key[:-1] == what and rows <= key[-1] <= max(2 * rows, _ROWS)
        ]  # fmt: skip
        key = min(fitting, default=(*what, -(-rows // _ROWS) * _ROWS), key=lambda key: key[-1])
        if key not in self._kept:
            if not self._kept and batch.x.is_cuda:
                self._pool = torch.cuda.graph_pool_handle()
            self._kept[key] = _Recording(what[0], batch, key[-1], self._pool, prior)
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _in_place(self) -> bool:
        """Whether all parameters and buffers are where they were when recording."""
        if self._places is None:
            return False
        try:
            for tensors, name, at in self._places:
                if tensors[name].data_ptr() != at:
                    return False
        except (KeyError, AttributeError):
            return False
        return True


class _Recording:
    """One kind of call for batches up to some number of rows."""

    def __init__(
        self, kind: str, like: Batch, rows: int, pool: Any, prior: PseudoCounts | None = None
    ) -> None:
        self._kind, self._pool = kind, pool
        self._graph: torch.cuda.CUDAGraph | None = None
        self._calls, self._rows, self._weighted = 0, 0, False
        self._stream: torch.cuda.Stream | None = None
        self._statistics: EinetStatistics | None = None
        # Tensors made in inference mode could not be written to outside of it.
        with torch.inference_mode(False):
            x = like.x.new_zeros(rows, like.x.shape[1])
            observed = None if like.observed is None else x.new_zeros(x.shape, dtype=torch.bool)
            labels = None if like.labels is None else like.labels.new_full((rows,), -1)
            columns = () if like.weights is None else like.weights.shape[1:]
            weights = x.new_zeros(rows, *columns, dtype=torch.float64)
            self.batch = Batch(x, observed, labels, weights)
            #: The step size, for those who need one.
            self.size = torch.zeros((), dtype=torch.float64, device=x.device)
            self._prior = None if prior is None else prior.static(x.device)
        #: The rows that the last batch went to.
        self._top = self.batch.x
        #: Where the leaves' pseudo-counts lie, of the prior that was loaded last.
        self._centres = None if prior is None or prior.leaves is None else prior.leaves.centres

    def begin(self) -> None:
        """Wait for the last call, should it have been made in another stream."""
        stream = torch.cuda.current_stream(self.batch.x.device)
        if self._stream is not None and self._stream != stream:
            stream.wait_stream(self._stream)
        self._stream = stream

    def load_prior(self, prior: PseudoCounts | None) -> None:
        """Put pseudo-counts where the recording reads them."""
        recorded = self._prior
        if prior is None or recorded is None:
            return
        if prior.sums is not None:
            _put(recorded.sums, prior.sums)
        if prior.leaves is not None and recorded.leaves is not None:
            _put(recorded.leaves.count, prior.leaves.count)
            if prior.leaves.centres is not self._centres:
                for group, place in recorded.leaves.centres.items():
                    place.copy_(prior.leaves.at(group))
                self._centres = prior.leaves.centres

    def _load(self, batch: Batch) -> None:
        """Put a batch's rows where the recording reads them."""
        rows, recorded = len(batch), self.batch
        if rows != len(self._top):
            self._top = recorded.x[:rows]
        self._top.copy_(batch.x)
        if recorded.observed is not None and batch.observed is not None:
            recorded.observed[:rows].copy_(batch.observed)
        if recorded.labels is not None and batch.labels is not None:
            recorded.labels[:rows].copy_(batch.labels)
        assert recorded.weights is not None
        weighted = batch.weights is not None
        if rows != self._rows or (self._weighted and not weighted):
            recorded.weights.zero_()
            recorded.weights[:rows] = 1.0
        if batch.weights is not None:
            recorded.weights[:rows].copy_(batch.weights)
        self._rows, self._weighted = rows, weighted

    def run(self, model: Any, batch: Batch) -> Tensor:
        """The result for a batch; valid until the next call."""
        self._load(batch)
        self._calls += 1
        with on(self.batch.x.device):
            if self._calls == 1:
                rehearse(_make, self._kind, model, self.batch, self.size, self._prior)
            if self._calls == 2:
                self._record(model)
            if self._graph is None:
                return self._call(model)
            self._graph.replay()
            return self._out

    def _call(self, model: Any) -> Tensor:
        if self._kind == "step":
            return model.step_(self.batch, self.size, self._prior)
        if self._kind == "expect":
            if self._statistics is None:
                with torch.inference_mode(False):
                    self._statistics = EinetStatistics.zeros(model)
            self._statistics.zero_()
            model.expect_(self.batch, self._statistics)
            return self._statistics.rows
        return model.piece_log_prob(self.batch)

    @property
    def statistics(self) -> EinetStatistics:
        """Of the last batch, if that is what was asked for."""
        assert self._statistics is not None
        return self._statistics

    def _record(self, model: Any) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with turn, torch.inference_mode(False), torch.cuda.graph(graph, pool=self._pool):
                self._out = self._call(model)
        except RuntimeError as error:
            warnings.warn(
                f"einet could not record this call as a CUDA graph and runs it without: {error}",
                stacklevel=2,
            )
            return
        self._graph = graph


def _make(kind: str, model: Any, batch: Batch, size: Tensor, prior: PseudoCounts | None) -> None:
    """A call as it will be recorded, for the sake of the kernels that it launches."""
    if kind == "step":
        model.step_(batch, size, prior)
    elif kind == "expect":
        model.expect_(batch, EinetStatistics.zeros(model))
    else:
        model.piece_log_prob(batch)


def _put(place: Any, number: float | Tensor) -> None:
    """Write a number to a tensor that a recording reads."""
    if isinstance(number, Tensor):
        place.copy_(number)
    else:
        place.fill_(number)


def _kind_of(prior: PseudoCounts | None) -> tuple[bool, bool] | None:
    """What about a prior is part of a recording; how much it counts, and where, is not."""
    return None if prior is None else (prior.sums is not None, prior.leaves is not None)


def _places(model: Layers) -> list[tuple[dict[str, Any], str, int]] | None:
    """Where the parameters and hyper-parameters of a model lie; all else moves with them.

    None if one of them is not a tensor of its own.
    """
    places = []
    for place in model.places():
        if place.kept is None:
            return None
        places.append((place.tensors, place.name, place.kept.data_ptr()))
    return places
