"""The README's two tables, of speed and of quality, from the stored results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comparison_tables import markdown
from table_text import TOPICS, Standing, Topic, ahead_of_published, standing

__all__ = ["PUBLISHED_BITS", "in_seconds", "quality"]

Row = dict[str, Any]

#: Bits per dimension of the paper's EiNet and of the best published circuit, and what was reported
#: but could not be verified, as docs/images.md quotes them.
PUBLISHED_BITS = {"mnist": (1.67, 1.14, 1.11), "fashion_mnist": (4.29, 3.27, 3.16)}

_NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}


def quality(
    rows: Sequence[Row],
    images: dict[str, dict[str, dict[str, Any]]],
    above: tuple[int, int, int, int],
) -> str:
    """One line for each question, the ones that are lost among them.

    Args:
        rows: The results of tables.
        images: The results of image models, by data set and by the name of the model.
        above: Of how many binary data sets, on how many learnt trees are at or above the paper's
            EiNet, on how many at or above the best published result, and on how many at or above
            the best of those that were verified.
    """
    sets, over_paper, over_best, over_verified = above
    lines = [
        (
            f"[log-likelihood, {sets} binary data sets](docs/table1.md)",
            "the paper's EiNet; best published",
            f"at or above on {over_paper}; on {over_best} ({over_verified} of verified ones)",
        )
    ]
    for name, (paper, best, reported) in PUBLISHED_BITS.items():
        # Chosen by validation images, as a user would; the paper's recipe holds none back.
        validated = [model for model in images[name].values() if "valid_ll" in model]
        bits = max(validated, key=lambda model: model["valid_ll"])["bits_per_dim"]
        lines.append(
            (
                f"[bits per dimension, {_NAMES[name]}](docs/images.md)",
                f"EiNet {paper:.2f}; circuits {best:.2f} (unverified: {reported:.2f})",
                f"{bits:.3f}",
            )
        )
    page = "docs/tables.md#how-good-and-how-fast"
    for label, beside, topic in _topics():
        lines.append((f"[{label}]({page})", beside, _won(standing(topic, rows))))
    for metric, label in (("C2ST", "told from real rows"), ("Trend", "pairs of columns")):
        found = ahead_of_published(rows, metric)
        what = f"[synthetic rows: {label} ({metric})]({page})"
        lines.append((what, "TabPC and TabDiff, as published", _won(found)))
    return markdown(("measured", "beside", "einet"), lines)


def in_seconds(rows: Sequence[Row]) -> str:
    """How long a model of a table takes to learn and to ask."""
    synthetic = [row for row in rows if row["task"] == "synthetic"]
    learning, sampling = (
        [
            row["value"]
            for row in synthetic
            if row["metric"] == metric and row["method"] == "einet on a GPU"
        ]
        for metric in ("learning s", "sampling s")
    )
    asked = {
        row["metric"]: row["value"]
        for row in rows
        if row["task"] == "latency" and row["method"] == "einet"
    }
    *first, last = sorted({row["table"] for row in synthetic})
    return (
        f"Models of the tables {', '.join(first)} and {last} took {min(learning):.1f} to "
        f"{max(learning):.1f} s to learn there, and as many new rows {min(sampling):.2f} to "
        f"{max(sampling):.2f} s to draw. A question about one row of adult takes "
        f"{asked['query ms, median']:.1f} ms on a CPU."
    )


def _topics() -> list[tuple[str, str, Topic]]:
    """The topics of docs/tables.md that have others to compare with, as the README tells them."""
    by_title = {topic.title.replace("*", ""): topic for topic in TOPICS}

    def of(beginning: str) -> Topic:
        (found,) = (topic for title, topic in by_title.items() if title.startswith(beginning))
        return found

    prediction, imputers = of("Prediction"), "`IterativeImputer`, k-NN, miceforest"
    holes = {name: shown for name, shown in prediction.metrics.items() if not shown.startswith("0")}
    return [
        (
            "log loss, 30 and 60 % of the features missing",
            "gradient boosting, logistic regression",
            prediction._replace(metrics=holes),
        ),
        ("imputed numbers", imputers, of("Imputation, normalised error")),
        ("imputed categories", imputers, of("Imputation, accuracy")),
        ("density of mixed columns", "one Chow–Liu tree", of("Density, mean log-likelihood")),
        ("density of continuous columns", "`GaussianMixture`", of("Density of continuous")),
        ("outliers", "isolation forest, local outlier factor", of("Outliers")),
    ]


def _won(found: Standing) -> str:
    return f"best in {found.ahead} of {found.compared}"
