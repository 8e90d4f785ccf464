"""Tables to take away: synthetic rows, and the user's own without its holes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from einet._checks import as_int, as_seed, check_choice
from einet.studio.answers import ApiError
from einet.studio.evidence import Known, posterior_of
from einet.tables import TableModel, TablePosterior
from einet.tables.evidence import Evidence, as_evidence
from einet.tables.frames import as_rows

__all__ = ["filled_csv", "sampled_csv"]

_METHODS = ("mean", "median", "mode", "sample")


def sampled_csv(model: TableModel, known: Known, n: Any, seed: Any, most: int) -> bytes:
    """New rows under evidence, as csv.

    Args:
        model: The model.
        known: What is known of them.
        n: How many.
        seed: Seed of all that is random; 0 by default.
        most: How many there may be.
    """
    n, seed = as_int("n", 1000 if n is None else n, minimum=1), as_seed(0 if seed is None else seed)
    if n > most:
        raise ApiError(422, f"n must be at most {most:,}, got {n:,}")
    posterior = posterior_of(model, known)
    posterior.evidence = replace(posterior.evidence, backend="pandas")
    return _csv(posterior.sample(n, seed % (1 << 31)))


def filled_csv(model: TableModel, frame: Any, method: Any, known: Known, seed: Any = None) -> bytes:
    """A table whose missing cells are filled in, as csv; all others stay as they are.

    Args:
        model: The model.
        frame: The table.
        method: As in :meth:`einet.TableModel.impute`.
        known: What is known of missing cells: a row whose cell says something keeps that.
        seed: Seed of ``"sample"``; 0 by default.
    """
    method = "mean" if method is None else method
    check_choice("method", method, _METHODS)
    if not any(name in frame.columns for name in model.table.modelled):
        raise ApiError(422, "the table has no column of the model, so that nothing can be filled")
    holes = frame.isna().any(axis=1).to_numpy()
    filled = frame.copy()
    if not holes.any():
        return _csv(filled)
    some = frame[holes]
    table = model.table
    z = table.encode(as_rows(some)[0], strange="ignore")
    columns = list(known)
    # Rows that lack the same of these columns are asked for together.
    lacks = np.zeros((len(z), len(columns)), dtype=bool)
    for place, name in enumerate(columns):
        lacks[:, place] = np.isnan(z[:, list(table.variables(name))]).all(1)
    groups: dict[tuple[bool, ...], list[int]] = {}
    for row, pattern in enumerate(lacks.tolist()):
        groups.setdefault(tuple(pattern), []).append(row)
    places = np.flatnonzero(holes)
    options = {"seed": as_seed(0 if seed is None else seed)} if method == "sample" else {}
    for pattern, rows in groups.items():
        said = {
            name: known[name] for name, is_open in zip(columns, pattern, strict=True) if is_open
        }
        evidence = as_evidence(table, said)
        posterior = TablePosterior(
            model.model, table,
            Evidence(z[rows], evidence.alternatives, "pandas", None, evidence.log_changes),
        )  # fmt: skip
        answer = posterior.impute(method, **options)
        answer.index = filled.index[places[rows]]
        for name in filled.columns:
            if name in answer.columns:
                gaps = filled.loc[answer.index, name].isna()
                filled[name] = _patched(filled[name], answer[name][gaps])
    return _csv(filled)


def _patched(cells: Any, values: Any) -> Any:
    """A column with some cells replaced; of integers that had holes, integers."""
    if not len(values):
        return cells
    if cells.isna().all():
        return values.reindex(cells.index)
    if cells.dtype != values.dtype:
        cells = cells.astype(object)
    cells = cells.copy()
    cells.loc[values.index] = values
    return cells.infer_objects()


def _csv(frame: Any) -> bytes:
    return frame.to_csv(index=False, lineterminator="\n").encode()
