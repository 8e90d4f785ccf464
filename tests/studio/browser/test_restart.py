"""A page that was left open while its server stops, comes back, or is started anew."""

import pytest

from tests.studio.browser.acts import panel, probability, settled

pytestmark = pytest.mark.browser


def test_a_page_left_open_while_the_server_restarts(start, open_page, csv, saved):
    studio = start(csv, "--model", saved)
    page = open_page(studio.url, expected=["ERR_CONNECTION", "403"])
    settled(page)
    studio.stop()
    panel(page, "sex").locator(".state").first.click()
    banner = page.locator("#banner")
    banner.wait_for()
    assert "does not answer" in banner.inner_text()
    start(csv, "--model", saved, port=studio.port)
    page.get_by_text("Open the address that it printed").wait_for()
    # What was drawn stays.
    assert page.locator(".panel").count() == 5


def test_a_server_that_answers_again_is_taken_up_again(people, open_page):
    page = open_page(people.url, expected=["ERR_FAILED"])
    settled(page)
    page.route("**/api/**", lambda route: route.abort())
    panel(page, "sex").locator(".state").first.click()
    page.locator("#banner").wait_for()
    page.unroute("**/api/**")
    page.locator("#banner").wait_for(state="hidden")
    settled(page)
    assert 0 < probability(page) < 1


def test_an_address_without_its_token_says_so(people, open_page):
    page = open_page(people.url.split("?")[0])
    page.get_by_text("needs the whole address").wait_for()
