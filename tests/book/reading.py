"""Opening the book's pages as a reader does, and noting what goes wrong."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from book.tools.mdbook import ROOT

expect.set_options(timeout=20_000)  # ms; a busy machine is slow, not wrong

SOURCE = ROOT / "book/src"
THEMES = ("light", "navy")
ONE_AND_OTHERS = [
    THEMES[0],
    *(pytest.param(name, marks=pytest.mark.nightly) for name in THEMES[1:]),
]
"""By day pages and figures are looked at in one theme, by night in all: only colours differ."""
PHONE = {"width": 360, "height": 740}
LAPTOP = {"width": 1280, "height": 800}
LISTED = re.compile(r"\]\((?P<page>[\w/-]+)\.md\)")

PAGES = [found["page"] for found in LISTED.finditer((SOURCE / "SUMMARY.md").read_text("utf-8"))]


def pages_with(directive: str) -> list[tuple[str, str]]:
    """(page, name) for each use of a directive, in the order of the contents."""
    pattern = re.compile(rf"^\{{\{{#{directive} (?P<name>[\w-]+)\}}\}}$", re.M)
    return [
        (page, found["name"])
        for page in PAGES
        for found in pattern.finditer((SOURCE / f"{page}.md").read_text("utf-8"))
    ]


@contextmanager
def reading(
    browser: Browser,
    built: Path | str,
    page: str,
    theme: str = "light",
    size: dict[str, int] = LAPTOP,
    motion: str = "reduce",
) -> Iterator[tuple[Page, list[str]]]:
    """A page in a fresh browser profile, and the list of what went wrong.

    built: the book's folder, or the address at which it is served. motion: "reduce" or "no-preference".
    """
    book = built if isinstance(built, str) else built.as_uri()
    context = browser.new_context(viewport=size, reduced_motion=motion)
    context.add_init_script(f"localStorage.setItem('mdbook-theme', '{theme}')")
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on(
        "request",
        lambda request: (
            None if request.url.startswith((book, "data:", "blob:")) else wrong.append(request.url)
        ),
    )
    try:
        opened.goto(f"{book}/{page}.html")
        yield opened, wrong
    finally:
        context.close()
