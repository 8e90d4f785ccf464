"""A real browser, a studio that runs as users start it, and small things to open in it."""

import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest
import torch

import einet
from einet.imaging import Pixels

SOURCE = Path(__file__).parents[3] / "src"


@pytest.fixture(scope="session")
def chromium():
    """The browser; tests are skipped where it, or playwright, is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no chromium on the path")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


class Studio:
    """``einet studio`` in a process of its own."""

    def __init__(self, *arguments, port=0):
        command = "import sys; sys.argv[0] = 'einet'; from einet.cli import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", command, "studio", *map(str, arguments), "--no-open",
             "--port", str(port)],
            env={"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin",
                 "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.output, self.lines = self.process.stdout, []
        self.url = self._wait_for_address()
        self.port = urlsplit(self.url).port
        # Its output is read to the end, so that it never waits for a reader.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _wait_for_address(self):
        for line in self.output:
            self.lines.append(line)
            found = re.search(r"http://\S+", line)
            if found:
                return found[0]
        raise RuntimeError("the studio did not start: " + "".join(self.lines))

    def _read(self):
        self.lines.extend(self.output)

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
        self._reader.join(20)
        self.output.close()


@pytest.fixture
def start():
    """Start studios, which end with the test."""
    started = []

    def begin(*arguments, **options):
        started.append(Studio(*arguments, **options))
        return started[-1]

    yield begin
    for studio in started:
        if studio.process.poll() is None:
            studio.stop()


@pytest.fixture
def open_page(chromium):
    """Open pages, and hold that nothing went wrong in them."""
    contexts, wrong = [], []

    def begin(url, expected=(), **options):
        context = chromium.new_context(accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)

        def note(text):
            if not any(re.search(pattern, text) for pattern in expected):
                wrong.append(text)

        page.on("pageerror", lambda error: note(str(error)))
        page.on("console", lambda line: note(line.text) if line.type == "error" else None)
        page.on(
            "dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss())
        )
        page.goto(url)
        return page

    yield begin
    for context in contexts:
        context.close()
    assert not wrong


@pytest.fixture(scope="session")
def frame():
    """Rows of people: states, a number, an integer, dates and holes."""
    rng = np.random.default_rng(0)
    size = 300
    sex = rng.choice(["female", "male"], size, p=[0.4, 0.6])
    height = np.where(sex == "female", 166.0, 179.0) + 6 * rng.standard_normal(size)
    score = np.clip(np.round((height - 120) / 2 + 5 * rng.standard_normal(size)), 0, None)
    place = np.where(rng.random(size) < 0.7, np.where(sex == "female", "Ulm", "Bonn"), "Kiel")
    born = pd.Timestamp("1990-01-01") + pd.to_timedelta(rng.integers(0, 9000, size), "D")
    frame = pd.DataFrame(
        {
            "sex": sex,
            "height": height.round(2),
            "score": score.astype(int),
            "place": place,
            "born": born,
        }
    )
    frame.loc[rng.random(size) < 0.1, "height"] = np.nan
    frame.loc[5, "height"] = np.nan
    return frame


@pytest.fixture(scope="session")
def csv(frame, tmp_path_factory):
    """The same as a file."""
    path = tmp_path_factory.mktemp("table") / "people.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def saved(frame, csv):
    """A model of them, in a file beside it."""
    model = einet.TableModel.fit(pd.read_csv(csv, parse_dates=["born"]), num_sums=4, epochs=4)
    path = csv.with_name("people.einet")
    model.save(path)
    return path


@pytest.fixture(scope="session")
def model(saved):
    """The same model, to ask the library."""
    return einet.TableModel.load(saved)


@pytest.fixture(scope="session")
def people(csv, saved):
    """A studio with the table and its model, for tests that train and open nothing."""
    studio = Studio(csv, "--model", saved)
    yield studio
    studio.stop()


@pytest.fixture(scope="session")
def bare():
    """A studio that was started with nothing, for tests that bring their own files."""
    studio = Studio()
    yield studio
    studio.stop()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A tiny model of images of 6 × 6 pixels, bright at one side or the other, in a file."""
    generator = torch.Generator().manual_seed(0)
    side = torch.rand(200, 1, generator=generator) < 0.5
    left = (torch.arange(36) % 6 < 3).expand(200, 36)
    x = torch.where(left == side, 0.8, 0.2) + 0.05 * torch.randn(200, 36, generator=generator)
    net = einet.Einet(
        einet.random_trees(36, depth=2, replicas=2, seed=0), einet.Gaussian(), num_sums=4
    )
    einet.fit(net, x.clamp(0, 1), epochs=5, batch_size=50)
    path = tmp_path_factory.mktemp("images") / "sides.einet"
    net.save(path, Pixels((6, 6, 1), scale=255.0).metadata())
    return path
