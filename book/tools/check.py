"""What mdBook lets pass with exit status 0, found in the chapters and in the pages made from them.

In the chapters: an include of a missing file, an anchor that does not stand exactly once in it, code
that is typed instead of included. In the pages: dead links and fragments, an id used twice, a picture
without a text, a directive left as it was, anything that would be fetched from the network.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

INCLUDE = re.compile(r"(?<!\\)\{\{\s*#include\s+(?P<file>[^\s:}]+)(?::(?P<part>[^}]*?))?\s*\}\}")
DIRECTIVE = re.compile(r"\{\{\s*#\w+[^}]*\}\}")
CODE_FENCE = re.compile(r"^```(?P<info>(?:python|cpp)\b[^\n]*)\n(?P<body>.*?)^```$", re.M | re.S)
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
# Pages that mdBook makes of other pages: their ids and relative links repeat those.
DERIVED = {"print.html", "404.html", "toc.html"}


def check_book(source: Path, output: Path) -> list[str]:
    """Every fault of the chapters below `source` and of the pages below `output`, one line each."""
    chapters = sorted(source.rglob("*.md"))
    faults = [fault for chapter in chapters for fault in check_chapter(chapter)]
    pages = {path.resolve(): read_page(path) for path in sorted(output.rglob("*.html"))}
    for path in pages:
        if path.name not in DERIVED:
            name = path.relative_to(output.resolve())
            faults += [f"{name}: {fault}" for fault in check_page(path, pages)]
    return faults


def check_chapter(chapter: Path) -> Iterator[str]:
    """The faults of one Markdown file."""
    text = chapter.read_text("utf-8")
    for include in INCLUDE.finditer(text):
        fault = check_include(chapter.parent / include["file"], (include["part"] or "").strip())
        if fault:
            yield f"{chapter.name}: {fault}"
    for fence in CODE_FENCE.finditer(text):
        included = INCLUDE.fullmatch(fence["body"].strip())
        if not included and "ignore" not in fence["info"].split(","):
            first = fence["body"].strip().split("\n")[0]
            yield f"{chapter.name}: code that is typed, not included from a tested file: {first!r}"


def check_include(file: Path, part: str) -> str | None:
    """What is wrong with including `part` (an anchor, or line numbers) of `file`."""
    if not file.is_file():
        return f"includes {file.name}, which does not exist"
    if not part or re.fullmatch(r"[\d:]+", part):
        return None
    text = file.read_text("utf-8")
    for mark in ("ANCHOR", "ANCHOR_END"):
        count = len(re.findall(rf"\b{mark}:[ \t]*{re.escape(part)}(?![\w-])", text))
        if count != 1:
            return f"{file.name} has {count} times {mark}: {part}, not once"
    return None


@dataclass(slots=True)
class Page:
    """What matters of one HTML page."""

    text: str
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    nameless: list[str] = field(default_factory=list)


class PageReader(HTMLParser):
    """Fills a Page. A picture has its text in `alt`, `aria-label` or, for an SVG, in <title>."""

    def __init__(self, page: Page) -> None:
        super().__init__()
        self.page = page

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        page = self.page
        if identifier := values.get("id"):
            page.ids.append(identifier)
        if tag == "a" and (link := values.get("href")):
            page.links.append(link)
        if load := values.get(LOADING.get(tag, "")):
            page.loads.append(load)
        named = values.get("alt") or values.get("aria-label") or values.get("aria-labelledby")
        drawing = tag == "svg" and values.get("role") == "img"
        if (tag == "img" or drawing) and not named:
            page.nameless.append(values.get("src") or tag)


def read_page(path: Path) -> Page:
    """Parse one page."""
    page = Page(path.read_text("utf-8"))
    PageReader(page).feed(page.text)
    return page


def check_page(path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """The faults of one page, given all of them (by resolved path)."""
    page = pages[path]
    for identifier in sorted({name for name in page.ids if page.ids.count(name) > 1}):
        yield f"the id {identifier} is used more than once"
    for picture in page.nameless:
        yield f"a picture without a text: {picture}"
    for load in page.loads:
        if urlparse(load).netloc:
            yield f"would be fetched from the network: {load}"
    for directive in DIRECTIVE.findall(page.text):
        yield f"a directive left as it was: {directive}"
    for link in page.links + page.loads:
        if not leads_somewhere(link, path, pages):
            yield f"a dead link: {link}"


def leads_somewhere(link: str, path: Path, pages: dict[Path, Page]) -> bool:
    """Whether a link from the page at `path` has a target. Links out of the book are not followed."""
    url = urlparse(link)
    if url.scheme or url.netloc:
        return True
    target = (path.parent / unquote(url.path)).resolve() if url.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    return not url.fragment or target not in pages or unquote(url.fragment) in pages[target].ids
