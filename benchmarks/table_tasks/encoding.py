"""Frames as matrices and back, for methods that know numbers only."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float

from table_tasks.data import categorical, deviation, numeric

__all__ = ["Matrix", "as_categories"]


class Matrix:
    """Quantities in standard units and categories one-hot; NaN where a cell is missing.

    Args:
        frame: Training rows, whose means, deviations and categories count.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        self.numeric, self.categorical = numeric(frame), categorical(frame)
        self.columns = list(frame)
        self.mean = {
            name: float(np.nanmean(np.asarray(frame[name], np.float64))) for name in self.numeric
        }
        self.deviation = {name: max(deviation(frame, name), 1e-12) for name in self.numeric}
        self.values = {
            name: sorted(set(frame[name].dropna()), key=str) for name in self.categorical
        }

    def encode(self, frame: pd.DataFrame) -> Float[np.ndarray, "rows coordinates"]:
        """The matrix of a frame; a category never seen is missing."""
        parts = [
            ((frame[name] - self.mean[name]) / self.deviation[name]).to_numpy(np.float64)
            for name in self.numeric
        ]
        for name in self.categorical:
            known = frame[name].isin(self.values[name]).to_numpy()
            for value in self.values[name]:
                same = (frame[name] == value).to_numpy(np.float64)
                parts.append(np.where(known, same, np.nan))
        return np.stack(parts, 1)

    def decode(self, matrix: Float[np.ndarray, "rows coordinates"]) -> pd.DataFrame:
        """The frame of a matrix: the largest of a category's coordinates says which it is."""
        place = len(self.numeric)
        columns: dict[str, np.ndarray] = {
            name: matrix[:, n] * self.deviation[name] + self.mean[name]
            for n, name in enumerate(self.numeric)
        }
        for name in self.categorical:
            values = self.values[name]
            part = matrix[:, place : place + len(values)]
            columns[name] = np.array(values, dtype=object)[part.argmax(1)]
            place += len(values)
        return pd.DataFrame({name: columns[name] for name in self.columns})


def as_categories(frame: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """The frame with pandas' categories of another one in place of text."""
    answer = frame.copy()
    for name in categorical(like):
        values = sorted(set(like[name].dropna()), key=str)
        answer[name] = pd.Categorical(frame[name], categories=values)
    return answer
