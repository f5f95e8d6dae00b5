"""How much of a question that training must not say is in what training can say."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any

from book.tutor.dialogues import dialogues
from book.tutor.glossary import load_knowledge, load_phrasings
from book.tutor.polar import Pair
from book.tutor.templates import expand, normalise, parse
from book.tutor.wider import load_wider

GRAM = 4
"""Words in a row that count as common to two questions."""
MOST = 0.8
"""Share of an unseen question's grams that one training question may have."""
MANY = 3000
"""Expansions of a template beyond which it is sampled by the conversations alone."""


@cache
def sample() -> list[list[dict[str, Any]]]:
    """Of the training text. Not written at import, which every worker of a test run does."""
    return list(dialogues(seed=11, count=4000))


def grams(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    rows = [tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)]
    return set(rows) or {tuple(words)}


def said_by(pair: Pair) -> list[str]:
    """What a pair says before a frame and a typist change it."""
    rows = [pair.question(True), pair.question(False)]
    if pair.is_sentence:
        rows += [pair.sentence(True), pair.sentence(False), pair.sentence(True, denied=True)]
    return rows


@cache
def written_questions() -> frozenset[str]:
    """Normal forms of what whole questions can say, and of what was said in a sample."""
    wider = load_wider()
    rows = [row for faq in load_knowledge().faqs for row in faq.ask]
    rows += [row for entry in wider.situations for row in (*entry.ask, *entry.later)]
    rows += [row for claim in wider.claims for row in (*claim.yes, *claim.no)]
    pairs = [pair for claim in wider.claims for pair in claim.pairs]
    pairs += [pair for claim in wider.claims for ways in claim.relations for pair in ways]
    rows += [row for pair in pairs for row in said_by(pair)]
    rows += [row for tool in load_phrasings("tools")["tool"] for row in tool["ask"]]
    texts = set()
    for row in rows:
        count = 1
        for alternatives in parse(row):
            count *= len(alternatives)
        if count <= MANY:
            texts |= {normalise(text) for text in expand(row)}
    said = (m["content"] for talk in sample() for m in talk if m["role"] == "user")
    return frozenset(texts.union(map(normalise, said)))


def most_shared(questions: Iterable[str], others: Iterable[str]) -> dict[str, float]:
    """For each question longer than a gram, the largest share of its grams that one other has.

    Both are normal forms.
    """
    by_gram = defaultdict(list)
    for text in others:
        for gram in grams(text):
            by_gram[gram].append(text)
    worst = {}
    for text in questions:
        wanted = grams(text)
        shared = Counter(other for gram in wanted for other in by_gram[gram])
        if len(text.split()) > GRAM:
            worst[text] = max(shared.values(), default=0) / len(wanted)
    return worst
