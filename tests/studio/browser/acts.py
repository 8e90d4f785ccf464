"""What tests do with a page: wait, read what is drawn, point at it."""

import json

__all__ = ["brush", "panel", "probability", "settled", "shares"]

_SETTLED = """() => {
    const counts = (name) => performance.getEntriesByName(name).map((mark) => mark.detail.count);
    const last = Math.max(0, ...counts("evidence-start"));
    const ends = [...counts("evidence-drawn"), ...counts("evidence-refused")];
    return last > 0 && last === Math.max(0, ...ends);
}"""


def settled(page):
    """Wait until the newest question about evidence is answered and drawn."""
    page.wait_for_function(_SETTLED)


def panel(page, column):
    """The panel of a column."""
    return page.locator(f'.panel[data-column="{column}"]')


def shares(page, column):
    """The probabilities that a panel draws."""
    return json.loads(panel(page, column).get_attribute("data-shares"))


def probability(page):
    """P(evidence), with all digits."""
    return float(page.locator("#probability").get_attribute("data-value"))


def brush(page, column, start, end, steps=6):
    """Drag over a histogram, between two shares of its width."""
    chart = panel(page, column).locator(".histogram")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=steps)
    page.mouse.up()
