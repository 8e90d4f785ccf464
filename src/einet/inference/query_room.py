"""Places in memory for rows of one shape and what passes find of them, with recorded passes.

A replay writes to the same places every time. So answers are copied before anybody else takes his
turn, and a pass that goes on from another one first sees to it that the places hold what that one
found: copies are brought back where another posterior has been here meanwhile.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.data.batch import Batch
from einet.engine.passes import Passes
from einet.engine.root import responsibilities
from einet.engine.tape import Recorded, Tape
from einet.inference.fused_sampling import draw_points
from einet.inference.leaf_moments import Moments, moments_of, moments_under
from einet.inference.upward import UpwardPass

__all__ = ["Room"]

# So many numbers of samples, of one type each, have recorded draws.
_MOST_DRAWS = 4


class _Draws(NamedTuple):
    """Recorded draws: where their seed is read from, and where they go.

    ``call`` is None where they could not be recorded, ``nbytes`` the memory with that of choices.
    """

    seed: Int[Tensor, " 1"]
    out: Float[Tensor, "n rows variables"]
    call: Recorded[None] | None
    nbytes: int


class Room:
    """Recorded passes of a model over rows of one shape. Threads take turns; callers see to that.

    Every method returns copies, or None where its call could not be recorded, which is said once.
    It holds no reference to the model: that would never be freed.

    Args:
        like: A batch of such rows.
        tape: What its passes are recorded on.
    """

    def __init__(self, like: Batch, tape: Tape) -> None:
        self._tape = tape
        # Tensors made in inference mode could not be written to outside of it.
        with torch.inference_mode(False):
            self._batch = Batch(
                torch.zeros_like(like.x, memory_format=torch.contiguous_format),
                None if like.observed is None else torch.zeros_like(like.observed),
                None if like.labels is None else torch.full_like(like.labels, -1),
            )
        self._up: Recorded[UpwardPass] | None = None
        self._down: Recorded[None] | None = None
        self._moments: Recorded[tuple[Tensor, Tensor]] | None = None
        #: What was tried: a call that could not be recorded is not tried again.
        self._tried: set[str] = set()
        #: Whose values, flows and leaf moments lie here now.
        self._upward_of: ReferenceType[UpwardPass] | None = None
        self._flow_of: ReferenceType[Tensor] | None = None
        self._leaf_moments_of: Moments | None = None
        self._flow: Tensor | None = None
        self._leaf_moments: Moments | None = None
        self._draws: OrderedDict[tuple[int, torch.dtype, bool], _Draws] = OrderedDict()
        #: How many calls were recorded so far, or tried.
        self.grown = 0

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self._batch.x.device

    @property
    def nbytes(self) -> int:
        """The memory of all places, without what calls need on their way."""
        found = 0 if self._up is None else self._up.out.nbytes
        flow = 0 if self._flow is None else self._flow.nbytes
        return self._batch.nbytes + found + flow + sum(each.nbytes for each in self._draws.values())

    # -- passes --------------------------------------------------------------------------------

    def upward(self, model: Passes, batch: Batch) -> UpwardPass | None:
        """The upward pass over rows."""
        self._tape.begin()
        mine = self._batch
        mine.x.copy_(batch.x)
        if mine.observed is not None and batch.observed is not None:
            mine.observed.copy_(batch.observed)
        if mine.labels is not None and batch.labels is not None:
            mine.labels.copy_(batch.labels)
        if "the upward pass" not in self._tried:
            self._up = self._record("the upward pass", lambda: UpwardPass.over(model, mine))
        if self._up is None:
            return None
        # Until there is a copy, nobody knows whose these are.
        self._upward_of = None
        found = self._up.replay().clone()
        self._upward_of = ref(found)
        return found

    def flow(self, model: Passes, upward: UpwardPass) -> Tensor | None:
        """p_L of every leaf entry, from what an upward pass found."""
        if self._up is None:
            return None
        self._tape.begin()
        here = self._bring(upward)
        if "the flows" not in self._tried:
            size = (model.leaf.num_nodes, model.num_leaves, upward.joint.shape[-1])
            with torch.inference_mode(False):
                # Apart from what is recorded: a place there might be used by another call.
                place = self._flow = here.values.body.v.new_zeros(size)

            def go_down() -> None:
                place.copy_(model.downward(here.values, responsibilities(here.joint)))

            self._down = self._record("the flows", go_down)
        if self._down is None or self._flow is None:
            return None
        self._flow_of = None
        self._down.replay()
        found = self._flow.clone()
        self._flow_of = ref(found)
        return found

    def moments(self, model: Passes, flow: Tensor) -> tuple[Tensor, Tensor] | None:
        """Mean and variance of every variable, from flows into the leaves."""
        place = self._flow
        if self._down is None or place is None:
            return None
        self._tape.begin()
        if self._flow_of is None or self._flow_of() is not flow:
            self._flow_of = None
            place.copy_(flow)
            self._flow_of = ref(flow)
        of_leaves = moments_of(model.leaf)
        if self._leaf_moments is None:
            with torch.inference_mode(False):
                self._leaf_moments = of_leaves.clone()
        elif self._leaf_moments_of is not of_leaves:
            self._leaf_moments_of = None
            self._leaf_moments.copy_(of_leaves)
        self._leaf_moments_of, mine = of_leaves, self._leaf_moments
        if "the moments" not in self._tried:
            self._moments = self._record(
                "the moments", lambda: moments_under(model.leaf, place, mine)
            )
        if self._moments is None:
            return None
        mean, variance = self._moments.replay()
        return mean.clone(), variance.clone()

    # -- draws ---------------------------------------------------------------------------------

    def draw(
        self,
        model: Passes,
        upward: UpwardPass | None,
        n: int,
        dtype: torch.dtype,
        seed: Callable[[], Int[Tensor, " 1"]],
    ) -> Float[Tensor, "n rows variables"] | None:
        """So many draws for each row, given what an upward pass found, or nothing.

        A seed is asked for only if they are made.
        """
        if upward is not None and self._up is None:
            return None
        self._tape.begin()
        here = None if upward is None else self._bring(upward)
        key = (n, dtype, upward is not None)
        if key not in self._draws:
            self._draws[key] = self._record_draws(model, here, n, dtype)
            if len(self._draws) > _MOST_DRAWS:
                self._tape.settle()
                self._draws.popitem(last=False)
        self._draws.move_to_end(key)
        draws = self._draws[key]
        if draws.call is None:
            return None
        draws.seed.copy_(seed())
        draws.call.replay()
        return draws.out.clone()

    def _record_draws(
        self, model: Passes, here: UpwardPass | None, n: int, dtype: torch.dtype
    ) -> _Draws:
        x = self._batch.x
        values, joint = (None, None) if here is None else (here.values, here.joint)
        with torch.inference_mode(False):
            seed = torch.zeros(1, dtype=torch.int64, device=x.device)
            out = torch.empty(n, *x.shape, dtype=dtype, device=x.device)
            cells = out.flatten(0, 1)

        def draw() -> None:
            # A cell that no leaf writes would be an error: let it be seen.
            out.fill_(torch.nan)
            draw_points(model, joint, values, seed, "sample", cells)

        nodes = model.circuit.num_body + model.circuit.num_top
        call = self._record(f"draws of {n} samples", draw)
        return _Draws(seed, out, call, out.nbytes + 4 * len(cells) * nodes)

    def settle(self) -> None:
        """Wait for what was begun here, before the memory is given away."""
        self._tape.settle()

    # -- places --------------------------------------------------------------------------------

    def _bring(self, upward: UpwardPass) -> UpwardPass:
        """The places of values, which hold those of a pass from now on."""
        assert self._up is not None
        if self._upward_of is None or self._upward_of() is not upward:
            self._upward_of = None
            self._up.out.copy_(upward)
            self._upward_of = ref(upward)
        return self._up.out

    def _record(self, name: str, call: Callable[[], Any]) -> Recorded[Any] | None:
        self._tried.add(name)
        self.grown += 1
        try:
            return self._tape.record(call)
        except RuntimeError as error:
            warnings.warn(
                f"einet could not record {name} of a posterior as a CUDA graph and goes on "
                f"without: {error}",
                stacklevel=2,
            )
            return None
