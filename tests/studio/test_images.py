"""Images: samples, pictures of the user's and covered parts, against the library."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import einet
from einet.imaging import Pixels, inpaint
from einet.studio.app import create_app
from einet.studio.images import as_url, from_url
from einet.studio.session import Session
from tests.studio.conftest import HOST, TOKEN, Client

_SHAPE = (6, 8, 1)


def _bytes(count: int = 60) -> np.ndarray:
    generator = np.random.default_rng(0)
    base = generator.integers(0, 200, (count, 1, 8, 1)) + np.zeros((count, 6, 8, 1), dtype=int)
    return (base + generator.integers(0, 40, base.shape)).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("images")
    images = _bytes()
    pixels = Pixels(_SHAPE, scale=255.0)
    model = einet.Einet(einet.poon_domingos((6, 8), delta=2), einet.Gaussian(), num_sums=3)
    rows = pixels.to_model(torch.from_numpy(images).reshape(len(images), -1))
    einet.fit(model, rows, epochs=3, batch_size=20, progress=False)
    model.save(folder / "images.einet", pixels.metadata())
    np.save(folder / "tests.npy", images[:5])
    return folder


@pytest.fixture(scope="module")
def client(files: Path, portal: Any) -> Iterator[Client]:
    with Session() as session:
        session.open_model(None, str(files / "images.einet"))
        session.open_images(files / "tests.npy")
        yield Client(create_app(session, TOKEN, [HOST]), portal)


def _picture(url: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(from_url("image", url))))


def _png(array: np.ndarray, mode: str | None = None) -> str:
    content = io.BytesIO()
    Image.fromarray(array, mode).save(content, format="png") if mode else Image.fromarray(
        array
    ).save(content, format="png")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def test_what_images_these_are(client: Client):
    assert client.ok("GET", "/api/images") == {"shape": [6, 8, 1], "has_tests": True, "tests": 5}
    assert client.ok("GET", "/api/state")["kind"] == "images"
    for index in range(5):
        url = client.ok("GET", f"/api/images/test?index={index}")["image"]
        assert np.array_equal(_picture(url), _bytes()[index, ..., 0])
    assert "below 5" in client.refused(404, "GET", "/api/images/test?index=5")
    assert client.refused(400, "GET", "/api/images/test?index=x")


@pytest.mark.parametrize("leaves", ["mean", "sample"])
def test_samples(client: Client, files: Path, leaves: Any):
    asked = {"n": 3, "seed": 5, "leaves": leaves}
    urls = client.ok("POST", "/api/images/samples", json=asked)["images"]
    model, pixels = einet.load(files / "images.einet"), Pixels(_SHAPE, scale=255.0)
    drawn = pixels.to_pictures(model.sample(3, leaves=leaves, seed=5))
    assert all(np.array_equal(_picture(u), d[..., 0]) for u, d in zip(urls, drawn, strict=True))
    assert client.refused(422, "POST", "/api/images/samples", json={"n": 1000})
    assert client.refused(422, "POST", "/api/images/samples", json={"leaves": "best"})


@pytest.mark.parametrize("is_alpha", [False, True])
def test_inpainting(client: Client, files: Path, is_alpha: bool):
    image = _bytes()[7]
    covered = np.zeros((6, 8), dtype=np.uint8)
    covered[:, 4:] = 255
    mask = _png(covered)
    if is_alpha:
        mask = _png(np.stack([covered * 0, covered * 0, covered * 0, covered], -1))
    asked = {"image": as_url(image), "covered": mask, "draws": 4, "seed": 2}
    told = client.ok("POST", "/api/images/inpaint", json=asked)
    model, pixels = einet.load(files / "images.einet"), Pixels(_SHAPE, scale=255.0)
    x = pixels.to_model(torch.from_numpy(image).reshape(1, -1))
    found = inpaint(model, x, torch.from_numpy(covered > 0), samples=4, seed=2)
    assert np.array_equal(_picture(told["mean"]), pixels.to_pictures(found.mean)[0, ..., 0])
    for url, drawn in zip(told["draws"], pixels.to_pictures(found.samples[:, 0]), strict=True):
        assert np.array_equal(_picture(url), drawn[..., 0])
        assert np.array_equal(_picture(url)[:, :4], image[:, :4, 0])
    deviation = pixels.deviations(found.deviation)[0].numpy()
    expected = np.rint(deviation / 127.5 * 255).clip(0, 255)
    assert np.abs(_picture(told["deviation"]) - expected).max() <= 1
    assert told["covered"] == 24
    assert told["largest_deviation"] == pytest.approx(deviation.max())
    visible = torch.from_numpy(covered == 0).reshape(1, -1)
    posterior = model.given(x, visible)
    assert told["log_evidence"] == pytest.approx(float(posterior.log_evidence[0]), rel=1e-5)


def test_own_pictures_are_fitted(client: Client):
    picture = np.zeros((60, 100, 3), dtype=np.uint8)
    picture[..., 0] = 250
    content = io.BytesIO()
    Image.fromarray(picture).save(content, format="jpeg")
    url = client.ok("POST", "/api/images/picture", content=content.getvalue())["image"]
    assert _picture(url).shape == (6, 8)
    for wrong in (b"", b"<svg onload=alert(1)>", b"\x89PNG broken", b"%PDF"):
        assert "picture" in client.refused(422, "POST", "/api/images/picture", content=wrong)
    # A small file that declares too many pixels.
    bomb = io.BytesIO()
    Image.new("L", (6000, 6000)).save(bomb, format="png")
    assert "pixels" in client.refused(422, "POST", "/api/images/picture", content=bomb.getvalue())


@pytest.mark.parametrize(
    "change",
    [{"image": "http://x.example/x.png"}, {"image": None}, {"covered": "data:image/png;base64,?"},
     {"covered": _png(np.zeros((3, 3), dtype=np.uint8))}, {"draws": 0}, {"draws": 10**6},
     {"seed": -1}],
)  # fmt: skip
def test_what_cannot_be_inpainted(client: Client, change: dict):
    asked = {"image": as_url(_bytes()[0]), "covered": _png(np.full((6, 8), 255, dtype=np.uint8))}
    assert client.ok("POST", "/api/images/inpaint", json=asked)["covered"] == 48
    assert client.refused(422, "POST", "/api/images/inpaint", json={**asked, **change})


def test_images_of_another_size_are_refused(files: Path, tmp_path: Path):
    np.save(tmp_path / "other.npy", np.zeros((2, 5, 5), dtype=np.uint8))
    with Session() as session:
        session.open_model(None, str(files / "images.einet"))
        with pytest.raises(ValueError, match="are of shape"):
            session.open_images(tmp_path / "other.npy")


@pytest.mark.parametrize("source", ["image", "index"])
def test_the_code_of_inpainting(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
):
    covered = np.zeros((6, 8), dtype=np.uint8)
    covered[2:, :3] = 255
    image = client.ok("GET", "/api/images/test?index=2")["image"]
    asked = {"image": image, "covered": _png(covered), "draws": 2, "seed": 1}
    told = client.ok("POST", "/api/images/inpaint", json=asked)
    shown = {**asked, "view": "images"}
    if source == "index":
        shown = {**{k: v for k, v in shown.items() if k != "image"}, "index": 2}
    monkeypatch.chdir(tmp_path)
    exec(compile(client.ok("POST", "/api/code", json=shown)["python"], "<copied>", "exec"), {})
    drawn = np.asarray(Image.open(tmp_path / "mean.png"))
    assert np.array_equal(drawn, _picture(told["mean"]))
    exec(client.ok("POST", "/api/code", json={"view": "images", "n": 2})["python"], {})
    assert (tmp_path / "samples.png").is_file()
