"""What a link to a page of the book looks like where it is pasted: title, description, picture.

`make docs` writes Open Graph's and Twitter's tags into every page. Most readers of them want absolute
addresses, so the place where the book is published belongs in `YAIE_BOOK_URL`; without it the picture's
address is relative and the page's own is left out.
"""

import html
import os
import re
from pathlib import Path

from book.tools.check import DERIVED
from book.tools.mdbook import ROOT
from book.tools.repository import BOOK_URL
from yaie.core.compat import tomllib

PICTURE, SIZE = "images/preview.png", (1200, 630)
PICTURE_SAYS = "Four requests whose block tables share two blocks of one pool"
FRONT = "YAIE: write an LLM inference engine"
"""The first page's title in a tab and a preview; mdBook would join the book's name to itself."""
LONGEST = 200  # characters of a description; services cut longer ones
_MAIN = re.compile(r"<main>(?P<text>.*?)</main>", re.S)
_TITLE = re.compile(r"<h1\b[^>]*>(?P<text>.*?)</h1>", re.S)
_PARAGRAPH = re.compile(r"<p(?: class=\"(?:promise|lead)\")?>(?P<text>.*?)</p>", re.S)
_NOT_PROSE = re.compile(
    r"<(script|style|svg|figure|section|blockquote|table|details|aside)\b.*?</\1>", re.S
)
_TAB = re.compile(r"<title>[^<]*</title>")
_DESCRIPTION = re.compile(r'<meta name="description" content="[^"]*">')
_TAG = re.compile(r"<[^>]+>")


def add_previews(output: Path, address: str | None = None) -> int:
    """Write the tags into every page below `output`. Returns how many pages have them.

    address: where `output` is published, as https://example.org/book; by default YAIE_BOOK_URL.
    """
    site = (os.environ.get(BOOK_URL, "") if address is None else address).rstrip("/")
    book = tomllib.loads((ROOT / "book.toml").read_text("utf-8"))["book"]
    pages = [path for path in sorted(output.rglob("*.html")) if path.name not in DERIVED]
    for path in pages:
        text = path.read_text("utf-8")
        name = path.relative_to(output).as_posix()
        tags = preview_tags(text, name, site, book["title"], book["description"])
        description = f'<meta name="description" content="{_described(text, book["description"])}">'
        if name == "index.html":
            text = _TAB.sub(f"<title>{FRONT}</title>", text, count=1)
        text = _DESCRIPTION.sub(lambda _, new=description: new, text, count=1)  # type: ignore[misc]
        path.write_text(text.replace("</head>", f"{tags}</head>", 1), "utf-8")
    return len(pages)


def preview_tags(text: str, name: str, site: str, book: str, about: str) -> str:
    """The tags of one page. text: its HTML. name: its path. site: address of the book, or empty."""
    up = "../" * name.count("/")
    picture = f"{site}/{PICTURE}" if site else f"{up}{PICTURE}"
    title = _titled(text) if name != "index.html" else FRONT
    graph = {
        "og:type": "website" if name == "index.html" else "article",
        "og:site_name": book,
        "og:title": title,
        "og:description": html.unescape(_described(text, about)),
        "og:image": picture,
        "og:image:width": str(SIZE[0]),
        "og:image:height": str(SIZE[1]),
        "og:image:alt": PICTURE_SAYS,
    }
    if site:
        graph["og:url"] = f"{site}/{'' if name == 'index.html' else name}"
    card = {
        "twitter:card": "summary_large_image",
        "twitter:title": title,
        "twitter:description": graph["og:description"],
        "twitter:image": picture,
        "twitter:image:alt": PICTURE_SAYS,
    }
    lines = [
        f'<meta property="{key}" content="{html.escape(value)}">' for key, value in graph.items()
    ]
    lines += [f'<meta name="{key}" content="{html.escape(value)}">' for key, value in card.items()]
    return "\n".join(lines) + "\n"


def _titled(text: str) -> str:
    """The first heading."""
    main = _MAIN.search(text)
    found = _TITLE.search(main["text"] if main else text)
    heading = found["text"] if found else ""
    return _plain(heading)


def _described(text: str, about: str) -> str:
    """The first paragraph of prose, cut at the end of a sentence or of a word; escaped."""
    main = _MAIN.search(text)
    prose = _NOT_PROSE.sub("", main["text"]) if main else ""
    found = next((p for p in map(_words, _PARAGRAPH.finditer(prose)) if len(p) > 40), about)
    if len(found) > LONGEST:
        whole = found[:LONGEST].rpartition(". ")[0]
        found = f"{whole}." if whole else found[: LONGEST - 1].rpartition(" ")[0] + "…"
    return html.escape(found)


def _words(found: re.Match[str]) -> str:
    return _plain(found["text"])


def _plain(markup: str) -> str:
    return " ".join(html.unescape(_TAG.sub("", markup)).split())
