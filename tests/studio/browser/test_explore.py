"""Evidence by mouse and by keys: what is drawn is what the library answers."""

import csv as text_csv
import json
import re
from pathlib import Path

import pytest

from tests.studio.browser.acts import brush, panel, probability, settled, shares

pytestmark = pytest.mark.browser


def chip(page, column):
    return page.locator(f'.chip[data-column="{column}"]')


def ask(model, question):
    return model.query(question).value


def states(model, column, given):
    """Probabilities of states, in the order of the page."""
    return list(model.given(given).probabilities(column).iloc[0])


def close(drawn, wanted):
    return drawn == pytest.approx(list(wanted), abs=1e-9)


def test_a_click_on_a_state_draws_exact_posteriors(people, open_page, model):
    page = open_page(people.url)
    settled(page)
    assert "token" not in page.url
    assert close(shares(page, "place"), states(model, "place", {}))
    panel(page, "sex").locator('.state[data-value="female"]').click()
    settled(page)
    assert close(shares(page, "place"), states(model, "place", {"sex": "female"}))
    assert probability(page) == pytest.approx(ask(model, "P(sex=female)"))
    median = float(panel(page, "height").get_attribute("data-median"))
    assert median == pytest.approx(ask(model, "median(height | sex=female)"), abs=0.011)
    # A shift-click adds a state, a chip takes all away.
    panel(page, "place").locator('.state[data-value="Ulm"]').click()
    panel(page, "place").locator('.state[data-value="Kiel"]').click(modifiers=["Shift"])
    settled(page)
    assert probability(page) == pytest.approx(ask(model, "P(sex=female, place in {Ulm, Kiel})"))
    assert "is one of" in chip(page, "place").inner_text()
    chip(page, "sex").get_by_role("button", name="Remove sex").click()
    settled(page)
    assert probability(page) == pytest.approx(ask(model, "P(place in {Ulm, Kiel})"))
    page.get_by_role("button", name="Clear all").click()
    settled(page)
    assert probability(page) == pytest.approx(1, abs=1e-5)
    assert close(shares(page, "sex"), states(model, "sex", {}))


def test_a_brush_and_its_negation(people, open_page, model):
    page = open_page(people.url)
    settled(page)
    brush(page, "height", 0.25, 0.6)
    settled(page)
    lower, upper = (float(end) for end in re.findall(r"[\d.]+", chip(page, "height").inner_text()))
    assert lower < upper
    inside = f"{lower}<=height<={upper}"
    assert probability(page) == pytest.approx(ask(model, f"P({inside})"))
    assert close(shares(page, "sex"), states(model, "sex", {"height": (lower, upper)}))
    chip(page, "height").get_by_role("button", name="Negate height").click()
    settled(page)
    assert probability(page) == pytest.approx(ask(model, f"P(not ({inside}))"))
    female = ask(model, f"P(sex=female | not ({inside}))")
    assert shares(page, "sex")[0] == pytest.approx(female)
    # Changed by hand.
    chip(page, "height").get_by_role("button", name="Change").click()
    form = page.get_by_role("form", name="Range of height").first
    form.get_by_label("from").fill("170")
    form.get_by_label("to").fill("")
    form.get_by_role("button", name="Set").click()
    settled(page)
    assert probability(page) == pytest.approx(ask(model, "P(not (height>=170))"))


def test_dates_and_integers_are_in_the_units_of_the_table(people, open_page, model):
    page = open_page(people.url)
    settled(page)
    brush(page, "born", 0.2, 0.5)
    settled(page)
    dates = re.findall(r"\d{4}-\d{2}-\d{2}", chip(page, "born").inner_text())
    assert len(dates) == 2
    wanted = ask(model, f'P("{dates[0]}"<=born<="{dates[1]}")')
    assert probability(page) == pytest.approx(wanted, rel=1e-6)
    page.get_by_role("button", name="Clear all").click()
    settled(page)
    brush(page, "score", 0.4, 0.8)
    settled(page)
    ends = re.findall(r"\d+", chip(page, "score").inner_text())
    assert probability(page) == pytest.approx(ask(model, f"P({ends[0]}<=score<={ends[1]})"))


