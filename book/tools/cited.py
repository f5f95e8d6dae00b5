"""`{{#cited experts goodput}}`: papers that pages link to, as `book/links.toml` describes them.

Those that the page of references lists by hand are left out. `{{#cited others}}` takes the pages that
no other list there names.
"""

import re

from book.tools.links import LinkError, links_in, load_links
from book.tools.markup import escape
from book.tools.mdbook import ROOT

PAPERS = re.compile(r"https://(arxiv\.org/abs/|doi\.org/|www\.usenix\.org/)")
TITLE = re.compile(r"^# (?P<title>.+)$", re.M)
NAMED = re.compile(r"\{\{#cited (?P<pages>[^}]+)\}\}")
SOURCE = ROOT / "book/src"


def render_cited(*pages: str) -> str:
    """A list of the papers, each with the pages that cite it. Raises LinkError."""
    shown = load_links()
    references = (SOURCE / "references.md").read_text("utf-8")
    by_hand = set(links_in(references))
    if pages == ("others",):
        named = {"references", *" ".join(NAMED.findall(references)).split()}
        pages = tuple(sorted({path.stem for path in SOURCE.glob("*.md")} - named))
    found: dict[str, list[str]] = {}
    titles: dict[str, str] = {}
    for page in pages:
        text = (SOURCE / f"{page}.md").read_text("utf-8")
        heading = TITLE.search(text)
        titles[page] = (heading["title"] if heading else page).partition(":")[0]
        for url in links_in(text):
            if url not in shown:
                raise LinkError(f"{page}.md links to {url}, which is not in book/links.toml")
            listed = url in by_hand or not PAPERS.match(url)
            if not listed and page not in found.setdefault(url, []):
                found[url].append(page)
    items = [
        f'<li><a href="{url}">{escape(shown[url].shows)}</a> (in '
        + ", ".join(f'<a href="{page}.html"><em>{escape(titles[page])}</em></a>' for page in citing)
        + ")</li>"
        for url, citing in sorted(found.items(), key=lambda item: shown[item[0]].shows.lower())
    ]
    return f"<ul>{''.join(items)}</ul>"
