"""How near synthetic rows are to real ones: measures by distance, written out by hand.

Rows become points: quantities are scaled to the range of the real rows, categories one-hot.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.neighbors import NearestNeighbors

from table_tasks.data import numeric

__all__ = ["alpha_precision_beta_recall", "nearer_to_training", "points_of"]

_LEVELS = 30


def points_of(
    real: pd.DataFrame, *frames: pd.DataFrame
) -> list[Float[np.ndarray, "rows coordinates"]]:
    """Points of several frames on the scale of the real one; missing quantities are the mean."""
    parts: list[list[np.ndarray]] = [[] for _ in frames]
    quantities = set(numeric(real))
    for name in real:
        cells = [np.asarray(frame[name]) for frame in frames]
        if name in quantities:
            known = np.asarray(real[name], np.float64)
            low, high = np.nanmin(known), np.nanmax(known)
            for part, values in zip(parts, cells, strict=True):
                filled = np.where(np.isnan(values.astype(np.float64)), np.nanmean(known), values)
                part.append((filled.astype(np.float64) - low) / max(high - low, 1e-12))
        else:
            for value in dict.fromkeys(real[name].dropna()):
                for part, values in zip(parts, cells, strict=True):
                    part.append((values == value).astype(np.float64))
    return [np.stack(part, 1) for part in parts]


def alpha_precision_beta_recall(
    real: Float[np.ndarray, "rows coordinates"], synthetic: Float[np.ndarray, "draws coordinates"]
) -> tuple[float, float]:
    r"""The naive forms of α-precision and β-recall, both 1 at best.

    With the ball about the mean of the real rows that holds a share α of them, :math:`P_\alpha` is
    the share of synthetic rows in it. A real row is covered where its nearest synthetic row is no
    farther than its nearest other real row, and :math:`R_\beta` is the share of rows that are
    covered from inside the ball about the mean of the synthetic rows that holds a share β of all
    such nearest ones. The answers are :math:`1 - \sum|α - P_α| / \sum α`, and the same with
    :math:`R_\beta`, over 30 levels from 0 to 1. This is the form of the published protocol, which
    looks at the rows themselves and at no embedding of them.
    """
    levels = np.linspace(0, 1, _LEVELS)
    centre = real.mean(0)
    radii = np.quantile(np.linalg.norm(real - centre, axis=1), levels)
    distance = np.linalg.norm(synthetic - centre, axis=1)
    precision = [(distance <= radius).mean() for radius in radii]
    own = NearestNeighbors(n_neighbors=2).fit(real).kneighbors(real)[0][:, 1]
    nearest, which = (
        part[:, 0] for part in NearestNeighbors(n_neighbors=1).fit(synthetic).kneighbors(real)
    )
    far = np.linalg.norm(synthetic[which] - synthetic.mean(0), axis=1)
    recall = [((nearest <= own) & (far <= radius)).mean() for radius in np.quantile(far, levels)]
    return _closeness(levels, precision), _closeness(levels, recall)


def _closeness(levels: np.ndarray, curve: list[float]) -> float:
    return float(1 - np.abs(levels - np.array(curve)).sum() / levels.sum())


def nearer_to_training(
    training: Float[np.ndarray, "rows coordinates"],
    held_out: Float[np.ndarray, "others coordinates"],
    synthetic: Float[np.ndarray, "draws coordinates"],
    seed: int = 0,
) -> tuple[float, float]:
    """The share of synthetic rows nearer to training than to held-out rows, and of exact copies.

    As many training rows are drawn as there are held-out ones, so that ½ is the share of a
    generator that copies nothing. Rows equally near to both count half.
    """
    count = min(len(training), len(held_out))
    chosen = np.random.default_rng(seed).permutation(len(training))[:count]
    distances = [
        NearestNeighbors(n_neighbors=1).fit(rows).kneighbors(synthetic)[0][:, 0]
        for rows in (training[chosen], held_out[:count], training)
    ]
    share = (distances[0] < distances[1]).mean() + (distances[0] == distances[1]).mean() / 2
    return float(share), float((distances[2] == 0).mean())
