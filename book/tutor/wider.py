"""What the tutor knows beyond definitions: claims, situations and sides of a term.

A claim is answered with "Yes" or "No" and the reason; a situation is a question that need not name
the term; a facet is one more side of a term, such as its price or its users.
"""

import random
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from book.tutor import TEXTS
from book.tutor.glossary import Facts, Term, load_knowledge, load_phrasings, sentences
from book.tutor.polar import Pair, draw_pair, parse_pair
from book.tutor.questions import as_typed, fill
from book.tutor.relations import parse_relation
from book.tutor.templates import sample
from yaie.core.compat import tomllib

STATEMENTS = (
    "[Is it true|Is it right|Is it correct|Is it the case|Am I right|Would you say] that {s}",
    "{s}[, right|, correct|, true or false|, yes or no|, am I right|, is that so|, is that true]",
    "[So|I think|I heard that|I read that|My friend says] {s}[. Is that so|. True|, is that true|, yes]",
    "[True or false|Yes or no|Correct]: {s}",
    "So {s}[, then|]",
    "[Does that mean|Does it follow|Can I say|May I assume|Can one rely on it] that {s}",
    "[Do you agree|Do I understand correctly] that {s}",
    "[That means|So in other words,|If I understand it,|I take it that] {s}[, right|, or|, yes|]",
    "[I conclude that|I would have thought that] {s}[, right|, correct|]",
    "{s}[. Did I get that right|. Do you agree|. Am I correct|, is that so|. Can I write that down]",
    "[Somebody|My colleague|The exam|A student] [says|claims] that {s}[. Right|. Is that so|]",
)
"""How a sentence {s} becomes a question that wants yes or no."""
DENIALS = (
    "[Is it|Would it be] [wrong|false|incorrect|untrue|a mistake|an error] [to say|to claim] that {s}",
    "[Is it|Would it be] [wrong|a mistake|an error] [to think|to believe] that {s}",
    "[Is it|Is it really] [wrong|false|a myth|a misunderstanding] that {s}",
    "[Am I wrong|Am I mistaken] [if I say|if I think|when I say|to assume] that {s}",
)
"""The same, where yes means that the sentence is false."""
DENIED = 0.12
"""Share of the sentences that are asked about in this way."""


PAIRED = 0.6
"""Share of the questions about a claim that come from its pairs, if it has some."""
RELATED = 0.4
"""Share of the questions about a claim that come from its relations, if it has some."""


_LISTS = ("yes", "no", "true", "false")


@dataclass(frozen=True)
class Claim:
    """Questions with the answer yes, others with the answer no, and the one reason for both."""

    text: str
    term: str
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()
    true: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    relations: tuple[tuple[Pair, ...], ...] = ()
    """For each relation, the ways to ask for it."""

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
    later: tuple[str, ...] = ()
    """Ways to ask that need the topic before them, such as "and what is lost then"."""


@dataclass(frozen=True)
class Wider:
    """All of it; `facets` maps the name of a term to its sides."""

    claims: tuple[Claim, ...]
    situations: tuple[Situation, ...]
    facets: dict[str, dict[str, str]]
    gists: dict[str, tuple[str, ...]]
    """What a term is, without naming it."""

    @cached_property
    def later(self) -> dict[str, tuple[Situation, ...]]:
        """The situations of each topic that may be met after it in words that need it."""
        topics = {entry.topic for entry in self.situations if entry.later}
        return {
            topic: tuple(s for s in self.situations if s.topic == topic and s.later)
            for topic in sorted(topics)
        }

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


def _asked_again(claims: list[Claim], tables: list[dict[str, Any]]) -> tuple[Claim, ...]:
    """The claims, with the further questions of each table given to the claim that it names."""
    merged = list(claims)
    for table in tables:
        begins = [claim.text.startswith(table["same_as"]) for claim in merged]
        if sum(begins) != 1:
            raise ValueError(f"{sum(begins)} claims begin with {table['same_as']!r}, not one")
        at = begins.index(True)
        claim = merged[at]
        lists = {key: (*getattr(claim, key), *table.get(key, ())) for key in _LISTS}
        pairs = (*claim.pairs, *map(parse_pair, table.get("pairs", ())))
        relations = (*claim.relations, *map(parse_relation, table.get("relations", ())))
        merged[at] = Claim(claim.text, claim.term, **lists, pairs=pairs, relations=relations)
    return tuple(merged)


