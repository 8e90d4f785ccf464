"""The search for settings, on validation rows alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.table1.settings import Settings, Stage

__all__ = ["choose"]

#: Trains a model and returns its mean validation log-likelihood; None where training failed.
Score = Callable[[str, Settings], float | None]


def choose(start: Settings, stages: Sequence[Stage], rows: int, score: Score) -> Settings:
    """The settings with the highest validation score of all that the stages try.

    A short training may win over a long one: where a model overfits, its step size should reach
    the end of its fall sooner.
    """
    scores: dict[Settings, float] = {}
    survivors = [start]
    for stage in stages:
        found: dict[Settings, float] = {}
        for candidate in stage.candidates(survivors, rows):
            value = score(stage.name, candidate)
            if value is not None:
                found[candidate] = value
        if not found:
            raise RuntimeError(f"no model of the stage {stage.name!r} could be trained")
        scores |= found
        survivors = sorted(found, key=found.__getitem__, reverse=True)[: stage.keep]
    return max(scores, key=scores.__getitem__)
