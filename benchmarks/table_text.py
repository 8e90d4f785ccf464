"""What docs/tables.md says of measured results, from `results/tables.json`.

Every number is a mean over the seeds that were measured; rows that come later change the page by
`python benchmarks/pages.py` alone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from comparison_tables import markdown
from table_tasks.recipe import is_present

__all__ = ["QUOTED", "TOPICS", "Standing", "Topic", "ahead_of_published", "results", "standing"]

Row = dict[str, Any]


class Topic(NamedTuple):
    """One task of the benchmark as the page tells of it.

    Attributes:
        title: What is measured, and how.
        task: Its name in the results.
        metrics: The metrics that are shown, with their names on the page.
        methods: Who is compared, with their names on the page; ours first.
        better: Whether ``"more"`` or ``"less"`` is better; None where nobody is compared.
        within: The share of a number by which one may be behind and count as level.
    """

    title: str
    task: str
    metrics: dict[str, str]
    methods: dict[str, str]
    better: str | None = None
    within: float = 0.0


class Standing(NamedTuple):
    """How often ours was compared, how often nobody was better, and where it is behind."""

    compared: int
    ahead: int
    behind: list[str]


_PREDICTION = {
    "einet": "`EinetClassifier`",
    "boosting": "gradient boosting",
    "logistic": "logistic",
}
_IMPUTATION = {
    "einet": "`impute`",
    "iterative": "`IterativeImputer`",
    "knn": "k-NN",
    "miceforest": "miceforest",
}
_ASKED = ("query", "predict_proba", "impute", "log_prob")
TOPICS = (
    Topic(
        "**Latency**, milliseconds of a question about one row on a CPU, median",
        "latency",
        {f"{name} ms, median": f"`{name}`" for name in _ASKED},
        {"einet": "einet", "boosting": "gradient boosting"},
        "less",
    ),
    Topic(
        "**Prediction**, log loss of classes with so many of the features missing in test rows",
        "prediction",
        {f"log loss, {share}% missing": f"{share} % missing" for share in (0, 30, 60)},
        _PREDICTION,
        "less",
        0.05,
    ),
    Topic(
        "**Imputation**, normalised error of numbers where 30 % of the cells are missing",
        "imputation",
        {f"error, {how}": how for how in ("at random", "given others", "blocks")},
        _IMPUTATION,
        "less",
        0.02,
    ),
    Topic(
        "**Imputation**, accuracy of categories",
        "imputation",
        {f"accuracy, {how}": how for how in ("at random", "given others", "blocks")},
        _IMPUTATION,
        "more",
    ),
    Topic(
        "**Imputation**, share of the true numbers within intervals of 90 %, and the model's own "
        "share of them: few numbers have no interval of exactly 90 %",
        "imputation",
        {
            f"{what} of 90 %, {how}": how if what == "coverage" else f"{how}, own share"
            for how in ("at random", "given others", "blocks")
            for what in ("coverage", "own share")
        },
        {"einet": "einet"},
    ),
    Topic(
        "**Density**, mean log-likelihood of test rows in nats, all columns",
        "density",
        {"log-likelihood, all columns": "all columns"},
        {"einet": "`TableModel`", "independent": "independent", "tree": "one Chow–Liu tree"},
        "more",
    ),
    Topic(
        "**Density** of continuous columns alone",
        "density",
        {"log-likelihood, quantities": "quantities"},
        {"einet": "`TableModel`", "mixture": "`GaussianMixture`"},
        "more",
    ),
    Topic(
        "**Outliers**, area under the ROC curve",
        "outliers",
        {"ROC AUC": "ROC AUC"},
        {
            "einet": "`EinetOutlierDetector`", "isolation forest": "isolation forest",
            "local outlier factor": "local outlier factor",
        },
        "more",
    ),
    Topic(
        "**Synthetic data**, 1 is best; *shuffled* has the right columns and nothing between them",
        "synthetic",
        {"C2ST with XGBoost": "C2ST with XGBoost", "Trend": "Trend", "Shape": "Shape"},
        {"einet on a GPU": "`sample`, H200", "shuffled columns": "shuffled"},
    ),
    Topic(
        "**Synthetic data**, seconds",
        "synthetic",
        {"learning s": "learning", "sampling s": "sampling as many rows"},
        {"einet on a GPU": "einet, H200"},
    ),
)  # fmt: skip

#: C2ST and Trend of TabPC and of TabDiff as their papers report them, measured elsewhere.
QUOTED = {
    "adult": (0.855, 0.841, 0.986, 0.985),
    "default": (0.262, 0.591, 0.950, 0.973),
    "shoppers": (0.894, 0.736, 0.982, 0.981),
    "magic": (0.860, 0.773, 0.983, 0.992),
    "beijing": (0.570, 0.772, 0.978, 0.974),
}


def results(rows: Sequence[Row]) -> str:
    """All topics that were measured: a table each, and a sentence that says who is behind."""
    parts = [part for topic in TOPICS for part in _of_topic(topic, rows)]
    return "\n\n".join(parts)


def _of_topic(topic: Topic, rows: Sequence[Row]) -> list[str]:
    some = [row for row in rows if row["task"] == topic.task and row["metric"] in topic.metrics]
    if not some:
        return []
    methods = [name for name in topic.methods if any(row["method"] == name for row in some)]
    lines, seeds, earlier = [], set(), False
    for table, metric, of in _compared(topic, some):
        if not all(map(is_present, of)):
            table, earlier = f"{table} \\*", True
        seeds |= {sum(row["method"] == method for row in of) for method in methods} - {0}
        found = [_mean(of, method) for method in methods]
        cells = [_cell(found, place, topic) for place in range(len(found))]
        lines.append([table, *([metric] if len(topic.metrics) > 1 else []), *cells])
    head = ["table", *([""] if len(topic.metrics) > 1 else [])]
    head += [topic.methods[name] for name in methods]
    title = f"{topic.title} ({_counted(sorted(seeds))}):"
    parts = [title, markdown(head, lines)]
    if earlier:
        parts.append("\\* Measured with an earlier recipe of learning.")
    if topic.better is not None and len(methods) > 1:
        parts.append(_wrapped(_told(topic, standing(topic, some))))
    if topic.task == "synthetic" and "Trend" in topic.metrics:
        parts.append(_wrapped(_quoted(some)))
    return parts


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 110, break_on_hyphens=False)


def _compared(topic: Topic, rows: Sequence[Row]) -> Iterator[tuple[str, str, list[Row]]]:
    """The rows of each table and metric, with the metric's name on the page."""
    for table in dict.fromkeys(row["table"] for row in rows):
        for metric, shown in topic.metrics.items():
            of = [row for row in rows if row["table"] == table and row["metric"] == metric]
            # Means over the same splits: some tables are harder in one than in another.
            seeds = {m: {row["seed"] for row in of if row["method"] == m} for m in topic.methods}
            ours = seeds[next(iter(topic.methods))]
            # Who was measured on none of our splits is left out.
            common = ours.intersection(*(some for some in seeds.values() if some & ours))
            of = [row for row in of if row["seed"] in common]
            if of:
                yield table, shown, of


