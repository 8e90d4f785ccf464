"""How long one waits in the studio: for a first model, for panels, for pictures, for the page.

Every part is measured as a user has it: `einet studio` in a process of its own, asked over HTTP,
and through the page in a real browser (Debian's chromium, by playwright, headless).

- **csv to first model**: from the moment a csv file is sent until the model's columns are answered;
  training in the studio's own process, with its start, included.
- **evidence to redrawn**: adult's 15 columns, 40 bins each; the server's part alone (as it reports,
  and with HTTP), and from the click in the page until the last panel is drawn, by the page's marks.
- **inpainting** of 28×28 images, half covered, 8 draws: over HTTP.
- **page**: the bytes that the browser loads at first, and the time to its first contentful paint.

    python benchmarks/studio.py               # -> results/studio.json, some 2 minutes
    python benchmarks/studio.py --quick       # fewer repetitions, printed only
    python benchmarks/studio.py --tasks evidence page
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import store

RESULTS = Path(__file__).parent / "results" / "studio.json"
SOURCE = Path(__file__).parents[1] / "src"
TASKS = ("model", "evidence", "page", "inpainting")

#: Seconds and milliseconds that are to be kept to, and bytes.
GOALS = {
    "csv to first model, titanic": 10.0,
    "csv to first model, adult": 30.0,
    "evidence to redrawn": (100.0, 200.0),
    "inpainting": 300.0,
    "page weight": 500_000,
    "first paint": 1000.0,
}


class Studio:
    """``einet studio`` in a process of its own.

    Args:
        arguments: What it opens.
    """

    def __init__(self, *arguments: str) -> None:
        code = "from einet.cli import main; main()"
        command = [sys.executable, "-c", code, "studio", "--no-open", "--port", "0", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"(http://\S+)\?token=(\S+)", line)
        if found is None:
            raise RuntimeError(f"the studio did not start: {line!r}")
        self.base, self.token = found[1], found[2]
        self.url = found[0]
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        self._wait()

    def ask(self, path: str, body: Any = None) -> Any:
        """One question; a body of bytes is a file, any other JSON."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data=content)
        request.add_header("X-Einet-Token", self.token)
        with self._open(request) as response:
            return json.loads(response.read())

    def _wait(self) -> None:
        for _ in range(3000):
            with contextlib.suppress(OSError):
                self.ask("api/state")
                return
            time.sleep(0.01)
        raise RuntimeError("the studio does not answer")

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)


@contextlib.contextmanager
def studio(*arguments: str) -> Iterator[Studio]:
    """A studio for as long as the block takes."""
    started = Studio(*arguments)
    try:
        yield started
    finally:
        started.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the studio.")
    folder = os.environ.get("EINET_DATA") or Path(__file__).resolve().parents[2] / "shared/data"
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--data", type=Path, default=Path(folder), help="has tabular/ and mnist/")
    parser.add_argument("--repeat", type=int, default=60, help="questions of a kind")
    parser.add_argument("--models", type=Path, help="keeps learnt models, and has those there are")
    parser.add_argument("--quick", action="store_true", help="a short look; nothing is kept")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.quick:
        args.repeat = min(args.repeat, 8)
    with tempfile.TemporaryDirectory() as folder:
        args.folder = args.models or Path(folder)
        tasks = {"model": models, "evidence": evidence, "page": page, "inpainting": inpainting}
        rows = []
        for task in args.tasks:
            for row in tasks[task](args):
                print(json.dumps(row), flush=True)
                rows.append(row)
    if not args.quick:
        others = [r for r in store.load(args.output) if r["task"] not in {n["task"] for n in rows}]
        machine = store.describe("cpu", {})
        machine["command"] = " ".join(("python benchmarks/studio.py", *sys.argv[1:]))
        store.write(args.output, [*others, *rows], machine, append=True)


# -- a first model -------------------------------------------------------------------------------


