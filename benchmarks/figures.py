"""The paper's two figures: time against memory, one panel for each swept parameter.

Fig. 3 shows training time per epoch, its counterpart in the appendix inference time per sample,
both against the peak memory of training. The size of a blob is the swept parameter, its colour the
implementation, and both axes are logarithmic.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from points import SWEEPS, Point, is_on_sweep

__all__ = ["draw"]

Row = dict[str, Any]
STYLES = {  # name in the legend and colour (Okabe and Ito's, safe for the colour-blind)
    "einet": ("einet", "#D55E00"),
    "pyjuice": ("PyJuice", "#0072B2"),
    "spflow-adam": ("SPFlow (Adam)", "#009E73"),
    "spflow-em": ("SPFlow (EM)", "#7FCDB5"),
    "libspn": ("LibSPN", "#CC79A7"),
    "libspn-xla": ("LibSPN (XLA)", "#E7BBD2"),
    "baseline": ("log-domain baseline", "#7F7F7F"),
}
FIGURES = {
    "train": ("train_epoch_s", "training time per epoch [s]"),
    "infer": ("infer_us_per_sample", "inference time per sample [µs]"),
}


def draw(rows: Sequence[Row], stem: Path, batch: int) -> list[Path]:
    """Write STEM-train.png and STEM-infer.png from the rows of one training batch."""
    usable = [
        row
        for row in rows
        if not row["error"]
        and row["batch"] == batch
        and row["infer_batch"] == 100
        and (row["implementation"] != "einet" or row["precision"] == "highest")
    ]
    paths = []
    for name, (field, label) in FIGURES.items():
        path = stem.with_name(f"{stem.name}-{name}.png")
        _figure(usable, field, label, path)
        paths.append(path)
    return paths


def _figure(rows: Sequence[Row], field: str, label: str, path: Path) -> None:
    with plt.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure, panels = plt.subplots(
            1, len(SWEEPS), figsize=(10.5, 3.9), sharey=True, layout="constrained"
        )
        present = {row["implementation"] for row in rows}
        for panel, (name, (_, values)) in zip(panels, SWEEPS.items(), strict=True):
            _panel(panel, rows, field, name)
            panel.set_title(f"{name} = {min(values)} … {max(values)}", fontsize=10)
            panel.set_xlabel("peak memory in training [MiB]")
        panels[0].set_ylabel(label)
        handles = [
            Line2D([], [], marker="o", linestyle="", color=colour, label=text)
            for name, (text, colour) in STYLES.items()
            if name in present
        ]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=max(1, len(handles)), frameon=False
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160)
        plt.close(figure)


def _panel(panel: Any, rows: Sequence[Row], field: str, name: str) -> None:
    attribute, values = SWEEPS[name]
    for implementation, (_, colour) in STYLES.items():
        line = sorted(
            (getattr(Point.from_row(row), attribute), row["peak_mib"], row[field])
            for row in rows
            if row["implementation"] == implementation and is_on_sweep(Point.from_row(row), name)
        )
        if not line:
            continue
        swept, memory, time = zip(*line, strict=True)
        panel.plot(memory, time, color=colour, linewidth=0.8, alpha=0.5, zorder=1)
        # The radius follows the value, as in the paper; the smallest must still be seen.
        sizes = [(3 + 13 * value / max(values)) ** 2 for value in swept]
        panel.scatter(
            memory, time, s=sizes, color=colour, alpha=0.75, linewidths=0.6, edgecolors="white"
        )
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.grid(True, which="major", linewidth=0.4, alpha=0.4)
    panel.tick_params(labelleft=True)
    panel.margins(0.12)
