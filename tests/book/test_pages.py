"""Every page in a real browser: no error, no request, accessible, and it fits a phone."""

from statistics import median

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.book.reading import ONE_AND_OTHERS, PAGES, PHONE, reading
from tests.marks import nightly_but

WCAG = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
    "resultTypes": ["violations"],
    "preload": False,  # axe would fetch style sheets, which a page opened from a folder may not
}
TO_THEME = "theme => document.querySelector(`#mdbook-theme-${theme}`).click()"
TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const wide = [...document.querySelectorAll('main *')].filter(
    (element) => element.getBoundingClientRect().right > width + 1);
  return wide.slice(0, 5).map((element) => element.outerHTML.slice(0, 120));
}"""


OF_EACH_KIND = (
    "index",  # the front page
    "whole-game",  # figure, admonitions, console blocks, quiz
    "sampler",  # formulas, listings, the way to a lab
    "labs/sampler",  # a lab's card, its tasks, what is given
    "explore/sampler",  # a notebook's pictures
    "performance",  # tables
    "configuration",
    "glossary",
    "review",
)
"""Pages that are made of all that pages are made of: what axe says of them, it says of the others."""


@pytest.mark.parametrize("page", nightly_but(OF_EACH_KIND[:6], PAGES))
def test_a_page_has_no_fault_and_fits_a_phone(browser, built, page):
    with reading(browser, built, page, size=PHONE) as (opened, wrong):
        assert opened.evaluate(TOO_WIDE) == [], "wider than a phone of 360 pixels"
        assert wrong == []


def test_there_is_a_page_of_each_kind():
    assert set(OF_EACH_KIND) <= set(PAGES)


@pytest.mark.parametrize("theme", ONE_AND_OTHERS)
@pytest.mark.parametrize("page", nightly_but(OF_EACH_KIND[:4], PAGES))
def test_a_page_is_accessible(browser, built, page, theme):
    with reading(browser, built, page) as (opened, wrong):
        opened.evaluate(TO_THEME, theme)
        assert theme in opened.locator("html").get_attribute("class").split()
        found = Axe().run(opened, options=WCAG)
        assert found.violations_count == 0, found.generate_report()
        assert wrong == []


LETTERS_A_LINE = """() => {
  const lines = (p) => Math.round(p.clientHeight / parseFloat(getComputedStyle(p).lineHeight));
  return [...document.querySelectorAll('.content main > p')]
    .filter((p) => p.innerText.length > 250).map((p) => p.innerText.length / lines(p));
}"""


def test_a_line_of_text_can_be_read(browser, built):
    with reading(browser, built, "inference") as (opened, wrong):
        found = opened.evaluate(LETTERS_A_LINE)
        assert len(found) > 5
        assert 64 <= median(found) <= 76
        assert wrong == []


SEARCHED = [("watermark", "paged-cache"), ("gumbel", "sampler"), ("copy-on-write", "paged-cache")]


@pytest.mark.parametrize(("term", "page"), nightly_but(SEARCHED[:1], SEARCHED))
def test_the_search_finds_terms(browser, built, term, page):
    with reading(browser, built, "index") as (opened, wrong):
        opened.keyboard.press("s")
        opened.keyboard.type(term)
        hits = opened.locator("#mdbook-searchresults a")
        hits.first.wait_for()
        assert any(page in (hit.get_attribute("href") or "") for hit in hits.all())
        assert wrong == []
