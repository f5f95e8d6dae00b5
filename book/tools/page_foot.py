"""The last lines of every page: when and how it was checked, and a link that reports an error on it."""

import os
import re
from functools import cache
from urllib.parse import quote, urlparse

from book.tools.evidence import EvidenceError, load
from book.tools.links import Link, links_in, load_links
from book.tools.markup import escape
from book.tools.repository import BOOK_URL, repository_url

FORMS = {
    "github.com": "/issues/new?title={title}&body={body}",
    "codeberg.org": "/issues/new?title={title}&body={body}",
    "gitlab.com": "/-/issues/new?issue[title]={title}&issue[description]={body}",
    "bitbucket.org": "/issues/new?title={title}&content={body}",
}
"""Where a host takes a new issue with its title and text filled in."""
BODY = "Page: {page}\n\nWhat is wrong:\n\nWhat it should say, and how you know:\n"
MEASURED = re.compile(r"\{\{#(?:value|spread) (?P<name>\w+):")
RUN = re.compile(r"^```console(?!\S*\bunrun)", re.M)
"""A block of commands that `tests/book/test_console.py` runs."""
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def page_foot(path: str, title: str, text: str) -> str:
    """HTML to put behind a page. path: below `book/src`. text: its Markdown, directives unexpanded."""
    said = [
        _span(
            "Sources looked at", [_links()[url].looked for url in links_in(text) if url in _links()]
        ),
        _span("Measured", measured_days(text)),
        "Commands run by tests" if RUN.search(text) else "",
    ]
    if address := report_address(path, title):
        said.append(f'<a href="{escape(address)}">Report an error on this page</a>')
    kept = " · ".join(filter(None, said))
    return f'<footer class="page-foot"><p>{kept}</p></footer>' if kept else ""


def report_address(path: str, title: str) -> str:
    """Opens a new issue that names the page; empty where the repository's host has no form for it."""
    url = repository_url()
    form = FORMS.get(urlparse(url).hostname or "", "")
    book = os.environ.get(BOOK_URL, "").rstrip("/")
    page = f"{book}/{path.removesuffix('.md')}.html" if book else f"book/src/{path}"
    filled = {"title": f"Error on the page “{title}”", "body": BODY.format(page=page)}
    return form and url + form.format(**{name: quote(words) for name, words in filled.items()})


def measured_days(text: str) -> list[str]:
    """The days on which the figures were measured that a page quotes."""
    return sorted(filter(None, map(_day_of, {found["name"] for found in MEASURED.finditer(text)})))


def _day_of(name: str) -> str:
    try:
        table = load(name)
    except EvidenceError:  # the directive that names it is the fault
        return ""
    for place in (table, table.get("recorded", {})):
        for key in ("measured", "date"):
            if found := DAY.match(str(place.get(key, ""))):
                return found[0]
    return ""


def _span(words: str, days: list[str]) -> str:
    """ "Measured 2026-11-21 to 2026-11-26"; empty without a day."""
    ends = sorted({min(days), max(days)}) if days else []
    return f"{words} {' to '.join(map(_time, ends))}" if ends else ""


def _time(day: str) -> str:
    return f'<time datetime="{day}">{day}</time>'


@cache
def _links() -> dict[str, Link]:
    return load_links()
