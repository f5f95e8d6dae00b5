"""A term of the glossary is a link where a chapter first uses it, with its definition as the tooltip.

Not in code, headings, links, tables, figures, directives or what a list defines: a reader meets it in a
sentence.
"""

import re
from functools import cache
from pathlib import PurePosixPath

from book.tools.contents import EXPLORATIONS, slug
from book.tools.fences import FENCE
from book.tools.glossary import printed_terms
from book.tools.mathml import CODE_SPAN, DISPLAYED, INLINE
from book.tutor.glossary import Term

PAGE = "glossary.md"
UNLINKED = {
    # Of this workbook, which the first page explains:
    "YAIE", "YAIE tutor", "lab", "lab hints", "grader", "stub", "contract", "reference part",
    "first chapter", "book parts", "make grade", "--mine flag",
    # Prose uses them in their everyday sense:
    "usage", "rank", "seed", "abort", "swap", "request", "recompute", "weights", "batch", "prompt",
}  # fmt: skip
KERNELS = ("cuda", "triton", "gpu", "profiling", "flash")
"""Pages that begin so use *block* for a block of threads or of a tile."""
ABBREVIATION = re.compile(r"[A-Z][A-Z0-9]{2,}")
_BLOCKS = r"p|figure|svg|script|table|section|details|pre|code|a|math"
_HIDDEN = [
    FENCE,
    re.compile(r"<!--.*?-->", re.S),
    re.compile(rf"<({_BLOCKS})\b.*?</\1>", re.S),
    DISPLAYED,
    CODE_SPAN,
    INLINE,
    re.compile(r"\{\{.*?\}\}", re.S),
    re.compile(r"!?\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])?", re.S),
    re.compile(r"<[^>]+>|https?://\S+", re.S),
    re.compile(r"^[ >]*(?:#+ |\|).*$", re.M),
    re.compile(r"^[^\n]+\n(?=: )", re.M),  # what a definition list defines
]


def link_terms(markdown: str, page: str) -> str:
    """The chapter with each term's first use as a link. page: its path below `book/src`."""
    if page in (PAGE, "index.md") or page.startswith(EXPLORATIONS):
        return markdown
    up = "../" * page.count("/")
    name = PurePosixPath(page).name
    seen: set[str] = set()
    title = next((line for line in markdown.splitlines() if line.startswith("# ")), "").lower()

    def link(found: re.Match[str]) -> str:
        term = _term(found[0])
        if term.name in seen or term.name.lower() in title or _means_another(term, name):
            return found[0]
        seen.add(term.name)
        return f'[{found[0]}]({up}{PAGE}#{slug(term.name)} "{_tooltip(term)}")'

    text, pieces, end = masked(markdown), [], 0
    for found in _pattern().finditer(text):
        pieces += [markdown[end : found.start()], link(found)]
        end = found.end()
    return "".join([*pieces, markdown[end:]])


def masked(markdown: str) -> str:
    """The text with a NUL for each character in which no term is looked for."""
    for pattern in _HIDDEN:
        markdown = pattern.sub(lambda found: "\0" * len(found[0]), markdown)
    return markdown


def _means_another(term: Term, name: str) -> bool:
    return term.name == "block" and name.startswith(KERNELS)


def _tooltip(term: Term) -> str:
    return re.sub(r"([\\`*_<>\[\]|$\"])", r"\\\1", term.short)


@cache
def _terms() -> dict[str, Term]:
    """By each way of writing it, with spaces for hyphens: name, plural, abbreviations in capitals."""
    found: dict[str, Term] = {}
    for term in printed_terms():
        if term.is_lab or term.name in UNLINKED or term.name.startswith(("/", "yaie ")):
            continue
        short = [alias for alias in term.aliases if ABBREVIATION.fullmatch(alias)]
        for name in (term.name, f"{term.name}s", *short):
            cased = ABBREVIATION.fullmatch(name)
            found.setdefault(_spaced(name) if cased else _spaced(name).lower(), term)
    return found


def _term(words: str) -> Term:
    """The term that is written so in a text."""
    spaced = _spaced(words)
    return _terms().get(spaced) or _terms()[spaced.lower()]


def _spaced(words: str) -> str:
    return re.sub(r"[\s-]+", " ", words)


@cache
def _pattern() -> re.Pattern[str]:
    """Any of them, the longest first, as whole words; a space may be a hyphen or the end of a line."""
    names = sorted(_terms(), key=len, reverse=True)
    parts = [r"(?:[ -]|\n)".join(map(re.escape, name.split(" "))) for name in names]
    cased = [part for part in parts if part != part.lower()]
    small = [part for part in parts if part == part.lower()]
    return re.compile(rf"(?<![\w./-])(?:(?i:{'|'.join(small)})|{'|'.join(cased)})(?![\w/-]|\.\w)")
