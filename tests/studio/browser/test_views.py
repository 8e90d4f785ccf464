"""Rows, columns, the model, and how the page looks to those who see it otherwise."""

import pytest

from einet.tables import cell_surprise
from tests.studio.browser.acts import panel, probability, settled

pytestmark = pytest.mark.browser


def go(page, view):
    page.get_by_role("link", name=view, exact=True).click()


def test_a_row_with_a_hole(people, open_page, model, frame):
    page = open_page(people.url)
    settled(page)
    go(page, "Row")
    page.get_by_role("button", name="Row 6", exact=True).click()
    page.get_by_role("heading", name="Row 6").wait_for()
    hole = page.locator('.cell[data-column="height"]')
    assert hole.get_attribute("data-heat") == "hole"
    assert "filled with" in hole.inner_text()
    wanted = cell_surprise(model, frame.iloc[[5]])["sex"][0]
    drawn = float(page.locator('.cell[data-column="sex"]').get_attribute("data-surprise"))
    assert drawn == pytest.approx(wanted, rel=1e-4)
    log_prob = page.locator(".row-view output")
    assert float(log_prob.get_attribute("data-value")) == pytest.approx(
        float(model.log_prob(frame.iloc[[5]])[0]), rel=1e-4
    )
    hole.locator("summary").click()
    assert "20 draws" in hole.locator("svg.dots").get_attribute("aria-label")
    # One types what was missing: a value so far out is very surprising.
    page.get_by_label("height", exact=True).fill("120")
    page.get_by_label("height", exact=True).press("Enter")
    page.get_by_role("heading", name="A row of your own").wait_for()
    assert page.locator('.cell[data-column="height"]').get_attribute("data-heat") == "3"
    page.get_by_role("button", name="Use as evidence").click()
    settled(page)
    assert page.locator(".chip").count() == 5
    # Each number is one of a grid, so all of them together still have a probability.
    assert 0 < probability(page) < 1e-4


def test_columns_and_a_pair_of_them(people, open_page):
    page = open_page(people.url)
    settled(page)
    go(page, "Columns")
    first = page.locator(".pairs tbody tr").first
    first.wait_for()
    names = {first.get_attribute("data-a"), first.get_attribute("data-b")}
    assert float(first.get_attribute("data-nats")) > 0
    page.get_by_role("button", name="Matrix").click()
    assert page.locator(".matrix .tile").count() == 20
    page.get_by_role("button", name="Graph").click()
    page.locator(".graph .node").nth(1).wait_for()
    first.get_by_role("button").click()
    settled(page)
    assert {each.get_attribute("data-column") for each in page.locator(".panel").all()} == names
    page.get_by_role("button", name="Show all columns").click()
    assert page.locator(".panel").count() == 5


def test_the_model_is_unfolded(people, open_page):
    page = open_page(people.url)
    settled(page)
    go(page, "Model")
    nodes = page.locator(".tree-node.region")
    nodes.nth(1).wait_for()
    before = nodes.count()
    inner = page.locator(".tree-node.region:not(.leaf)").nth(1)
    if inner.count():
        inner.focus()
        page.keyboard.press("Enter")
        nodes.nth(before).wait_for()
    page.locator(".tree-node.leaf").first.click()
    page.locator(".held h4").first.wait_for()
    page.get_by_role("button", name="Copy as Python").click()
    compile(page.locator("#code pre").inner_text(), "copied", "exec")


def test_light_dark_and_narrow(people, open_page):
    page = open_page(people.url, color_scheme="dark", viewport={"width": 375, "height": 800})
    settled(page)
    back = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(back)
    page.get_by_role("button", name="Change to light").click()
    assert page.evaluate(back) != dark
    page.get_by_role("button", name="Change to dark").click()
    assert page.evaluate(back) == dark
    for view in ("Data", "Row", "Columns", "Model", "Explore"):
        go(page, view)
        page.wait_for_load_state("networkidle")
        # Nothing makes the page wider than the screen.
        assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_landmarks_and_names(people, open_page):
    page = open_page(people.url)
    settled(page)
    for role in ("banner", "navigation", "main"):
        assert page.get_by_role(role).count() == 1
    assert page.locator("html").get_attribute("lang") == "en"
    for view in ("Data", "Explore", "Row", "Columns", "Model"):
        go(page, view)
        page.wait_for_load_state("networkidle")
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("button, input, select, [role=img]")].filter(
                (each) => each.checkVisibility() && !each.ariaLabel && !each.textContent.trim()
                    && !(each.labels && each.labels.length)).map((each) => each.outerHTML)"""
        )
        assert nameless == []
    go(page, "Explore")
    settled(page)
    label = panel(page, "height").locator(".histogram").get_attribute("aria-label")
    assert "median" in label
