"""The book's search shows a term's chapter first: the terms go into mdBook's index.

mdBook ranks sections by how often they have a word, and so the glossary, or a listing, comes before the
chapter that explains it. `book/theme/search.js` puts the chapter first where a term was asked for.
"""

import json
from pathlib import Path

from book.tools.contents import chapter_pages
from book.tools.glossary import all_terms
from book.tools.mdbook import ROOT
from yaie.core.compat import tomllib
from yaie.curriculum.manifest import load_curriculum

INDEX = "searchindex-*.js"
ADDED = "window.search.terms="


def pages_of_terms() -> dict[str, str]:
    """The page for each term of the glossary, each of its other names, and what is searched for besides.

    All in lower case. Raises ValueError that names what does not fit: a term without a page, one of
    `book/search.toml` that the glossary does not have, or two pages for one.
    """
    named = tomllib.loads((ROOT / "book/search.toml").read_text("utf-8"))
    also = named.pop("also", {})
    others = {name.lower(): f"{page}.html" for page, names in also.items() for name in names}
    page_of: dict[str, str] = {}
    for page, names in named.items():
        for name in names:
            if name in page_of:
                raise ValueError(f"book/search.toml: {name!r} is on two pages")
            page_of[name] = page
    curriculum, chapters = load_curriculum(), chapter_pages()
    pages: dict[str, str] = {}
    aliases: dict[str, str] = {}
    for term in all_terms():
        if term.is_lab:  # of the tutor's alone: the glossary does not have it
            continue
        page = page_of.pop(term.name, "")
        if not page and term.lab in curriculum.keys:
            page = chapters[curriculum[term.lab].chapter].removesuffix(".md")
        if not page:
            raise ValueError(f"book/search.toml: no page for the glossary's {term.name!r}")
        pages[term.name.lower()] = f"{page}.html"
        aliases |= {alias.lower(): f"{page}.html" for alias in term.aliases}
    if page_of:
        raise ValueError(f"book/search.toml: the glossary has no {', '.join(sorted(page_of))}")
    return others | aliases | pages  # a name of its own comes before another term's alias


def add_terms(output: Path) -> list[str]:
    """Write the terms behind the index in `output`. Returns faults, a line each."""
    try:
        terms = pages_of_terms()
    except ValueError as error:
        return [str(error)]
    for index in output.glob(INDEX):
        text = index.read_text("utf-8").split(ADDED)[0]
        index.write_text(f"{text}{ADDED}{json.dumps(terms, ensure_ascii=False)};\n", "utf-8")
    missing = {page for page in terms.values() if not (output / page).is_file()}
    return [f"book/search.toml: there is no page {page}" for page in sorted(missing)]
