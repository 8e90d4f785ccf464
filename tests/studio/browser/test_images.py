"""A model of images: samples, a brush, and what the model says of what is covered."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

import einet

pytestmark = pytest.mark.browser


def pixels(source):
    """A picture of the page, as grey values."""
    data = base64.b64decode(source.split(",", 1)[1])
    return np.asarray(Image.open(io.BytesIO(data)).convert("L"))


def test_paint_over_a_picture(bare, open_page, pictures, tmp_path):
    page = open_page(bare.url + "#data", expected=["4\\d\\d"])
    page.get_by_text("Choose a file").wait_for()
    page.locator("#file").set_input_files(pictures)
    page.locator(".samples img").nth(23).wait_for()
    # A picture of one's own, bright at the left; the right half is covered at first.
    own = np.full((6, 6), 51, dtype=np.uint8)
    own[:, :3] = 204
    path = tmp_path / "own.png"
    Image.fromarray(own).save(path)
    page.locator(".inpaint[data-log]").wait_for()
    before = page.locator(".inpaint").get_attribute("data-log")
    page.locator("#picture").set_input_files(path)
    page.wait_for_function(
        "(old) => document.querySelector('.inpaint').dataset.log !== old", arg=before
    )
    net = einet.load(pictures)
    x = torch.from_numpy(own.reshape(1, 36) / 255).float()
    x[:, torch.arange(36) % 6 >= 3] = float("nan")
    log = float(page.locator(".inpaint").get_attribute("data-log"))
    assert log == pytest.approx(float(net.log_prob(x)[0]), rel=1e-3)
    mean = pixels(page.locator(".result.mean img").get_attribute("src"))
    wanted = net.given(x).mean().reshape(6, 6).clamp(0, 1) * 255
    assert np.abs(mean - wanted.numpy()).max() <= 1.5
    # Paint at the left, by mouse and by keys.
    canvas = page.locator("canvas.painter")
    assert canvas.get_attribute("data-covered") == "18"
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 10, box["y"] + box["height"] - 10, steps=5)
    page.mouse.up()
    assert int(canvas.get_attribute("data-covered")) >= 24
    page.get_by_role("button", name="Uncover all").click()
    assert canvas.get_attribute("data-covered") == "0"
    canvas.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Space")
    assert int(canvas.get_attribute("data-covered")) >= 1
    # All draws, one after the other.
    page.get_by_role("button", name="Top half").click()
    page.locator(".strip button").nth(7).wait_for()
    page.get_by_role("slider", name="Which draw").fill("5")
    assert page.locator(".strip button").nth(4).get_attribute("aria-pressed") == "true"
    assert page.locator(".result.draw img").get_attribute("alt") == "Draw 5 of 8"
    page.get_by_role("button", name="Copy as Python").click()
    compile(page.locator("#code pre").inner_text(), "copied", "exec")
    page.keyboard.press("Escape")
    # What is no picture is refused in a line.
    path = tmp_path / "not.png"
    path.write_bytes(b"no picture")
    page.locator("#picture").set_input_files(path)
    page.locator("#message.error").wait_for()
