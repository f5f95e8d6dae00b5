"""Reference pages made from what they describe: the glossary, and tables of settings, ranges, fields."""

import json
import re
from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from itertools import groupby

from book.tools.contents import chapter_pages
from book.tools.glossary import printed_terms
from book.tools.search import pages_of_terms
from book.tutor.glossary import Term
from yaie.core.config import ENV_PREFIX, EngineConfig
from yaie.core.ranges import RANGES
from yaie.server.lenient.fields import FIELDS, Beside, Form, Idle, Refused, Renamed
from yaie.server.settings import ServerSettings

SWITCHES = {"True": "on", "False": "off", "()": "none"}


def render_settings(whose: str = "engine") -> str:
    """A table of every setting of the engine, or of the "server": name, default, meaning."""
    kind, absent = {
        "engine": (EngineConfig, "decided at start"),
        "server": (ServerSettings, "none"),
    }[whose]
    settings = fields(kind)
    rows = [
        f"| `{item.name}` | {_default(item.default, absent)} | {item.metadata['help']} |"
        for item in settings
    ]
    example = next(f"{ENV_PREFIX}{one.name.upper()}" for one in settings if one.metadata["env"])
    head = f"| setting | default | meaning (in the environment, `{example}` and so on) |"
    return "\n".join([head, "|---|---|---|", *rows])


def render_ranges() -> str:
    """A table of every number that a request may hold: fields, range, unit, meaning."""
    rows = [
        f"| {', '.join(f'`{name}`' for name in one.fields or (one.name,))} | {one.told} | {one.unit} "
        f"| {one.meaning} |"
        for one in RANGES.values()
    ]
    return "\n".join(["| number | range | unit | meaning |", "|---|---|---|---|", *rows])


def render_fields() -> str:
    """A table of every field of other servers' APIs, in the order of the code: what becomes of it."""
    rows = [f"| `{name}` | {told} |" for name, told in _verdicts()]
    return "\n".join(["| field | what happens |", "|---|---|", *rows])


def _verdicts() -> Iterable[tuple[str, str]]:
    for name, verdict in FIELDS.items():
        if isinstance(verdict, Renamed):
            ours = " or ".join(f"`{it}`" for it in verdict.names if it != name)
            yield name, f"honoured as {ours}; a name of {verdict.source}"
        elif isinstance(verdict, Refused):
            passes = " or ".join(f"`{json.dumps(value)}`" for value in verdict.neutral)
            yield (
                name,
                f"{passes} passes; else refused: {verdict.why}"
                if passes
                else (f"refused: {verdict.why}"),
            )
        elif isinstance(verdict, Form):
            yield name, f"honoured: {verdict.what}"
        elif isinstance(verdict, Beside):
            yield name, f"honoured by {', '.join(verdict.dialects)}: {verdict.what}"
        elif isinstance(verdict, Idle):
            yield name, f"no effect without `{verdict.beside}`"
        else:
            yield name, f"ignored: {verdict.why}"


def _default(value: object, absent: str) -> str:
    return absent if value is None else SWITCHES.get(str(value), f"`{value}`")


def render_glossary() -> str:
    """Every term, by letter, as definition lists."""
    terms = sorted((term for term in printed_terms() if not term.is_lab), key=_key)
    pages = pages_of_terms()
    return "\n".join(
        f"\n## {letter}\n\n{_definitions(group, pages)}"
        for letter, group in groupby(terms, key=lambda term: _key(term)[0].upper())
    )


def _key(term: Term) -> str:
    return re.sub(r"^\W+", "", term.name.lower())


def _definitions(terms: Iterable[Term], pages: dict[str, str]) -> str:
    return "\n".join(_definition(term, pages[term.name.lower()]) for term in terms)


def _definition(term: Term, page: str) -> str:
    """What is said of a term, and the chapter that the search finds first for it."""
    file = page.replace(".html", ".md")
    chapter = (
        "" if file in ("index.md", "glossary.md") else f" Chapter: [{_titles()[file]}]({file})."
    )
    words = " ".join((term.what, term.why, term.example))
    return f"{_plain(term.name)}\n: {_plain(words)}{chapter}\n"


@cache
def _titles() -> dict[str, str]:
    """The title of each page, by its file."""
    return {page: title for title, page in chapter_pages().items()}


def _plain(text: str) -> str:
    """Text of which Markdown makes nothing else: of names' signs, or a dash of an option's hyphens."""
    return re.sub(r"[\\`*_<>\[\]|$]|--", lambda signs: re.sub("(.)", r"\\\1", signs[0]), text)
