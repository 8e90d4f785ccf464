"""Passes and draws of posteriors as CUDA graphs, which cost few launches.

Recorded are the upward pass over the evidence, the flows into the leaves, means and variances from
these, and samples. Each is run as it is the first time that a posterior of a shape asks for it,
recorded the second time, and replayed from then on; the shape is the number of rows, their type,
and whether cells and classes may be unknown. Numbers are the same either way, and so are draws from
a seed.

Everything else runs as it is: posteriors with events, those of a mixture's components, in pieces,
on a CPU or without fused kernels, inside :func:`einet.unconstrained`, draws of leaves that have no
kernel for them, and what takes more memory than the budget of recordings.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from einet._memory import budget
from einet.data.batch import Batch
from einet.engine.passes import Passes
from einet.engine.replay import Replays, recordings_of
from einet.engine.tape import Tape, on
from einet.inference.fused_sampling import at_once, new_seed
from einet.inference.query_room import Room
from einet.inference.upward import UpwardPass
from einet.layers.choices import draws_alone

__all__ = ["draws", "flow", "moments", "serves_draws", "upward"]

Result = TypeVar("Result")
#: What recordings have in common.
Shape: TypeAlias = tuple[Hashable, ...]

# Shapes with recordings, and kinds of calls that are remembered; the oldest go first.
_MOST_ROOMS = 8
_MOST_ASKED = 256
# A shape whose recordings were dropped is recorded anew after twice as many calls, and after twice
# as many again each time: recording takes as long as a hundred calls.
_AFTER_A_DROP = 32
# What a recording keeps of a pass, in multiples of the values of all nodes: these, what trees keep
# for their way back, and flows.
_TIMES_VALUES = 3
# Draws may take one part in so many of the budget: there are several of them beside each other.
_PARTS_FOR_DRAWS = 8


def upward(model: Passes, batch: Batch) -> UpwardPass | None:
    """:meth:`UpwardPass.over` all rows of a posterior; None where that is not recorded (yet)."""
    if not _is_served(model, batch) or not _fits(model, len(batch)):
        return None
    shape = _shape(batch, model.circuit.precision)
    with _turn(model) as replays:
        if replays is None:
            return None
        return _ask(replays, _room(replays, shape, batch), lambda room: room.upward(model, batch))


def flow(
    model: Passes, batch: Batch, found: UpwardPass
) -> Float[Tensor, "leaf_nodes leaves batch"] | None:
    """p_L of every leaf entry, given what :func:`upward` found; None where it is not recorded."""
    if not _is_served(model, batch):
        return None
    shape = _shape(batch, found.values.precision)
    with _turn(model) as replays:
        if replays is None or _is_first(replays, ("flow", *shape)):
            return None
        return _ask(replays, replays.rooms.get(shape), lambda room: room.flow(model, found))


def moments(model: Passes, batch: Batch, flow: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean and variance of every variable, given :func:`flow`; None where they are not recorded."""
    if not _is_served(model, batch):
        return None
    shape = _shape(batch, model.circuit.precision)
    with _turn(model) as replays:
        if replays is None or _is_first(replays, ("moments", *shape)):
            return None
        return _ask(replays, replays.rooms.get(shape), lambda room: room.moments(model, flow))


def draws(
    model: Passes,
    batch: Batch,
    found: UpwardPass | None,
    n: int,
    dtype: torch.dtype,
    generator: torch.Generator | None,
) -> Float[Tensor, "n batch variables"] | None:
    """Draws of all cells by :func:`serves_draws`, given what :func:`upward` found, or nothing.

    None where they are not recorded. The seed is taken from the generator only if they are.
    """
    if found is None:
        shape: Shape = ("nothing", len(batch))
    else:
        shape = _shape(batch, found.values.precision)

    def draw(room: Room) -> Tensor | None:
        return room.draw(model, found, n, dtype, lambda: new_seed(model, generator))

    with _turn(model) as replays:
        if replays is None:
            return None
        room = _room(replays, shape, batch) if found is None else replays.rooms.get(shape)
        first = _is_first(replays, ("draws", n, dtype, *shape))
        return None if first else _ask(replays, room, draw)


