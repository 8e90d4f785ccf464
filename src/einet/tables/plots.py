"""Pictures of tables and their models: each a function that draws into axes and returns them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from einet._checks import as_int, missing_package
from einet.tables.constraints import Box, Interval, Pieces, Values
from einet.tables.query.conditional import Conditional
from einet.tables.query.quantiles import quantile
from einet.tables.query.source import Source

__all__ = ["plot_marginals", "plot_pairs", "plot_surprise", "plot_training"]

# Told apart by those, too, who see few colours.
_BEFORE, _AFTER, _DATA = "#0072B2", "#D55E00", "0.55"
_BINS, _MOST_BARS, _MOST_POINTS = 40, 20, 2000


def plot_pairs(
    data: Any,
    samples: Any,
    columns: Sequence[str] | None = None,
    figure: Any = None,
    seed: int = 0,
) -> np.ndarray:
    """Samples of a model beside data, two columns at a time.

    On the diagonal is each column by itself, below it are pairs of the data and above it the same
    pairs of the samples: a good model makes a symmetric picture. Categories are spread a little,
    so that points of the same ones can be seen.

    Args:
        data: A pandas data frame.
        samples: Another with the same columns.
        columns: Which columns; by default the first five.
        figure: The matplotlib figure to draw into; by default a new one.
        seed: Which rows are drawn where there are too many, and how they are spread.

    Returns:
        The axes, as many in a row and in a column as there are columns.
    """
    names = _chosen(columns, [name for name in data.columns if name in samples.columns], 5)
    generator = np.random.default_rng(seed)
    frames = {"data": _fewer(data, generator), "samples": _fewer(samples, generator)}
    colours = {"data": _DATA, "samples": _BEFORE}
    scales = {name: _scale(data[name], samples[name]) for name in names}
    axes = _grid(figure, len(names), len(names), 1.9)
    for row, vertical in enumerate(names):
        for place, horizontal in enumerate(names):
            ax = axes[row, place]
            if row == place:
                _histograms(ax, {key: frame[vertical] for key, frame in frames.items()},
                            scales[vertical], colours)  # fmt: skip
            else:
                # The data are below the diagonal.
                key = "data" if row > place else "samples"
                points = [
                    _placed(frames[key][name], scales[name], generator)
                    for name in (horizontal, vertical)
                ]
                ax.plot(*points, ".", color=colours[key], markersize=2, alpha=0.4)
                _label(ax.yaxis, scales[vertical])
            _label(ax.xaxis, scales[horizontal])
            ax.tick_params(labelsize=6)
            if row == len(names) - 1:
                ax.set_xlabel(horizontal, fontsize=8)
            if place == 0:
                ax.set_ylabel(vertical, fontsize=8)
    axes[0, 0].legend(fontsize=6)
    return axes


def plot_marginals(
    source: Source,
    event: Sequence[Box],
    columns: Sequence[str] | None = None,
    figure: Any = None,
) -> np.ndarray:
    """What a model expects of columns, before and after something is known; exact.

    Args:
        source: The model, as questions see it.
        event: What is known: boxes that do not overlap.
        columns: Which columns; by default the first twelve.
        figure: The matplotlib figure to draw into; by default a new one.

    Returns:
        One axes for each column.
    """
    known = [name for name, column in source.columns.items() if column.kind != "left out"]
    names = _chosen(columns, known, 12)
    across = min(4, len(names))
    axes = _grid(figure, math.ceil(len(names) / across), across, 2.6).reshape(-1)
    for ax in axes[len(names) :]:
        ax.remove()
    for ax, name in zip(axes, names, strict=False):
        before, after = (Conditional(source, source.columns[name], part) for part in ([{}], event))
        parts, edges = _parts(before)
        chances = [before.shares(parts), after.shares(parts)]
        for values, colour, word in zip(
            chances, (_BEFORE, _AFTER), ("before", "after"), strict=True
        ):
            if edges is None:
                shift = -0.2 if word == "before" else 0.2
                ax.bar(np.arange(len(parts)) + shift, values, 0.4, color=colour, label=word)
            else:
                ax.stairs(values, edges, color=colour, label=word, fill=word == "after", alpha=0.7)
        if edges is None:
            words = [str(piece) for pieces in parts for piece in pieces]
            shown = [_short(word.strip("{}").split(",")[0].strip("[")) for word in words]
            ax.set_xticks(range(len(parts)), shown, rotation=60, ha="right")
        ax.set_title(name, fontsize=9)
        ax.set_ylabel("probability", fontsize=7)
        ax.tick_params(labelsize=7)
    axes[0].legend(fontsize=7)
    return axes[: len(names)]


def plot_surprise(surprise: Mapping[str, float], ax: Any = None, most: int = 20) -> Any:
    """How surprising each cell of a row is, given all of its others.

    Args:
        surprise: For each column −log p of its cell given the others, in nats; NaN where missing.
        ax: The matplotlib axes to draw into; by default new ones.
        most: No more columns than these, the most surprising ones.
    """
    most = as_int("most", most, minimum=1)
    known = {name: value for name, value in surprise.items() if not math.isnan(value)}
    names = sorted(known, key=lambda name: known[name])[-most:]
    finite = [known[name] for name in names if math.isfinite(known[name])]
    # What cannot be, under the model, gets a bar beyond all others.
    beyond = 1.1 * max([1.0, *finite])
    lengths = [min(known[name], beyond) for name in names]
    if ax is None:
        ax = _new_figure().subplots()
    colours = [_AFTER if length > 0 else _BEFORE for length in lengths]
    ax.barh(range(len(names)), lengths, color=colours)
    labels = [name if math.isfinite(known[name]) else f"{name} (impossible)" for name in names]
    ax.set_yticks(range(len(names)), [_short(label, 40) for label in labels])
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_xlabel("surprise, −log p(cell | other cells)")
    return ax


def plot_training(history: Any, ax: Any = None) -> Any:
    """The log-likelihoods of a training run over its epochs; see :meth:`einet.History.plot`."""
    return history.plot(_new_figure().subplots() if ax is None else ax)


def _new_figure() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise missing_package("matplotlib", "plots of tables", "plots") from error
    return plt.figure(layout="constrained")


def _grid(figure: Any, rows: int, columns: int, size: float) -> np.ndarray:
    figure = _new_figure() if figure is None else figure
    figure.set_size_inches(max(4.0, size * columns), max(3.0, size * rows))
    return figure.subplots(rows, columns, squeeze=False)


def _chosen(columns: Sequence[str] | None, known: Sequence[str], most: int) -> list[str]:
    if columns is None:
        return list(known[:most])
    for name in columns:
        if name not in known:
            raise ValueError(f"columns must be some that there are, got {name!r}")
    if not columns:
        raise ValueError("columns must name one column at least, got none")
    return list(columns)


def _short(text: str, most: int = 14) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


# -- Pairs --------------------------------------------------------------------------------------


def _fewer(frame: Any, generator: np.random.Generator) -> Any:
    if len(frame) <= _MOST_POINTS:
        return frame
    return frame.iloc[np.sort(generator.choice(len(frame), _MOST_POINTS, replace=False))]


def _scale(*cells: Any) -> list[str] | None:
    """The categories of a column, most frequent first; None if it has numbers."""
    if all(part.dtype.kind in "iufMm" for part in cells):
        return None
    counts: dict[str, int] = {}
    for part in cells:
        for value, count in part.value_counts().items():
            counts[str(value)] = counts.get(str(value), 0) + int(count)
    kept = sorted(counts, key=lambda value: (-counts[value], value))
    return kept[:_MOST_BARS]


def _placed(cells: Any, scale: list[str] | None, generator: np.random.Generator) -> np.ndarray:
    """Where cells lie on an axis; NaN where missing, or of a category that is not shown."""
    if scale is None:
        return _numbers(cells)
    place = {value: number for number, value in enumerate(scale)}
    numbers = np.array([place.get(str(cell), math.nan) for cell in cells], dtype=np.float64)
    return numbers + generator.uniform(-0.3, 0.3, len(numbers))


def _numbers(cells: Any) -> np.ndarray:
    if cells.dtype.kind in "Mm":
        # Dates keep their meaning on matplotlib's axes.
        return cells.to_numpy()
    return cells.to_numpy(dtype=np.float64, na_value=math.nan)


def _histograms(
    ax: Any, columns: Mapping[str, Any], scale: list[str] | None, colours: Mapping[str, str]
) -> None:
    known = {key: cells.dropna() for key, cells in columns.items()}
    if scale is None:
        numbers = {key: _numbers(cells) for key, cells in known.items() if len(cells)}
        if not numbers:
            return
        together = np.concatenate(list(numbers.values()))
        edges = np.linspace(together.min().astype(float), together.max().astype(float), _BINS + 1)
        edges = edges.astype(together.dtype) if together.dtype.kind in "Mm" else edges
        for key, cells in numbers.items():
            shares = np.full(len(cells), 1 / len(cells))
            ax.hist(cells, edges, weights=shares, color=colours[key], alpha=0.6, label=key)
        return
    width = 0.8 / len(known)
    for number, (key, cells) in enumerate(known.items()):
        counts = cells.astype(str).value_counts()
        shares = [counts.get(value, 0) / max(1, len(cells)) for value in scale]
        places = np.arange(len(scale)) + width * (number - 0.5)
        ax.bar(places, shares, width, color=colours[key], alpha=0.8, label=key)


def _label(axis: Any, scale: list[str] | None) -> None:
    if scale is not None:
        axis.set_ticks(range(len(scale)), [_short(value, 8) for value in scale])


# -- Marginals ----------------------------------------------------------------------------------


def _parts(known: Conditional) -> tuple[list[Pieces], np.ndarray | None]:
    """What to draw a bar for: values, or bins and their edges."""
    column = known.column
    if not column.has_numbers:
        return [(Values([value]),) for value in column.values[:_MOST_BARS]], None
    values: list[Any] = list(column.values)
    if values and len(values) <= _MOST_BARS:
        return [(Interval.at(value),) for value in values], None
    lower, upper = (quantile(known, share) for share in (0.005, 0.995))
    if column.step is None:
        edges = np.linspace(lower, upper if upper > lower else lower + 1, _BINS + 1)
    else:
        # As many numbers in each bin, none on an edge.
        width = max(1, math.ceil((upper - lower) / column.step / _BINS))
        edges = np.arange(lower - column.step / 2, upper + width * column.step, width * column.step)
    bins: list[Pieces] = [
        (Interval(float(start), float(end), closed_upper=False),)
        for start, end in itertools.pairwise(edges)
    ]
    return bins, edges
