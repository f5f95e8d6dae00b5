"""`{{#minutes}}`: how long a page takes to read, and a lab to do.

An article and its lab's sheet name each other there.
"""

import re

from book.tools.contents import (
    EXPLORATIONS,
    SHEETS,
    SUMMARY_LINE,
    chapter_pages,
    duration,
    lab_of,
    lab_of_sheet,
)
from book.tools.fences import FENCE
from book.tools.markup import escape
from book.tools.mdbook import ROOT

WORDS_A_MINUTE = 200
DIRECTIVE = re.compile(r"\{\{#.*?\}\}", re.S)
DRAWING = re.compile(r"<svg\b.*?</svg>", re.S)
TITLE = re.compile(r"^# (?P<title>.+)$", re.M)
INCLUDE = re.compile(r"\{\{#include (?P<file>[^:}]+)(?::(?P<anchor>[\w-]+))?\}\}")
SOURCE = ROOT / "book/src"


def render_minutes(text: str, path: str) -> str:
    """The line below a title. text: the page, with its listings. path: below `book/src`."""
    found = TITLE.search(text)
    minutes = reading_minutes(text)
    says = f"{minutes} minute{'s' if minutes > 1 else ''} to read"
    if lab := lab_of_sheet(path):
        page = chapter_pages()[lab.chapter].replace(".md", ".html")
        says += (
            f", {duration(lab.minutes)} to do. "
            f'The article: <a href="../{page}">{escape(lab.chapter)}</a>'
        )
    elif lab := lab_of(found["title"] if found else ""):
        sheet = f'<a href="{SHEETS}{lab.key}.html">lab {lab.number}</a>'
        says += f". The lab: {sheet}, {duration(lab.minutes)}"
    return f'<p class="minutes">{says}</p>'


def reading_minutes(text: str) -> int:
    """At 200 words a minute, listings and transcripts at half, a directive as one; at least 1."""
    text = DIRECTIVE.sub("1", DRAWING.sub("", text))
    code = sum(len(fence["body"].split()) for fence in FENCE.finditer(text))
    return max(1, round((len(text.split()) - code / 2) / WORDS_A_MINUTE))


def with_listings(page: str) -> str:
    """A page below `book/src` as the preprocessor gets it: mdBook has expanded the includes by then."""

    def listing(found: re.Match[str]) -> str:
        text = ((SOURCE / page).parent / found["file"]).read_text("utf-8")
        if found["anchor"]:
            text = text.partition(f"ANCHOR: {found['anchor']}\n")[2]
            text = text.partition(f"ANCHOR_END: {found['anchor']}")[0].rpartition("\n")[0]
        return text

    return INCLUDE.sub(listing, (SOURCE / page).read_text("utf-8"))


def minutes_of_articles() -> int:
    """What the pages before those on using the engine say that they take to read, sheets left out."""
    contents = (SOURCE / "SUMMARY.md").read_text("utf-8").partition("\n# Using the engine\n")[0]
    pages = [found["page"] for found in SUMMARY_LINE.finditer(contents)]
    texts = [with_listings(page) for page in pages if not page.startswith((SHEETS, EXPLORATIONS))]
    return sum(reading_minutes(text) for text in texts if "{{#minutes}}" in text)
