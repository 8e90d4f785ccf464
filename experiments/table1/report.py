"""The table in Markdown.

    python -m experiments.table1.report

writes `results.md` beside `results.json` anew, and the table in `docs/table1.md`. The README has
its line on these results from `python benchmarks/pages.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from experiments.markdown import table as markdown_table
from experiments.table1.published import PUBLISHED, SOURCES, Result
from experiments.table1.settings import Settings
from experiments.table1.significance import p_better
from experiments.table1.store import read_json, write_text

__all__ = ["Standing", "legend", "main", "markdown", "pages", "refreshed", "standing", "summary"]

Results = dict[str, dict[str, Any]]
_TITLES = {
    "einsum": "one Einsum Network",
    "rat": "random trees",
    "learned": "learnt trees",
}


def markdown(results: Results) -> str:
    """All that ``results.json`` says, to read."""
    parts = [
        "# Table 1: mean test log-likelihood on 20 binary data sets (nats)",
        summary(results),
        "Ours: mean over seeds ± standard error of that mean over seeds; in brackets, over test "
        "rows. Settings were chosen on validation rows; test rows were read once for each final "
        "model. p is the paper's one-sided t-test over test rows (two samples, the published model "
        "taken to spread like ours) of ours being better than the paper's EiNet; below 0.05 it is "
        "significantly better, above 0.95 significantly worse. ✓: at least as good as the paper's "
        "EiNet (one Einsum Network, random trees), as the best published result at the decimals "
        "that were published (learnt trees).",
        table(results),
        legend(results),
        "## Chosen settings",
        "D depth, R replicas, T trees, K sums, h probability of hiding a cell, α and β "
        "pseudo-counts of the prior on sums and leaves, λ step size, B batch size, E epochs + "
        "those of full-batch EM, M members with equal weights; seconds of the search and the "
        "final models.",
        markdown_table(_SETTING_COLUMNS, _setting_rows(results)),
    ]
    return "\n\n".join(parts) + "\n"


def table(results: Results) -> str:
    """Every data set: others' results and ours."""
    shown = [kind for kind in _TITLES if any(kind in kinds for kinds in results.values())]
    columns = [*_PAPER_COLUMNS, *(title for kind in shown for title in _KIND_COLUMNS[kind])]
    return markdown_table(columns, [_row(name, kinds, shown) for name, kinds in results.items()])


def legend(results: Results) -> str:
    """The sources of the best published results, and how far to trust them."""
    shown = {name: _shown_results(name) for name in results}
    used = {result.source for pair in shown.values() for result in pair}
    lines = [
        f"- {source.mark}{'' if source.verified else '†'} {source.title}."
        for key, source in SOURCES.items()
        if key in used
    ]
    if any(not SOURCES[key].verified for key in used):
        lines.append(
            "- † Not verified: quoted without a copy of the source at hand. The best that was "
            "verified is in brackets."
        )
    lines += [
        f"- ‡ Doubtful: {name}, since {result.doubt}."
        for name, pair in shown.items()
        for result in pair
        if result.doubt
    ]
    return "\n".join(["Sources of the best published results:", "", *lines]) if lines else ""


def refreshed(page: str, text: str, place: str = "results") -> str:
    """A page of the documentation with a text on some results in its place."""
    before, begin, rest = page.partition(f"<!-- {place} -->\n")
    _, end, after = rest.partition(f"<!-- /{place} -->")
    if not end:
        raise ValueError(f"the page has no place for {place}: <!-- {place} --> … <!-- /{place} -->")
    return f"{before}{begin}{text}\n{end}{after}"


def pages(results: Results) -> dict[str, str]:
    """The pages that tell of these results, and what they tell."""
    return {"docs/table1.md": f"{summary(results)}\n\n{table(results)}\n\n{legend(results)}"}


class Standing(NamedTuple):
    """On how many data sets the results of one kind of structure reach others'.

    Attributes:
        what: What an entry is: a single model or a mixture, and of which sums.
        entries: The data sets that are finished.
        above: At or above the paper's EiNet.
        significant: Significantly above it.
        best: At or above the best published result, at the decimals that were published.
        near: At most 1 % below the best published result.
        best_verified: At or above the best of those published results that were verified.
    """

    what: str
    entries: int
    above: int
    significant: int
    best: int
    near: int
    best_verified: int


def standing(results: Results, kind: str) -> Standing:
    """How the results with random (``"rat"``) or learnt (``"learned"``) trees compare."""
    entries = {name: kinds[kind] for name, kinds in results.items() if kind in kinds}
    reached = {name: entry["test_ll"] for name, entry in entries.items()}
    return Standing(
        what=_entry(entries.values()),
        entries=len(entries),
        above=sum(value >= PUBLISHED[name].einet for name, value in reached.items()),
        significant=sum(_p(name, entry) < 0.05 for name, entry in entries.items()),
        best=sum(PUBLISHED[name].best_result.reached_by(value) for name, value in reached.items()),
        near=sum(value >= 1.01 * PUBLISHED[name].best for name, value in reached.items()),
        best_verified=sum(
            PUBLISHED[name].best_verified.reached_by(value) for name, value in reached.items()
        ),
    )


