"""The glossary's terms: those that the tutor was taught, and book/terms.toml with what came later."""

from functools import cache

from book.tools.mdbook import ROOT
from book.tutor.glossary import Term, load_knowledge
from yaie.core.compat import tomllib

LATER = ROOT / "book/terms.toml"


@cache
def all_terms() -> tuple[Term, ...]:
    """The tutor's terms first. No two have one name."""
    taught = load_knowledge().terms
    later = tomllib.loads(LATER.read_text("utf-8"))["term"]
    added = tuple(Term(**{"how": "", "facts": {}, **entry}) for entry in later)
    twice = {term.name for term in taught} & {term.name for term in added}
    if twice:
        raise ValueError(f"book/terms.toml has what the tutor was taught: {sorted(twice)}")
    return taught + added
