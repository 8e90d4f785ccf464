"""What a checkpoint says of the training of clusters, with everything checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from einet.clusters.together import plan
from einet.learning.history import History
from einet.learning.loop_state import checked_history
from einet.learning.plain import as_count, as_fields, as_flag, as_list, as_number

__all__ = ["ClusterState", "Lesson", "checked_assignment", "checked_inertia", "lessons_of"]

_FIELDS = ("lessons", "done", "histories", "inertia", "loop")


@dataclass(frozen=True)
class Lesson:
    """Clusters whose Einets learn at the same time: at first, or in the epochs that finish."""

    clusters: list[int]
    finishing: bool


def lessons_of(groups: Sequence[list[int]], finish: bool) -> list[Lesson]:
    """A lesson for each group and, to finish, one for each of their clusters."""
    lessons = [Lesson(group, False) for group in groups]
    if finish:
        present = sorted(number for group in groups for number in group)
        lessons += [Lesson([number], True) for number in present]
    return lessons


@dataclass(frozen=True)
class ClusterState:
    """How far the training has come.

    Attributes:
        lessons: All lessons, in their order.
        done: How many are over.
        histories: The record of each cluster.
        loop: The state of the loop in the present lesson, which checks it; None before its first
            epoch.
    """

    lessons: list[Lesson]
    done: int
    histories: list[History]
    loop: dict[str, Any] | None

    @property
    def taught(self) -> list[int]:
        """Clusters whose Einets have been through a lesson."""
        return sorted({n for lesson in self.lessons[: self.done] for n in lesson.clusters})

    def to_plain(self, inertia: list[float]) -> dict[str, Any]:
        """What JSON can say."""
        return {
            "lessons": [[lesson.clusters, lesson.finishing] for lesson in self.lessons],
            "done": self.done,
            "histories": [history.to_dict() for history in self.histories],
            "inertia": inertia,
            "loop": self.loop,
        }

    @classmethod
    def from_plain(
        cls,
        plain: Any,
        *,
        sizes: list[int],
        batch_size: int,
        stackable: bool,
        epochs: int,
        finish: int,
        scored: list[bool],
    ) -> ClusterState:
        """The state that :meth:`to_plain` told, if it is one.

        Args:
            plain: What JSON said.
            sizes: How many rows each cluster has.
            batch_size, epochs, finish: As in :meth:`einet.ClusteredEinet.fit`.
            stackable: Whether several Einets can learn at the same time.
            scored: Whether each cluster has validation rows.
        """
        plain = as_fields(plain, "the state", _FIELDS)
        lessons = _checked_lessons(plain["lessons"], sizes, batch_size, stackable, finish > 0)
        done = as_count(plain["done"], "done", 0, len(lessons))
        loop = plain["loop"]
        present = None if done == len(lessons) else lessons[done]
        if loop is not None and (present is None or not isinstance(loop, dict)):
            raise ValueError(f"loop must be null after the last lesson, got {loop!r:.60}")
        running = present.clusters if loop is not None and present is not None else []
        told = as_list(plain["histories"], "histories", [len(sizes)])
        histories = []
        for number, history in enumerate(told):
            taught = [lesson for lesson in lessons[:done] if number in lesson.clusters]
            least, most = len(taught), sum(finish if each.finishing else epochs for each in taught)
            if number in running:
                most += epochs + finish
            name = f"histories[{number}]"
            allowed = range(least, most + 1)
            histories.append(checked_history(history, name, allowed, scored[number]))
        if loop is not None and present is not None:
            # Of clusters that are learning it says the same once more.
            within = loop.get("loop")
            same = isinstance(within, dict) and within.get("histories") == [
                told[number] for number in present.clusters
            ]
            if not same:
                raise ValueError("loop.histories must be those of the present lesson's clusters")
        return cls(lessons, done, histories, loop)


def _checked_lessons(
    value: Any, sizes: list[int], batch_size: int, stackable: bool, finish: bool
) -> list[Lesson]:
    """The lessons, which follow from the sizes of clusters and how many learn together."""
    lessons = []
    most = len(sizes)
    for number, pair in enumerate(as_list(value, "lessons", range(2 * most + 1))):
        name = f"lessons[{number}]"
        clusters, finishing = as_list(pair, name, [2])
        clusters = as_list(clusters, f"{name}[0]", range(1, most + 1))
        clusters = [as_count(each, f"{name}[0]", 0, most - 1) for each in clusters]
        lessons.append(Lesson(clusters, as_flag(finishing, f"{name}[1]")))
    together = max((len(lesson.clusters) for lesson in lessons), default=1)
    # Whoever could have learnt together, but did not, has come in another order than alone.
    plans = [plan(sizes, batch_size, count) for count in {1, 2, together} if count >= together]
    if (together > 1 and not stackable) or lessons not in [lessons_of(p, finish) for p in plans]:
        raise ValueError("lessons must be those of the clusters that have rows")
    return lessons


def checked_assignment(
    assignment: Tensor | None,
    rows: int,
    num_clusters: int,
    given: Int[Tensor, " rows"] | None,
) -> Int[Tensor, " rows"]:
    """The cluster of each row, if there is one of each; nothing is made of their size before."""
    if assignment is None:
        raise ValueError("assignment is missing")
    if assignment.dtype != torch.int32 or assignment.shape != (rows,):
        raise ValueError(
            f"assignment must be torch.int32 of shape [{rows}], got {assignment.dtype} of shape "
            f"{list(assignment.shape)}"
        )
    low, high = int(assignment.min()), int(assignment.max())
    if low < 0 or high >= num_clusters:
        raise ValueError(
            f"assignment must lie between 0 and {num_clusters - 1}, got {low if low < 0 else high}"
        )
    if given is not None and not torch.equal(assignment.long(), given.long()):
        raise ValueError("assignment must be what was given as clusters")
    return assignment.long()


def checked_inertia(value: Any, most: int) -> list[float]:
    """How k-means went, in no more iterations than it was allowed."""
    told = as_list(value, "inertia", range(most + 1))
    return [as_number(each, f"inertia[{place}]", 0.0) for place, each in enumerate(told)]
