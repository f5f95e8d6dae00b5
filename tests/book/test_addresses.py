"""What could once be linked to still answers.

`addresses.txt` has each heading, figure and card that a lab's chapter had before its lab became a page
of its own. What has moved is on the sheet, under the same name, and a script of the page leads there.
`pages.txt` has the pages of 2026-11-29, explorations included; what is a page no more leads to the one
that has taken it in. Add lines when pages come; take none out.
"""

from pathlib import Path

import pytest

from book.tools.check import read_page
from book.tools.contents import chapter_pages
from book.tools.mdbook import ROOT
from tests.book.reading import SOURCE, reading
from tests.marks import nightly_but
from yaie.core.compat import tomllib
from yaie.curriculum.manifest import load_curriculum

ADDRESSES = Path(__file__).with_name("addresses.txt").read_text("utf-8").split()
SHEETS = {
    chapter_pages()[lab.chapter].replace(".md", ""): f"labs/{lab.key}"
    for lab in load_curriculum().labs
    if (SOURCE / f"labs/{lab.key}.md").is_file()
}
PAGES = Path(__file__).with_name("pages.txt").read_text("utf-8").split()
REDIRECTS = tomllib.loads((ROOT / "book.toml").read_text("utf-8"))["output"]["html"]["redirect"]
TOP = "the-lab"
"""The heading of the part that is now a page: it leads to the top of that page."""


def names_of(article: str) -> list[str]:
    before = f"{article}.html#"
    return [one.removeprefix(before) for one in ADDRESSES if one.startswith(before)]


def test_each_is_in_its_article_or_on_the_sheet(built):
    lost = []
    for article, sheet in SHEETS.items():
        there = {
            TOP,
            *read_page(built / f"{article}.html").ids,
            *read_page(built / f"{sheet}.html").ids,
        }
        lost += [f"{article}.html#{name}" for name in names_of(article) if name not in there]
    assert lost == []
    assert len(ADDRESSES) > 400
    assert sum(len(names_of(article)) for article in SHEETS) == len(ADDRESSES)


@pytest.mark.parametrize("article", nightly_but(["radix-tree"], filter(names_of, SHEETS)))
def test_a_browser_finds_each(browser, built, article):
    with reading(browser, built, article) as (opened, wrong):
        here = set(read_page(built / f"{article}.html").ids)
        moved = [name for name in names_of(article) if name not in here]
        assert {TOP, "stretch"} <= set(moved)
        for number, name in enumerate([*moved, "explain-back"]):
            # With another fragment alone the page would not be loaded again.
            opened.goto(f"{built.as_uri()}/{article}.html?{number}#{name}")
            page = SHEETS[article] if name in moved else article
            opened.wait_for_url(f"**/{page}.html*#{name}")
            assert name == TOP or opened.locator(f'[id="{name}"]').count() == 1
        assert wrong == []


def test_a_step_of_a_figure_stays_in_its_article(browser, built):
    with reading(browser, built, "glossary") as (opened, wrong):
        opened.goto(f"{built.as_uri()}/radix-tree.html#fig-radix-tree-3")
        opened.locator("#figure-radix-tree").wait_for()
        assert opened.url.endswith("/radix-tree.html#fig-radix-tree-3")
        assert wrong == []


def test_the_half_of_the_roofline_that_moved_still_answers(built):
    """It is behind the KV cache; its old addresses say so."""
    page = read_page(built / "roofline.html")
    assert {"attention", "batch-1-and-batch-256"} <= set(page.ids)
    moved = {"what-limits-decode-attention", "batch-1-and-batch-256"}
    assert moved <= set(read_page(built / "kv-cache.html").ids)
    assert "kv-cache.html#what-limits-decode-attention" in page.links


def test_every_page_that_there_was_answers(built):
    assert len(PAGES) >= 97
    assert sum(page.startswith("explore/") for page in PAGES) == 22
    gone = [page for page in PAGES if f"/{page}" in REDIRECTS]
    assert [page for page in PAGES if not (built / page).is_file()] == []
    # A page is its own chapter, or it is one of those that lead elsewhere.
    assert [page for page in PAGES if not (SOURCE / page).with_suffix(".md").is_file()] == gone
    for page in gone:
        assert (built / REDIRECTS[f"/{page}"]).is_file()


@pytest.mark.parametrize("old", sorted({address.partition("#")[0] for address in REDIRECTS}))
def test_a_browser_that_asks_for_a_page_that_is_gone_gets_the_other(browser, built, old):
    with reading(browser, built, "index") as (opened, wrong):
        opened.goto(f"{built.as_uri()}{old}")
        opened.wait_for_url(f"**/{REDIRECTS[old]}*")
        opened.locator("main h1").first.wait_for()
        assert wrong == []
