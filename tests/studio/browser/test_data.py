"""Files: a csv that is dropped, typed, trained and explored; wrong files; html shown as text."""

import pytest

from tests.studio.browser.acts import panel, probability, settled

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)>"


def choose(page, path):
    page.locator("#file").set_input_files(path)


def test_from_a_csv_to_exact_answers(bare, open_page, csv, frame):
    page = open_page(bare.url + "#data")
    page.get_by_text("Drop a csv or Parquet file here").wait_for()
    choose(page, csv)
    row = page.locator('tr[data-column="height"]')
    row.wait_for()
    missing = int(frame["height"].isna().sum())
    assert str(missing) in row.inner_text()
    page.get_by_label("Kind of place").select_option("ordered")
    page.get_by_text("Settings").click()
    page.get_by_label("epochs", exact=True).fill("3")
    page.get_by_label("sums (K)").fill("3")
    page.get_by_role("button", name="Train a model").click()
    page.locator('.status[data-state="done"]').wait_for(timeout=60_000)
    assert "training" in page.locator(".curve[aria-label]").get_attribute("aria-label")
    page.get_by_role("button", name="Explore the model").click()
    settled(page)
    # The kind that was chosen is the one that was learnt.
    assert panel(page, "place").get_attribute("data-kind") == "ordered"
    panel(page, "sex").locator(".state").first.click()
    settled(page)
    assert 0 < probability(page) < 1
    page.get_by_role("link", name="Data").click()
    with page.expect_download() as made:
        page.get_by_role("button", name="Save the model").click()
    assert made.value.suggested_filename == "people.einet"
    # The saved model opens again, by itself.
    copy = made.value.path().with_suffix(".einet")
    made.value.save_as(copy)
    choose(page, copy)
    page.locator(".explore").wait_for()
    settled(page)
    assert probability(page) == pytest.approx(1, abs=1e-5)


def test_a_training_can_be_stopped(bare, open_page, csv):
    page = open_page(bare.url + "#data")
    page.get_by_text("Choose a file").wait_for()
    choose(page, csv)
    page.locator('tr[data-column="height"]').wait_for()
    page.get_by_text("Settings").click()
    page.get_by_label("epochs", exact=True).fill("90000")
    page.get_by_role("button", name="Train a model").click()
    page.locator(".curve").wait_for(timeout=60_000)
    page.get_by_role("button", name="Stop").click()
    page.locator('.status[data-state="stopped"]').wait_for(timeout=60_000)
    page.get_by_role("button", name="Explore the model").click()
    settled(page)
    assert probability(page) == pytest.approx(1, abs=1e-5)


def test_wrong_files_and_names_of_html(bare, open_page, tmp_path):
    page = open_page(bare.url + "#data", expected=["4\\d\\d"])
    page.get_by_text("Drop a csv or Parquet file here").wait_for()
    message = page.locator("#message.error")
    for name, content in (
        ("broken.einet", b"not a model"),
        ("picture.parquet", b"\x89PNG\r\n"),
        ("empty.csv", b""),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        choose(page, path)
        message.wait_for()
        assert message.inner_text().strip("×\n ")
        assert "\n\n" not in message.inner_text()
        page.get_by_role("button", name="Close the message").click()
        message.wait_for(state="hidden")
    path = tmp_path / "hostile.csv"
    rows = [f'"{HOSTILE}",b'] + [f'"{HOSTILE} {i % 2}",{i % 3}' for i in range(60)]
    path.write_text("\n".join(rows))
    choose(page, path)
    page.get_by_role("heading", name="hostile.csv").wait_for()
    assert page.locator("tr th[scope=row]").first.inner_text() == HOSTILE
    page.get_by_text("Settings").click()
    page.get_by_label("epochs", exact=True).fill("2")
    page.get_by_role("button", name="Train a model").click()
    page.locator('.status[data-state="done"]').wait_for(timeout=60_000)
    page.get_by_role("button", name="Explore the model").click()
    settled(page)
    state = page.locator(".panel .state").first
    assert state.locator(".name").inner_text() == f"{HOSTILE} 0"
    state.click()
    settled(page)
    assert HOSTILE in page.locator(".chip").inner_text()
    for view in ("Row", "Columns", "Model"):
        page.get_by_role("link", name=view).click()
        page.wait_for_load_state("networkidle")
    assert page.locator("img[onerror]").count() == 0