def _mean(rows: Sequence[Row], method: str) -> float | None:
    values = [row["value"] for row in rows if row["method"] == method]
    return sum(values) / len(values) if values else None


def _cell(found: Sequence[float | None], place: int, topic: Topic) -> str:
    """A number, in bold where it is the best of its line."""
    value = found[place]
    if value is None:
        return "–"
    known = [other for other in found if other is not None]
    text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if topic.better is None or len(known) < 2:
        return text
    best = max(known) if topic.better == "more" else min(known)
    return f"**{text}**" if value == best else text


def standing(topic: Topic, rows: Sequence[Row]) -> Standing:
    """Where the first of a topic's methods is ahead of all others, level with them, or behind."""
    some = [row for row in rows if row["task"] == topic.task and row["metric"] in topic.metrics]
    ours, *others = (name for name in topic.methods if any(row["method"] == name for row in some))
    sign = 1.0 if topic.better == "more" else -1.0
    compared, ahead, behind = 0, 0, []
    for table, shown, of in _compared(topic, some):
        mine = _mean(of, ours)
        theirs = [value for value in (_mean(of, name) for name in others) if value is not None]
        if mine is None or not theirs:
            continue
        compared += 1
        best = sign * max(sign * value for value in theirs)
        gap = sign * (mine - best)
        ahead += gap >= 0
        if gap < -topic.within * abs(best):
            behind.append(table if len(topic.metrics) == 1 else f"{table} ({shown})")
    return Standing(compared, ahead, behind)


def ahead_of_published(rows: Sequence[Row], metric: str) -> Standing:
    """The same for synthetic rows and what TabPC and TabDiff published; ``C2ST`` or ``Trend``."""
    name, places = {"C2ST": ("C2ST with XGBoost", (0, 1)), "Trend": ("Trend", (2, 3))}[metric]
    synthetic = [row for row in rows if row["task"] == "synthetic" and row["metric"] == name]
    ahead, behind, compared = 0, [], 0
    for table, figures in QUOTED.items():
        of = [row for row in synthetic if row["table"] == table]
        mine = _mean(of, "einet on a GPU")
        if mine is not None:
            compared += 1
            leads = mine >= max(figures[place] for place in places)
            ahead += leads
            behind += [] if leads else [table]
    return Standing(compared, ahead, behind)


def _told(topic: Topic, found: Standing) -> str:
    text = f"einet is the best in {found.ahead} of {found.compared} comparisons."
    if found.behind:
        beyond = f" by more than {topic.within:.0%}" if topic.within else ""
        return f"{text} It is behind{beyond} on {_joined(found.behind)}."
    if found.ahead < found.compared:
        return f"{text} In the others it is behind by less than {topic.within:.0%}."
    return text


def _quoted(rows: Sequence[Row]) -> str:
    """What was published of the same protocol, beside the tables that were measured."""
    told = []
    for table in dict.fromkeys(row["table"] for row in rows):
        if table in QUOTED:
            figures = QUOTED[table]
            told.append(
                f"{table} C2ST {figures[0]:.3f} and {figures[1]:.3f}, Trend {figures[2]:.3f} and "
                f"{figures[3]:.3f}"
            )
    return (
        "Quoted from the papers of TabPC and TabDiff, measured elsewhere on a GPU: "
        f"{'; '.join(told)}."
    )


def _counted(counts: Sequence[int]) -> str:
    if len(counts) == 1:
        return "one seed" if counts[0] == 1 else f"means over {counts[0]} seeds"
    return f"means over {counts[0]} to {counts[-1]} seeds"


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
