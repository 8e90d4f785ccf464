"""The picture of a table at work in the README: ``docs/what_if.png``.

    python tools/what_if.py titanic.csv         # a csv file, packed or not

A model is fitted to six columns of the passengers, as docs/tables.md does, and asked exactly: who
survived, what is known of fares before and after evidence, and which cells of a row are odd.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas

import einet
from einet.tables import cell_surprise, plots

__all__ = ["COLUMNS", "draw", "main"]

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "what_if.png"
COLUMNS = ["survived", "pclass", "sex", "age", "fare", "embarked"]
# Told apart by those, too, who see few colours.
_GROUPS = {
    "women": ("sex=female, age>=12", "#D55E00"),
    "men": ("sex=male, age>=12", "#0072B2"),
    "children": ("age<12", "#009E73"),
}
_CLASSES = (1, 2, 3)
_LEVELS = np.linspace(0.02, 0.98, 97)
_FARES = {"fare": "0.45", "fare | pclass=1": "#D55E00", "fare | pclass=3, age<12": "#009E73"}


def draw(model: einet.TableModel, passengers: pandas.DataFrame) -> Any:
    """A figure of three panels, each one kind of question."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.1), layout="constrained", dpi=110)
    left, middle, right = figure.subplots(1, 3, width_ratios=[1.15, 1, 1])
    _survival(left, model)
    _fares(middle, model)
    _surprise(right, model, passengers)
    return figure


def _survival(ax: Any, model: einet.TableModel) -> None:
    """Exact probabilities of what happened, for each group of passengers."""
    for place, (label, (known, colour)) in enumerate(_GROUPS.items()):
        chances = [
            model.query(f"P(survived=1 | {known}, pclass={pclass})").value for pclass in _CLASSES
        ]
        bars = ax.bar(np.arange(3) + 0.28 * (place - 1), chances, 0.26, color=colour, label=label)
        ax.bar_label(bars, fmt="{:.0%}", fontsize=6)
    ax.set_xticks(range(3), [f"class {pclass}" for pclass in _CLASSES])
    ax.set(ylim=(0, 1.25), title="P(survived=1 | …, pclass)")
    ax.set_yticks([0, 0.5, 1])
    ax.legend(fontsize=6, ncols=3, loc="upper right")


def _fares(ax: Any, model: einet.TableModel) -> None:
    """The distribution of a column before and after something is known."""
    for asked, colour in _FARES.items():
        fares = [model.query(f"quantile({level}, {asked})").value for level in _LEVELS]
        ax.plot(fares, _LEVELS, color=colour, label=asked)
    ax.set(xlabel="fare", xscale="log", title="P(fare ≤ x | …)", ylim=(0, 1))
    ax.legend(fontsize=6)


def _surprise(ax: Any, model: einet.TableModel, passengers: pandas.DataFrame) -> None:
    """The row with the most surprising cell, cell by cell."""
    cells = pandas.DataFrame(cell_surprise(model, passengers))
    row = int(cells.max(axis=1).to_numpy().argmax())
    plots.plot_surprise(cells.iloc[row].to_dict(), ax)
    values = passengers.iloc[row]
    labels = [f"{label.get_text()} = {values[label.get_text()]}" for label in ax.get_yticklabels()]
    ax.set_yticks(range(len(labels)), labels, fontsize=7)
    ax.set(title="What is odd about a row?", xlabel="−log p(cell | other cells)")


def main(arguments: list[str]) -> None:
    """Fit the model and write the picture."""
    if len(arguments) != 1:
        raise SystemExit("usage: what_if.py titanic.csv")
    passengers = pandas.read_csv(arguments[0], usecols=COLUMNS)
    draw(einet.TableModel.fit(passengers), passengers).savefig(PICTURE)
    print(f"wrote {PICTURE.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