def models(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """From a csv file to a model that can be asked."""
    for table in ("titanic", "adult"):
        with studio() as asked:
            yield _learnt(asked, args, table)


def _table(args: argparse.Namespace, table: str) -> Path:
    name = "adult.train" if table == "adult" else table
    return args.data / "tabular" / f"{name}.csv.gz"


def _learnt(asked: Studio, args: argparse.Namespace, table: str) -> dict[str, Any]:
    content = _table(args, table).read_bytes()
    began = time.perf_counter()
    schema = asked.ask(f"api/data?name={table}.csv.gz", content)
    read = time.perf_counter() - began
    asked.ask("api/training", {})
    while (told := asked.ask("api/training"))["state"] == "running":
        time.sleep(0.02)
    if told["state"] != "done":
        raise RuntimeError(f"no model of {table}: {told['message']}")
    asked.ask("api/columns")
    seconds = time.perf_counter() - began
    request = urllib.request.Request(asked.base + "api/model/file")
    request.add_header("X-Einet-Token", asked.token)
    with asked._open(request) as response:
        (args.folder / f"{table}.einet").write_bytes(response.read())
    return {
        "task": f"csv to first model, {table}",
        "rows": schema["rows"],
        "columns": len(schema["columns"]),
        "epochs": told["epoch"],
        "reading_seconds": round(read, 3),
        "seconds": round(seconds, 3),
        "goal_seconds": GOALS[f"csv to first model, {table}"],
    }


def _adult(args: argparse.Namespace) -> tuple[str, ...]:
    """What opens adult with a model, which is learnt where none is there yet."""
    file = args.folder / "adult.einet"
    if not file.exists():
        with studio() as asked:
            _learnt(asked, args, "adult")
    return str(_table(args, "adult")), "--model", str(file)


# -- evidence ------------------------------------------------------------------------------------


def evidence(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """From evidence to all panels, the server's part."""
    with studio(*_adult(args)) as asked:
        columns = asked.ask("api/columns")["columns"]
        asked.ask("api/marginals", {"evidence": []})
        for name, maker in (("states and intervals", _some), ("negated", _negated)):
            server, all_in_all = [], []
            for number in range(args.repeat):
                began = time.perf_counter()
                told = asked.ask("api/marginals", {"evidence": maker(columns, number)})
                all_in_all.append(1000 * (time.perf_counter() - began))
                server.append(told["milliseconds"])
            yield {
                "task": f"evidence to answer, {name}",
                "columns": len(told["columns"]),
                "bins": max(len(c["edges"] or [0]) - 1 for c in columns),
                "questions": args.repeat,
                **_spread("server", server),
                **_spread("http", all_in_all),
            }


def _some(columns: list[Any], number: int) -> list[Any]:
    """Two pieces of evidence: a value of one column, and a part of another."""
    states = [c for c in columns if c["values"] and len(c["values"]) > 1]
    numbers = [c for c in columns if c.get("edges")]
    one, other = states[number % len(states)], numbers[number % len(numbers)]
    edges = other["edges"]
    first = number % (len(edges) // 2)
    # The likeliest values, so that both can be together.
    prior = one["prior"]["values"]
    value = one["values"][max(range(len(prior)), key=prior.__getitem__)]
    return [
        {"column": one["name"], "op": "is", "value": value},
        {"column": other["name"], "op": "between", "lower": edges[first // 4], "upper": None},
    ]


def _negated(columns: list[Any], number: int) -> list[Any]:
    """The same, negated: several alternatives."""
    one, other = _some(columns, number)
    numbers = [c for c in columns if c.get("edges")]
    edges = numbers[number % len(numbers)]["edges"]
    other |= {"lower": edges[len(edges) // 4], "upper": edges[len(edges) // 2], "negated": True}
    return [one, other]


def _spread(name: str, milliseconds: list[float]) -> dict[str, float]:
    ordered = sorted(milliseconds)
    return {
        f"{name}_median_ms": round(statistics.median(ordered), 2),
        f"{name}_95th_ms": round(ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))], 2),
    }


# -- the page ------------------------------------------------------------------------------------

# Times between marks of the same number, once all that were begun are drawn.
_PAIRS = """() => {
    const at = (name) => new Map(performance.getEntriesByName(name)
        .map((mark) => [mark.detail.count, mark.startTime]));
    const ends = at("evidence-drawn");
    return [...at("evidence-start")].filter(([count]) => ends.has(count))
        .map(([count, start]) => ends.get(count) - start);
}"""
_SETTLED = """() => {
    const last = (name) => Math.max(0, ...performance.getEntriesByName(name)
        .map((mark) => mark.detail.count));
    return last("evidence-start") > 0
        && last("evidence-start") === Math.max(last("evidence-drawn"), last("evidence-refused"));
}"""
_LOADED = """() => performance.getEntriesByType("resource")
    .filter((entry) => !entry.name.includes("/api/"))
    .concat(performance.getEntriesByType("navigation"))
    .map((entry) => entry.encodedBodySize)"""
_PAINT = '() => performance.getEntriesByName("first-contentful-paint")[0].startTime'


def page(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The page in a browser: its weight, its first paint, and evidence until all is drawn."""
    from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise SystemExit("page: there is no chromium on the path")
    with studio(*_adult(args)) as asked, sync_playwright() as driver:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = driver.chromium.launch(executable_path=path, args=options)
        paints, weights = [], []
        for _ in range(3 if args.quick else 7):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            shown = context.new_page()
            shown.goto(asked.url)
            shown.wait_for_selector(".panel")
            paints.append(shown.evaluate(_PAINT))
            weights.append(sum(shown.evaluate(_LOADED)))
            context.close()
        folder = SOURCE / "einet/studio/page"
        whole = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        yield {"task": "page weight", "bytes": max(weights), "all_files_bytes": whole,
               "goal_bytes": GOALS["page weight"]}  # fmt: skip
        yield {"task": "first paint", **_spread("paint", paints), "starts": len(paints),
               "goal_ms": GOALS["first paint"]}  # fmt: skip
        yield _redrawn(browser, asked, args)
        browser.close()


def _redrawn(browser: Any, asked: Studio, args: argparse.Namespace) -> dict[str, Any]:
    """Evidence clicked in the page, until the last panel is drawn."""
    shown = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    shown.goto(asked.url)
    shown.wait_for_selector(".panel")
    panels = shown.locator(".panel").count()
    # A value of one column after the other, each in place of the one that was picked before.
    names = [c["name"] for c in asked.ask("api/columns")["columns"] if c["kind"] == "states"]
    for number in range(args.repeat):
        states = shown.locator(f'.panel[data-column="{names[number % len(names)]}"] .state')
        before = len(shown.evaluate(_PAIRS))
        bar = states.nth(number // len(names) % states.count())
        bar.scroll_into_view_if_needed()
        bar.focus()
        shown.keyboard.press("Enter")
        with contextlib.suppress(Exception):
            shown.wait_for_function(f"() => ({_PAIRS})().length > {before}", timeout=3000)
        shown.wait_for_function(_SETTLED)
    times = shown.evaluate(_PAIRS)
    median, most = GOALS["evidence to redrawn"]
    return {
        "task": "evidence to redrawn",
        "columns": panels,
        "questions": len(times),
        **_spread("redrawn", times),
        "goal_median_ms": median,
        "goal_95th_ms": most,
    }


# -- inpainting ----------------------------------------------------------------------------------


def inpainting(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Covered halves of MNIST's test images, with a mixture of ten Einets."""
    from einet.studio.images import as_url

    file = args.folder / "mnist.einet"
    code = "from einet.cli import main; main()"
    command = [sys.executable, "-c", code, "images", "train", str(args.data / "mnist"),
               "--output", str(file), "--limit", "1000", "--clusters", "10", "--num-sums", "10",
               "--epochs", "2", "--device", "cpu"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    if not file.exists():
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    import numpy as np

    masks = []
    for half in range(4):
        mask = np.zeros((28, 28, 1), dtype=np.uint8)
        mask[(slice(14), slice(14, 28), slice(28), slice(28))[half],
             (slice(28), slice(28), slice(14), slice(14, 28))[half]] = 255  # fmt: skip
        masks.append(as_url(mask))
    with studio(str(file), "--test-images", str(args.data / "mnist")) as asked:
        server, all_in_all = [], []
        for number in range(args.repeat + 1):
            image = asked.ask(f"api/images/test?index={number}")["image"]
            began = time.perf_counter()
            question = {"image": image, "covered": masks[number % 4], "draws": 8, "seed": number}
            told = asked.ask("api/images/inpaint", question)
            all_in_all.append(1000 * (time.perf_counter() - began))
            server.append(told["milliseconds"])
        # The first one finds nothing ready.
        yield {
            "task": "inpainting",
            "size": "28x28",
            "draws": 8,
            "questions": args.repeat,
            "first_ms": round(all_in_all[0], 2),
            **_spread("server", server[1:]),
            **_spread("http", all_in_all[1:]),
            "goal_ms": GOALS["inpainting"],
        }


if __name__ == "__main__":
    main()
