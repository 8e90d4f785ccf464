"""The paper's one-sided t-test."""

from __future__ import annotations

import math

from scipy import stats

__all__ = ["p_better"]


def p_better(ours: float, theirs: float, row_sd: float, rows: int) -> float:
    """The chance of a lead like ours over a published mean, were both models equally good.

    This is a one-sided two-sample t-test over the test rows. Of the published model only the mean
    is known, so its rows are taken to spread like ours. A test on pairs of rows would be sharper,
    but also needs theirs row by row.

    >>> p_better(-13.0, -13.0, row_sd=7.0, rows=3000)
    0.5
    >>> p_better(-12.6, -13.0, row_sd=7.0, rows=3000)
    0.0135
    """
    if row_sd == 0:
        return 0.5 if ours == theirs else float(ours < theirs)
    t = (ours - theirs) / (row_sd * math.sqrt(2 / rows))
    return float(stats.t.sf(t, 2 * rows - 2))
