"""The tables: where they are, which of their columns are codes, and how rows are split.

Every method gets the same frames. Columns of codes, such as the region of a customer, become text
here, so that nobody takes them for quantities; names of rows and copies of the target are left out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

__all__ = [
    "CONTINUOUS",
    "PROTOCOL",
    "TABLES",
    "Source",
    "categorical",
    "deviation",
    "folder",
    "numeric",
    "read",
    "spread",
    "train_and_test",
]


@dataclass(frozen=True)
class Source:
    """A table of the benchmark.

    Attributes:
        target: The column that is predicted.
        codes: Columns of numbers that stand for categories.
        left_out: Names of rows, and columns that say the target in other words.
        regression: Whether the target is a quantity.
    """

    target: str
    codes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    regression: bool = False


_HORSE = (
    "surgery", "age", "temperature_of_extremities", "peripheral_pulse", "mucous_membranes",
    "capillary_refill_time", "pain", "peristalsis", "abdominal_distension", "nasogastric_tube",
    "nasogastric_reflux", "rectal_examination", "abdomen", "abdominocentesis_appearance",
    "outcome", "surgical_lesion", "cp_data",
)  # fmt: skip
_PAYMENTS = ("pay_0", "pay_2", "pay_3", "pay_4", "pay_5", "pay_6")

TABLES = {
    "titanic": Source("survived", ("survived", "pclass"), ("alive",)),
    "penguins": Source("species"),
    "mpg": Source("origin", left_out=("name",)),
    "abalone": Source("sex"),
    "wine_white": Source("quality", ("quality",)),
    "horse_colic": Source(
        "surgical_lesion", _HORSE, ("hospital_number", "lesion_1", "lesion_2", "lesion_3")
    ),
    "mammography": Source("label", ("label",)),
    "diamonds": Source("cut"),
    "magic": Source("class"),
    "shoppers": Source("Revenue", ("OperatingSystems", "Browser", "Region", "TrafficType")),
    "default": Source("default", ("sex", "education", "marriage", *_PAYMENTS, "default")),
    "beijing": Source("pm2.5", ("year", "month", "day", "hour"), regression=True),
    "adult": Source("income"),
}
#: The tables of the published protocol of synthetic data.
PROTOCOL = ("adult", "default", "shoppers", "magic", "beijing")
#: Tables whose density is asked of their quantities alone. Those of mammography are none: a number
#: of eight digits that half of the rows have in common has no density.
CONTINUOUS = ("abalone", "wine_white", "magic", "diamonds")


def folder() -> Path:
    """The folder of the tables: `$EINET_DATA/tabular`, or that beside the repository."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("EINET_DATA", beside)) / "tabular"
    if not path.is_dir():
        raise SystemExit(f"there is no folder {path}; EINET_DATA names the one it is in")
    return path


def read(name: str) -> pd.DataFrame:
    """All rows of a table, those of an official test part last."""
    files = [folder() / f"{name}.csv.gz"]
    if not files[0].exists():
        files = [folder() / f"{name}.{part}.csv.gz" for part in ("train", "test")]
    source = TABLES[name]
    frame: Any = pd.concat([pd.read_csv(file) for file in files], ignore_index=True)
    frame = frame.drop(columns=list(source.left_out))
    for column in frame:
        kind = pd.api.types
        is_number = kind.is_numeric_dtype(frame[column]) and not kind.is_bool_dtype(frame[column])
        if column in source.codes or not is_number:
            frame[column] = _text(frame[column])
    return frame[frame[source.target].notna()].reset_index(drop=True)


def _text(column: Any) -> Any:
    """Categories as text, None where missing; whole numbers without a point."""
    if pd.api.types.is_float_dtype(column) and (column.dropna() % 1 == 0).all():
        column = column.astype("Int64")
    known = column.notna()
    return (
        column.astype(object)
        .where(known, None)
        .map(lambda cell: None if cell is None else str(cell))
    )


def deviation(frame: pd.DataFrame, name: str) -> float:
    """The standard deviation of a column's known numbers."""
    values = np.asarray(frame[name], dtype=np.float64)
    return (
        float(np.std(values[~np.isnan(values)], ddof=1)) if (~np.isnan(values)).sum() > 1 else 0.0
    )


def numeric(frame: pd.DataFrame) -> list[str]:
    """The columns of quantities."""
    return [name for name in frame if pd.api.types.is_numeric_dtype(frame[name])]


def categorical(frame: pd.DataFrame) -> list[str]:
    """The columns of categories."""
    return [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]


def train_and_test(
    name: str, frame: pd.DataFrame, seed: int, test: float = 0.2, most: int | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two parts, drawn by the seed with equal shares of every class; adult's are the official ones.

    Args:
        name: The table.
        frame: Its rows.
        seed: Which split, and which rows where there are too many.
        test: The share of the test part.
        most: How many rows to keep at most, for a quick look.
    """
    order = np.random.default_rng(seed).permutation(len(frame))
    if name == "adult" and len(frame) == 48_842:
        first, last = order[order < 32_561], order[order >= 32_561]
        if most is not None:
            first, last = first[:most], last[: round(most * test / (1 - test))]
    else:
        order = order[:most]
        source = TABLES[name]
        if source.regression or source.target not in frame:
            part = np.arange(len(order)) < round(test * len(order))
        else:
            # Every class in turn: each gives its share, and at least one of two rows stays.
            classes = frame[source.target].to_numpy()[order]
            place = np.empty(len(order))
            for value in pd.unique(classes):
                rows = np.flatnonzero(classes == value)
                place[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
            part = place >= 1 - test
        first, last = order[~part], order[part]
    return tuple(frame.iloc[part].reset_index(drop=True) for part in (first, last))  # type: ignore


def spread(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Numbers on a grid spread evenly over their steps: what then has a density in earnest.

    Numbers that are rounded occur many times over, and a density can be as large as one likes
    where they are. The step is the largest power of ten that divides all numbers of a column.
    """
    generator = np.random.default_rng(seed)
    answer = frame.copy()
    for name in numeric(frame):
        values = frame[name].to_numpy(np.float64)
        known = values[~np.isnan(values)]
        for decimals in range(-3, 9):
            if np.allclose(np.round(known, decimals), known, rtol=0, atol=1e-12):
                answer[name] = values + 10.0**-decimals * (generator.random(len(values)) - 0.5)
                break
    return answer
