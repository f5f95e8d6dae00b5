"""The glossary's terms: those that the tutor was taught, and book/terms.toml with what came later."""

from dataclasses import replace
from functools import cache
from typing import Any

from book.tools.mdbook import ROOT
from book.tutor.glossary import Term, load_knowledge
from yaie.core.compat import tomllib

LATER = ROOT / "book/terms.toml"


@cache
def all_terms() -> tuple[Term, ...]:
    """The tutor's terms first. No two have one name."""
    taught = load_knowledge().terms
    added = tuple(Term(**{"how": "", "facts": {}, **entry}) for entry in _table()["term"])
    twice = {term.name for term in taught} & {term.name for term in added}
    if twice:
        raise ValueError(f"book/terms.toml has what the tutor was taught: {sorted(twice)}")
    return taught + added


@cache
def printed_terms() -> tuple[Term, ...]:
    """The terms as the glossary prints them: what is no longer so has other words than the tutor's."""
    words = {entry["name"]: entry for entry in _table()["printed"]}
    unknown = words.keys() - {term.name for term in all_terms()}
    if unknown:
        raise ValueError(f"book/terms.toml: the glossary has no {sorted(unknown)}")
    return tuple(replace(term, **words.get(term.name, {})) for term in all_terms())


def _table() -> dict[str, Any]:
    return tomllib.loads(LATER.read_text("utf-8"))