def test_all_of_it_by_keys_alone(people, open_page, model):
    page = open_page(people.url)
    settled(page)
    state = panel(page, "sex").locator(".state").first
    for _ in range(60):
        page.keyboard.press("Tab")
        if state.evaluate("element => element === document.activeElement"):
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    settled(page)
    assert probability(page) == pytest.approx(ask(model, "P(sex=male)"))
    chart = panel(page, "height").locator(".histogram")
    for _ in range(60):
        page.keyboard.press("Tab")
        if chart.evaluate("element => element === document.activeElement"):
            break
    for key in ["ArrowRight", "ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight", "Enter"]:
        page.keyboard.press(key)
    settled(page)
    assert chip(page, "height").count() == 1
    assert 0 < probability(page) < ask(model, "P(sex=male)")
    page.keyboard.press("Escape")
    settled(page)
    assert probability(page) == pytest.approx(ask(model, "P(sex=male)"))


def test_what_cannot_be_is_told_in_a_line(people, open_page):
    page = open_page(people.url, expected=["422"])
    settled(page)
    for column, name in (("sex", "States of sex"), ("height", "Range of height")):
        panel(page, column).locator("summary").click()
        panel(page, column).get_by_role("form", name=name).wait_for()
    form = panel(page, "height").get_by_role("form")
    form.get_by_label("from").fill("tall")
    form.get_by_role("button", name="Set").click()
    assert page.locator("#message").inner_text().startswith("Height takes numbers, not tall.")
    assert page.locator(".chip").count() == 0
    panel(page, "sex").locator(".state").nth(0).click()
    panel(page, "sex").locator(".state").nth(1).click(modifiers=["Shift"])
    settled(page)
    chip(page, "sex").get_by_role("button", name="Negate sex").click()
    settled(page)
    assert page.locator("#message").is_visible()
    assert page.locator("#probability").inner_text() == "no answer"
    page.get_by_role("button", name="Clear all").click()
    settled(page)
    assert probability(page) == pytest.approx(1, abs=1e-5)


def test_only_the_newest_answer_is_drawn(people, open_page, model):
    page = open_page(people.url)
    settled(page)
    requests = []
    held = []

    def hold(route):
        requests.append(route.request.post_data_json["evidence"])
        if len(requests) == 1:
            held.append(route)
        else:
            route.continue_()

    page.route("**/api/marginals", hold)
    rows = panel(page, "place").locator(".state")
    for i in (0, 1, 2):
        rows.nth(i).click()
    page.wait_for_timeout(100)
    # One is under way, and of those behind it only the newest will be asked.
    assert len(requests) == 1
    held[0].continue_()
    settled(page)
    assert len(requests) == 2
    last = rows.nth(2).get_attribute("data-value")
    assert requests[-1][0]["value"] == last
    assert shares(page, "place")[2] == pytest.approx(1)
    assert close(shares(page, "sex"), states(model, "sex", {"place": last}))


def test_questions_in_words(people, open_page, model):
    page = open_page(people.url, expected=["422"])
    settled(page)
    box = page.get_by_role("textbox", name="Question")
    box.fill("P(sex=female | place=Ulm)")
    box.press("Enter")
    answer = page.locator(".answers li").first
    answer.wait_for()
    assert json.loads(answer.get_attribute("data-value")) == pytest.approx(
        ask(model, box.input_value())
    )
    box.fill("P(sex=female | nowhere=1)")
    box.press("Enter")
    page.locator(".answers li.wrong").wait_for()


def test_rows_to_take_away(people, open_page, frame, tmp_path):
    page = open_page(people.url)
    settled(page)
    panel(page, "sex").locator('.state[data-value="female"]').click()
    settled(page)
    page.get_by_text("Download rows").click()
    page.get_by_label("rows").fill("20")
    with page.expect_download() as made:
        page.locator("button.sample").click()
    rows = _rows(made.value.path())
    assert len(rows) == 20
    assert {row["sex"] for row in rows} == {"female"}
    page.get_by_role("button", name="Clear all").click()
    settled(page)
    with page.expect_download() as made:
        page.locator("button.impute").click()
    filled = _rows(made.value.path())
    assert len(filled) == len(frame)
    assert all(row["height"] for row in filled)


def _rows(path):
    return list(text_csv.DictReader(Path(path).read_text().splitlines()))


def test_copy_as_python_shows_code(people, open_page):
    page = open_page(people.url, permissions=["clipboard-read", "clipboard-write"])
    settled(page)
    panel(page, "sex").locator(".state").first.click()
    settled(page)
    page.get_by_role("button", name="Copy as Python").click()
    code = page.locator("#code pre")
    code.wait_for()
    compile(code.inner_text(), "copied", "exec")
    assert "female" in code.inner_text()
    page.get_by_text("Copied to the clipboard.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").strip() == code.inner_text().strip()
    page.keyboard.press("Escape")
    assert not page.locator("#code").is_visible()
