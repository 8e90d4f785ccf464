"""Whole clusters for each process: who teaches which, and how all have what each has learnt."""

from __future__ import annotations

from collections.abc import Sequence

from einet.clusters.resuming import Lesson
from einet.distributed.team import Team
from einet.learning.history import History
from einet.learning.snapshot import numbers_by_name
from einet.models.einet import Einet

__all__ = ["next_round", "owners", "share_results"]


def owners(costs: Sequence[int], processes: int) -> list[int]:
    """Who does which piece of work: the largest first, each to whoever has least to do so far.

    Example:
        >>> owners([5, 1, 4, 3], processes=2)
        [0, 0, 1, 1]
    """
    loads, result = [0] * processes, [0] * len(costs)
    for number in sorted(range(len(costs)), key=lambda number: -costs[number]):
        result[number] = min(range(processes), key=loads.__getitem__)
        loads[result[number]] += costs[number]
    return result


def next_round(lessons: Sequence[Lesson], done: int, most: int | None) -> list[Lesson]:
    """The lessons that are given before results are shared: at most so many, and of one kind.

    Those that finish go on from what the others have left.
    """
    kind = lessons[done].finishing
    alike = [lesson for lesson in lessons[done:] if lesson.finishing == kind]
    return alike[:most]


def share_results(
    team: Team,
    lessons: Sequence[Lesson],
    by: Sequence[int],
    einets: Sequence[Einet],
    histories: list[History],
) -> None:
    """Let every process have what the teacher of each lesson has: parameters and records.

    Args:
        team: The processes.
        lessons: What was taught, to its end or not.
        by: The teacher of each.
        einets: The Einets of all clusters.
        histories: Their records, which are replaced.
    """
    records = team.from_each(histories)
    for lesson, teacher in zip(lessons, by, strict=True):
        for number in lesson.clusters:
            histories[number] = records[teacher][number]
            team.copy_from_(list(numbers_by_name(einets[number]).values()), teacher)
            if histories[number].train:
                einets[number].initialized = True