def serves_draws(model: Passes, batch: Batch, n: int, dtype: torch.dtype) -> bool:
    """Whether so many draws of each row are recorded, from the second time on."""
    rows = len(batch)
    fits = _is_served(model, batch) and _fits(model, rows) and _draws_fit(model, n, rows, dtype)
    return fits and draws_alone(model.leaf)


# -- rules -----------------------------------------------------------------------------------------


def _is_served(model: Passes, batch: Batch) -> bool:
    """Whether calls of a posterior with this evidence are recorded at all."""
    return (
        batch.x.is_cuda
        and batch.events is None
        and len(batch) > 0
        and model.is_fused
        # Somebody else's recording takes the launches themselves.
        and not torch.cuda.is_current_stream_capturing()
    )


def _fits(model: Passes, rows: int) -> bool:
    """Whether what is recorded of so many rows has room."""
    circuit = model.circuit
    each = circuit.num_body * circuit.width * model.log_class_prior.element_size()
    return _TIMES_VALUES * rows * each <= budget("recorded queries", model.device)


def _draws_fit(model: Passes, n: int, rows: int, dtype: torch.dtype) -> bool:
    """Whether so many draws are made at once, and have room."""
    circuit = model.circuit
    each = 4 * (circuit.num_body + circuit.num_top) + model.num_variables * dtype.itemsize
    fits = _PARTS_FOR_DRAWS * n * rows * each <= budget("recorded queries", model.device)
    return n > 0 and fits and len(list(at_once(model, n, rows))) == 1


def _shape(batch: Batch, precision: str) -> Shape:
    """What recordings of rows have in common."""
    return (len(batch), batch.x.dtype, batch.observed is None, batch.labels is None, precision)


# -- rooms -----------------------------------------------------------------------------------------


@contextmanager
def _turn(model: Passes) -> Iterator[Replays | None]:
    """This thread's turn at what is recorded for a model; None where nothing can be."""
    replays = recordings_of(model)
    with replays.lock, on(model.device):
        yield replays if replays.are_of(model) else None


def _is_first(replays: Replays, call: Shape) -> bool:
    """Whether a call is the first of its kind; from now on it is not."""
    return _count(replays.asked, call) == 1


def _count(times: OrderedDict[Shape, int], what: Shape) -> int:
    """How often something came, this time included."""
    times[what] = times.get(what, 0) + 1
    times.move_to_end(what)
    if len(times) > _MOST_ASKED:
        times.popitem(last=False)
    return times[what]


def _room(replays: Replays, shape: Shape, batch: Batch) -> Room | None:
    """The room of a shape, which has one from the second time on."""
    if shape not in replays.rooms:
        drops = replays.dropped.get(shape, 0)
        wanted = 2 if drops == 0 else _AFTER_A_DROP << min(drops, 16)
        if _count(replays.asked, ("room", *shape)) < wanted:
            return None
        replays.rooms[shape] = Room(batch, Tape(batch.x.device))
    replays.rooms.move_to_end(shape)
    return replays.rooms[shape]


def _ask(
    replays: Replays, room: Room | None, question: Callable[[Room], Result | None]
) -> Result | None:
    """The answer of a room; None where there is no room."""
    if room is None:
        return None
    before = room.grown
    answer = question(room)
    if room.grown > before:
        _trim(replays, room)
    return answer


def _trim(replays: Replays, kept: Room) -> None:
    """Drop the rooms that were not used for longest, where all take too much memory."""
    rooms, most = replays.rooms, budget("recorded queries", kept.device)
    for shape, room in list(rooms.items()):
        fits = sum(each.nbytes for each in rooms.values()) <= most
        if fits and len(rooms) <= _MOST_ROOMS:
            return
        if room is not kept:
            # A call that was begun in another stream may use the memory still.
            room.settle()
            del rooms[shape]
            replays.asked.pop(("room", *shape), None)
            _count(replays.dropped, shape)
