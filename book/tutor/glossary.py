"""Reads `knowledge/*.toml`: what the tutor knows, as plain dataclasses.

The same files are meant to feed the book's glossary: a term has one definition in this repository.
"""

import re
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any

from book.tutor import TEXTS
from yaie.core.compat import tomllib

Facts = tuple[str, ...]
"""What an answer must mention, all of it, in any case and order; "a|b" means either one."""

_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")


def sentences(text: str) -> list[str]:
    """The text cut after each full stop, question mark or exclamation mark."""
    return _SENTENCE_END.split(text)


def mentions(answer: str, facts: Facts) -> bool:
    """Whether the answer contains one alternative of every fact."""
    lower = answer.lower()
    return all(any(option in lower for option in fact.split("|")) for fact in facts)


@dataclass(frozen=True)
class Term:
    """One glossary entry. `what` stands alone; `why`, `how` and `example` may follow it."""

    name: str
    what: str
    why: str
    how: str
    example: str
    facts: dict[str, Facts]
    """Required facts of `what`, `why` and `how`."""
    article: str = ""
    aliases: tuple[str, ...] = ()
    simple: str = ""
    """An everyday comparison; without one, the definition and the example serve."""
    lab: str = ""
    """The lab that practises the term, if there is one."""

    @property
    def short(self) -> str:
        return sentences(self.what)[0]

    @property
    def is_lab(self) -> bool:
        return self.name.endswith(" lab")

    @property
    def sentences(self) -> list[str]:
        """Every sentence of the entry, its definition first."""
        texts = (self.what, self.why, self.how, self.example, self.simple, self.where)
        return [sentence for text in texts for sentence in sentences(text)]

    @property
    def simply(self) -> str:
        return self.simple or f"{self.short} {self.example}"

    @property
    def where(self) -> str:
        if self.lab:
            return f"You practise it in the lab {self.lab}."
        return "No lab is about it alone; the book's glossary and its chapters explain it."


@dataclass(frozen=True)
class Contrast:
    """How two things differ, `between` being two term names or plain words."""

    between: tuple[str, str]
    answer: str
    facts: Facts = ()


@dataclass(frozen=True)
class Faq:
    """A whole question with its own answer."""

    id: str
    ask: tuple[str, ...]
    answer: str
    facts: Facts
    after: str = ""
    """The term after which the question may also come as a follow-up."""
    only_after: bool = False
    """Never opens a conversation."""
    only_first: bool = False
    """Never comes after another turn."""


@dataclass(frozen=True)
class Knowledge:
    """Everything the tutor is taught, apart from sums and refusals."""

    terms: tuple[Term, ...]
    contrasts: tuple[Contrast, ...]
    faqs: tuple[Faq, ...]
    by_name: dict[str, Term] = field(repr=False)
    further_contrasts: tuple[Contrast, ...] = ()
    """Pairs that no held-out question is about; see `all_contrasts`."""

    @cached_property
    def all_contrasts(self) -> tuple[Contrast, ...]:
        """Every pair with a written answer."""
        return self.contrasts + self.further_contrasts

    def contrast(self, first: Term, second: Term) -> str:
        """How two terms differ: the written answer, or else both definitions side by side."""
        written = self._written.get(frozenset((first.name, second.name)))
        return written or f"{first.short} {second.short}"

    @cached_property
    def _written(self) -> dict[frozenset[str], str]:
        return {frozenset(contrast.between): contrast.answer for contrast in self.all_contrasts}


def _tuples(table: dict[str, Any]) -> dict[str, Any]:
    """TOML lists as tuples, so that the dataclasses stay hashable all through."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


@lru_cache(maxsize=1)
def load_knowledge() -> Knowledge:
    """Read all files of `knowledge/`, in the order of their names."""
    terms: list[Term] = []
    contrasts: list[Contrast] = []
    further: list[Contrast] = []
    faqs: list[Faq] = []
    for path in sorted((TEXTS / "knowledge").glob("*.toml")):
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        for table in data.get("term", []):
            facts = {part: tuple(required) for part, required in table.pop("facts").items()}
            terms.append(Term(**_tuples(table), facts=facts))
        contrasts += [Contrast(**_tuples(table)) for table in data.get("contrast", [])]
        further += [Contrast(**_tuples(table)) for table in data.get("further_contrast", [])]
        faqs += [Faq(**_tuples(table)) for table in data.get("faq", [])]
    by_name = {term.name: term for term in terms}
    return Knowledge(tuple(terms), tuple(contrasts), tuple(faqs), by_name, tuple(further))


@cache
def load_phrasings(name: str) -> dict[str, Any]:
    """One file of `phrasings/`, by its name without the suffix."""
    path = TEXTS / "phrasings" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