def _met_again(situations: list[Situation], tables: list[dict[str, Any]]) -> tuple[Situation, ...]:
    """The situations, with the further questions of each table given to the one that it names."""
    merged = list(situations)
    for table in tables:
        named = [
            at
            for at, entry in enumerate(merged)
            if entry.topic == table["topic"] and entry.answer.startswith(table["same_as"])
        ]
        if len(named) != 1:
            raise ValueError(
                f"{len(named)} situations of {table['topic']!r} begin with {table['same_as']!r}, not one"
            )
        entry = merged[named[0]]
        asks = (*entry.ask, *table.get("ask", ()))
        later = (*entry.later, *table.get("later", ()))
        merged[named[0]] = Situation(entry.topic, asks, entry.answer, entry.facts, later)
    return tuple(merged)


@lru_cache(maxsize=1)
def load_wider() -> Wider:
    """Read the claims, situations and facets of `knowledge/`."""
    claims: list[Claim] = []
    again: list[dict[str, Any]] = []
    situations: list[Situation] = []
    met_again: list[dict[str, Any]] = []
    facets: dict[str, dict[str, str]] = {}
    gists: dict[str, tuple[str, ...]] = {}
    for path in sorted((TEXTS / "knowledge").glob("*.toml")):
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        for table in data.get("claim", []):
            if "same_as" in table:
                again.append(table)
                continue
            lists = {key: tuple(table.get(key, ())) for key in _LISTS}
            pairs = tuple(map(parse_pair, table.get("pairs", ())))
            relations = tuple(map(parse_relation, table.get("relations", ())))
            claims.append(
                Claim(table["text"], table["term"], **lists, pairs=pairs, relations=relations)
            )
        for table in data.get("situation", []):
            if "same_as" in table:
                met_again.append(table)
                continue
            answer = table["answer"] if "answer" in table else _composed(table["of"])
            facts = tuple(table.get("facts", ()))
            situations.append(Situation(table["topic"], tuple(table["ask"]), answer, facts))
        for name, sides in data.get("facets", {}).items():
            facets.setdefault(name, {}).update(sides)
        gists.update({name: tuple(texts) for name, texts in data.get("gists", {}).items()})
    return Wider(_asked_again(claims, again), _met_again(situations, met_again), facets, gists)


def _drawn_pairs(claim: Claim, rng: random.Random) -> tuple[Pair, ...]:
    """The pairs that the next question may come from: of one relation, the claim's own, or none."""
    if claim.relations and (rng.random() < RELATED or not (claim.pairs or claim.yes)):
        return rng.choice(claim.relations)
    if claim.pairs and (rng.random() < PAIRED or not claim.yes):
        return claim.pairs
    return ()


def ask_claim(claim: Claim, rng: random.Random, follow: bool = False) -> tuple[str, str]:
    """A question about the claim and its answer; `follow`: the term was the topic, so "it" will do."""
    pairs = _drawn_pairs(claim, rng)
    paired = bool(pairs)
    is_so = rng.random() < 0.5 if paired or (claim.yes and claim.no) else bool(claim.yes)
    said = claim.true if is_so else claim.false
    if paired:
        template, framed = draw_pair(rng.choice(pairs), is_so, rng)
        if framed:
            denied = rng.random() < DENIED
            frame = rng.choice(DENIALS if denied else STATEMENTS)
            template = sample(frame, rng).replace("{s}", template)
            is_so = is_so != denied
    elif said and rng.random() < 0.4:
        denied = rng.random() < DENIED
        frame = rng.choice(DENIALS if denied else STATEMENTS)
        template = sample(frame, rng).replace("{s}", rng.choice(said))
        is_so = is_so != denied
    else:
        template = rng.choice(claim.yes if is_so else claim.no)
    term = load_knowledge().by_name.get(claim.term)
    if term is None:
        text = sample(template, rng)
    elif follow and rng.random() < 0.75:
        text = sample(template, rng).replace("{t}", rng.choice(("it", "it", "that", "this")))
        start = rng.choice(("", "", "So ", "And ", "But "))
        text = (
            f"{start}{text[:1].lower()}{text[1:]}"
            if start and text[1:2].islower()
            else start + text
        )
    else:
        text = fill(template, rng, t=term)
    return as_typed(text, rng, every_word=True), claim.answer(is_so)


def ask_situation(situation: Situation, rng: random.Random, follow: bool = False) -> str:
    """A question that the situation answers; one with a number keeps all its words.

    `follow`: its topic was just spoken of.
    """
    text = fill(rng.choice(situation.later if follow else situation.ask), rng)
    return as_typed(text, rng, every_word=any(letter.isdigit() for letter in text))


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
