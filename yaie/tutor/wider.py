"""What the tutor knows beyond definitions: claims, situations and sides of a term.

A claim is answered with "Yes" or "No" and the reason; a situation is a question that need not name
the term; a facet is one more side of a term, such as its price or its users.
"""

import random
from dataclasses import dataclass
from functools import lru_cache

from yaie.core.compat import tomllib
from yaie.tutor import TUTOR_DIR
from yaie.tutor.glossary import Facts, Term, load_knowledge, load_phrasings, sentences
from yaie.tutor.questions import as_typed, fill
from yaie.tutor.templates import sample

STATEMENTS = (
    "[Is it true|Is it right|Is it correct|Is it the case|Am I right|Would you say] that {s}",
    "{s}[, right|, correct|, true or false|, yes or no|, am I right|, is that so|, is that true]",
    "[So|I think|I heard that|I read that|My friend says] {s}[. Is that so|. True|, is that true|, yes]",
    "[True or false|Yes or no|Correct]: {s}",
    "So {s}",
)
"""How a sentence {s} becomes a question that wants yes or no."""


@dataclass(frozen=True)
class Claim:
    """Questions with the answer yes, others with the answer no, and the one reason for both."""

    text: str
    term: str
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()
    true: tuple[str, ...] = ()
    false: tuple[str, ...] = ()

    def answer(self, is_so: bool) -> str:
        """As the tutor says it."""
        return f"{'Yes' if is_so else 'No'}: {self.text}"


@dataclass(frozen=True)
class Situation:
    """A question in words of its own, and its answer."""

    topic: str
    ask: tuple[str, ...]
    answer: str
    facts: Facts = ()


@dataclass(frozen=True)
class Wider:
    """All of it; `facets` maps the name of a term to its sides."""

    claims: tuple[Claim, ...]
    situations: tuple[Situation, ...]
    facets: dict[str, dict[str, str]]
    gists: dict[str, tuple[str, ...]]
    """What a term is, without naming it."""

    def said_of(self, term: str) -> set[str]:
        """Every sentence that these entries have for the term."""
        texts = [claim.text for claim in self.claims if claim.term == term]
        texts += [entry.answer for entry in self.situations if entry.topic == term]
        texts += self.facets.get(term, {}).values()
        return {part for text in texts for part in sentences(text)}


def _composed(of: str) -> str:
    """The parts of an entry that "term part+part" names."""
    name, _, parts = of.rpartition(" ")
    term = load_knowledge().by_name[name]
    return " ".join(str(getattr(term, part)) for part in parts.split("+"))


@lru_cache(maxsize=1)
def load_wider() -> Wider:
    """Read the claims, situations and facets of `knowledge/`."""
    claims: list[Claim] = []
    situations: list[Situation] = []
    facets: dict[str, dict[str, str]] = {}
    gists: dict[str, tuple[str, ...]] = {}
    for path in sorted((TUTOR_DIR / "knowledge").glob("*.toml")):
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        for table in data.get("claim", []):
            lists = {key: tuple(table.get(key, ())) for key in ("yes", "no", "true", "false")}
            claims.append(Claim(table["text"], table["term"], **lists))
        for table in data.get("situation", []):
            answer = table["answer"] if "answer" in table else _composed(table["of"])
            facts = tuple(table.get("facts", ()))
            situations.append(Situation(table["topic"], tuple(table["ask"]), answer, facts))
        facets.update(data.get("facets", {}))
        gists.update({name: tuple(texts) for name, texts in data.get("gists", {}).items()})
    return Wider(tuple(claims), tuple(situations), facets, gists)


def ask_claim(claim: Claim, rng: random.Random, follow: bool = False) -> tuple[str, str]:
    """A question about the claim and its answer; `follow`: the term was the topic, so "it" will do."""
    is_so = bool(claim.yes) and (not claim.no or rng.random() < 0.5)
    said = claim.true if is_so else claim.false
    if said and rng.random() < 0.35:
        template = sample(rng.choice(STATEMENTS), rng).replace("{s}", rng.choice(said))
    else:
        template = rng.choice(claim.yes if is_so else claim.no)
    term = load_knowledge().by_name.get(claim.term)
    if term is None:
        text = sample(template, rng)
    elif follow and rng.random() < 0.75:
        text = sample(template, rng).replace("{t}", rng.choice(("it", "it", "that", "this")))
        text = rng.choice(("", "", "So ", "And ", "But ")) + text
    else:
        text = fill(template, rng, t=term)
    return as_typed(text, rng), claim.answer(is_so)


def ask_situation(situation: Situation, rng: random.Random) -> str:
    """A question that the situation answers."""
    return as_typed(fill(rng.choice(situation.ask), rng), rng)


def ask_facet(term: Term, rng: random.Random, follow: bool = False) -> tuple[str, str]:
    """A question about one side of the term, and the answer; the term must have facets."""
    side, answer = rng.choice(list(load_wider().facets[term.name].items()))
    templates = load_phrasings("facets")[side]["follow" if follow else "ask"]
    return as_typed(fill(rng.choice(templates), rng, t=term), rng), answer


def ask_gist(name: str, rng: random.Random) -> str:
    """A question for the term of that name that describes it instead; the definition is the answer."""
    template = rng.choice(load_phrasings("gists")["gist"]["templates"])
    text = sample(template, rng).replace("{g}", rng.choice(load_wider().gists[name]))
    return as_typed(text, rng)