def summary(results: Results) -> str:
    """One sentence for each kind of structure, and what its entries are."""
    sentences = []
    for kind, title in _TITLES.items():
        found = standing(results, kind)
        if not found.entries:
            continue
        sentences.append(
            f"{title[0].upper()}{title[1:]} ({found.what}): at or above the paper's EiNet on "
            f"{found.above} of {found.entries} ({found.significant} significantly), at or above "
            f"the best published result on {found.best} ({found.best_verified} if only verified "
            f"ones count), at most 1 % below it on {found.near}."
        )
    if not sentences:
        return "No data set is finished yet."
    return " ".join([*sentences, _COMPARED_WITH])


_COMPARED_WITH = (
    "The paper's EiNets are single Einsum Networks, whose sums are over outer products. The best "
    "published result is the best of the sources below the table."
)
_SUMS = {"linear": "linear sums, over element-wise products", "einsum": "sums over outer products"}


def _entry(entries: Iterable[dict[str, Any]]) -> str:
    """What was measured: how many models an entry mixes, and of which sums."""
    chosen = [Settings(**entry["settings"]) for entry in entries]
    members = " or ".join(map(str, sorted({settings.members for settings in chosen})))
    sums = " or ".join(sorted({_SUMS[settings.sums] for settings in chosen}))
    if members == "1":
        return f"single models with {sums}"
    return f"each entry an equal mixture of {members} models with {sums}"


_PAPER_COLUMNS = ("data set", "RAT-SPN (paper)", "EiNet (paper)", "best published")
_KIND_COLUMNS = {
    "einsum": ("ours, one Einsum Network", "p", "its seeds mixed"),
    "rat": ("ours, random trees mixed", "p"),
    "learned": ("ours, learnt trees mixed", "p"),
}
_SETTING_COLUMNS = ("data set", "structure", "settings", "valid", "test", "seconds", "device")


def _row(name: str, kinds: dict[str, Any], shown: Iterable[str]) -> list[str]:
    paper = PUBLISHED[name]
    cells = [name, f"{paper.rat_spn:.3f}", f"{paper.einet:.3f}", _published(name)]
    for kind in shown:
        texts = _entry_cells(name, kinds[kind]) if kind in kinds else []
        cells += [*texts, *[""] * len(_KIND_COLUMNS[kind])][: len(_KIND_COLUMNS[kind])]
    return cells


def _shown_results(name: str) -> list[Result]:
    """The best published result and, unless it is verified, the best of the verified ones."""
    paper = PUBLISHED[name]
    best = [paper.best_result]
    return best if paper.verified else [*best, paper.best_verified]


def _published(name: str) -> str:
    """The best published result with its source: ``-12.26 ᵍ† (-12.66 ᵈ)``."""
    first, *verified = map(_marked, _shown_results(name))
    return first + "".join(f" ({text})" for text in verified)


def _marked(result: Result) -> str:
    trust = ("" if result.verified else "†") + ("‡" if result.doubt else "")
    return f"{result.value:.{result.digits}f} {SOURCES[result.source].mark}{trust}"


def _entry_cells(name: str, entry: dict[str, Any]) -> list[str]:
    paper = PUBLISHED[name]
    learnt = entry["settings"]["kind"] == "learned"
    test_ll = entry["test_ll"]
    good = paper.best_result.reached_by(test_ll) if learnt else test_ll >= paper.einet
    reached = " ✓" if good else ""
    spread = f"{entry['test_se']:.3f} ({entry['test_row_se']:.3f})"
    mixed = f"{entry['mixed']['test_ll']:.3f}" if "mixed" in entry else ""
    return [f"{entry['test_ll']:.3f} ± {spread}{reached}", _shown(_p(name, entry)), mixed]


def _setting_rows(results: Results) -> Iterable[list[str]]:
    for name, kinds in results.items():
        for kind, title in _TITLES.items():
            if kind in kinds:
                entry = kinds[kind]
                yield [
                    name,
                    title,
                    str(Settings(**entry["settings"])),
                    f"{entry['valid_ll']:.3f}",
                    f"{entry['test_ll']:.3f}",
                    f"{entry['seconds']:.0f}",
                    entry["device"],
                ]


def _p(name: str, entry: dict[str, Any]) -> float:
    theirs = PUBLISHED[name].einet
    return p_better(entry["test_ll"], theirs, entry["test_row_sd"], entry["test_rows"])


def _shown(p: float) -> str:
    return "<1e-99" if p < 1e-99 else f"{p:.2g}"


def main() -> int:
    here = Path(__file__).resolve().parent
    results = read_json(here / "results.json", {})
    write_text(here / "results.md", markdown(results))
    for name, text in pages(results).items():
        page = here.parents[1] / name
        write_text(page, refreshed(page.read_text(encoding="utf-8"), text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
