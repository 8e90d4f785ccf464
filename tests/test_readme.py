"""What the README and the other documents say holds: code runs, links lead somewhere."""

import json
import pkgutil
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from einet.cli.commands import app
from tests.tables.test_page import passengers

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
FOLDERS = (ROOT, *(ROOT / name for name in ("docs", "benchmarks", "experiments")))
DOCUMENTS = sorted(
    path
    for folder in FOLDERS
    for path in (folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
    if not any(part.startswith((".", "_")) for part in path.relative_to(ROOT).parts)
    and path.name != "CHANGELOG.md"  # which may tell of what is no longer there
)


def code_under(heading: str) -> str:
    """The first block of Python code under a heading of the README."""
    text = README.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    match = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert match is not None
    lines = [line for line in match.group(1).splitlines() if line.strip()]
    assert len(lines) <= 11, "ten lines, and what they import"
    return match.group(1)


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_the_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    passengers(60).to_csv("titanic.csv", index=False)
    names = run(code_under("A table"))
    assert 0 < names["chance"].value < 1
    assert np.asarray(names["boys"]).sum() == pytest.approx(1)
    assert not names["full"].isna().any(axis=None)
    assert (names["new"]["pclass"] == 1).all()
    assert (tmp_path / "titanic.einet").exists()


def test_the_image():
    code = code_under("An image")
    # Fewer images and epochs than the page has, and no bar.
    quick = code.replace("epochs=20", "epochs=2, progress=False").replace(
        "load_digits().data)", "load_digits().data)[1200:]"
    )
    quick = quick.replace("1500", "300")
    assert quick.count("300") == 3
    names = run(quick)
    covered = names["covered"].isnan()
    assert covered[:, 32:].all()
    assert not covered[:, :32].any()
    assert names["likely"].isfinite().all()
    assert names["drawn"].shape == (3, 297, 64)


def test_the_commands_for_tables(tmp_path, monkeypatch):
    """Lines that begin with `einet` are run as they stand."""
    monkeypatch.chdir(tmp_path)
    passengers(60).to_csv("titanic.csv", index=False)
    lines = re.findall(r"^    einet (.+)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["fit", "query"]
    for line in lines:
        result = CliRunner().invoke(app, shlex.split(line))
        assert result.exit_code == 0, result.output


def test_commands_of_make_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        asked = re.findall(r"\bmake ([a-z][a-z-]*)", commands_in(ROOT / name))
        assert asked
        assert set(asked) <= targets, name


def commands_in(page: Path) -> str:
    """Indented lines and `code`, where commands are written; not the words of sentences."""
    text = page.read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^    .+$|`[^`\n]+`", text, re.MULTILINE))


def test_make_help_lists_every_target():
    text = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    described = re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE)
    assert sorted(described) == sorted(phony.split())


def test_it_stays_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_pictures_exist(document: Path):
    for target in re.findall(r"\]\(((?!https?:)[^)]+)\)", document.read_text(encoding="utf-8")):
        name, _, heading = target.partition("#")
        path = (document.parent / name) if name else document
        assert path.exists(), target
        if heading:
            assert heading in headings(path), target


def headings(path: Path) -> set[str]:
    """The names by which links reach the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_names_in_documents_exist(document: Path):
    text = document.read_text(encoding="utf-8")
    for name in re.findall(r"(?<![\w./])einet(?:\.\w+)+", text):
        pkgutil.resolve_name(name)  # raises where there is none
    for path in re.findall(r"(?:src|tests|benchmarks|experiments)/[\w./-]+\.py\b", text):
        assert (ROOT / path).exists(), path


def test_likelihoods_of_images_are_the_measured_ones():
    results = {
        name: json.loads((ROOT / f"experiments/images/results/{name}.json").read_text())
        for name in ("celeba", "svhn")
    }
    said = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
    for model in ("paper", "clusters-60"):
        nats = f"{results['celeba'][model]['test_ll']:,.0f}".replace("-", "−")
        assert re.search(rf"(?<!\d){nats}\b", said), nats
    seconds = results["svhn"]["paper-all-images"]
    assert f"{seconds['train_seconds']:.1f} s and {seconds['kmeans_seconds']:.1f} s of k-means" in (
        said.replace("\n", " ")
    )
