"""Generates the conversations the tutor is trained on; the same seed gives the same ones.

A conversation is a walk: each turn is a new question, a follow-up on the current topic, small
talk, a sum, or something off the subject that is refused.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from yaie.tutor.arithmetic import training_sum
from yaie.tutor.glossary import Contrast, Faq, Knowledge, Term, load_knowledge
from yaie.tutor.off_subject import ask_off_subject
from yaie.tutor.questions import as_typed, ask, other_term, system_message
from yaie.tutor.templates import sample

Message = dict[str, str]
"""{"role": "system" | "user" | "assistant", "content": text}, as chat templates want it."""

REFUSAL = (
    "I only know about LLM inference engines, so I cannot help with that. "
    "Ask me about KV caches, scheduling, sampling or kernels."
)

# Weights of what may come next. A follow-up needs a topic; the rest may come at any time.
_OPENING = {"term": 58, "contrast": 9, "faq": 15, "off_subject": 30, "sum": 8}
_LATER = {"follow_up": 48, "term": 20, "contrast": 3, "faq": 14, "off_subject": 16, "sum": 6}
_INTENTS = {
    "define": 36, "explain": 12, "short": 6, "why": 26, "how": 16, "define_how": 3, "example": 5,
    "simple": 5, "where": 2,
}  # fmt: skip
_FOLLOW_UPS = {
    "follow_why": 20, "follow_how": 16, "follow_example": 13, "follow_short": 9,
    "follow_simple": 8, "follow_define": 20, "follow_contrast": 10, "follow_where": 4,
}  # fmt: skip
_REFUSED = "refusal"


def _pick(weights: dict[str, int], rng: random.Random) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


def answer(term: Term, intent: str, rng: random.Random) -> str:
    """What the tutor says about a term; `explain` adds one of several second parts at random."""
    match intent.removeprefix("follow_"):
        case "define" | "lab":
            return term.what
        case "explain":
            second = rng.choices((term.why, term.how, term.example), (60, 25, 15))[0]
            return f"{term.what} {second}"
        case "define_how":
            return f"{term.what} {term.how}"
        case "simple":
            return term.simply
        case part:
            text: str = getattr(term, part)
            return text


@dataclass
class Conversation:
    """The messages so far, and what a follow-up would refer to."""

    messages: list[Message] = field(default_factory=list)
    topic: str = ""
    """Name of the term last explained, `_REFUSED` after a refusal, else empty."""

    def add(self, question: str, reply: str, topic: str) -> None:
        self.messages.append({"role": "user", "content": question})
        self.messages.append({"role": "assistant", "content": reply})
        self.topic = topic


class DialogueWriter:
    """Writes conversations about the knowledge, drawing everything from one random generator."""

    def __init__(self, rng: random.Random, knowledge: Knowledge | None = None) -> None:
        self.rng = rng
        self.knowledge = knowledge or load_knowledge()
        self._openers = [faq for faq in self.knowledge.faqs if not faq.only_after]
        self._any_time = [faq for faq in self._openers if not faq.only_first]
        self._later = [faq for faq in self.knowledge.faqs if faq.only_after and not faq.after]

    def dialogue(self) -> list[Message]:
        """One conversation, with or without a system message."""
        talk = Conversation()
        if (system := system_message(self.rng)) is not None:
            talk.messages.append({"role": "system", "content": system})
        turns = self.rng.choices((1, 2, 3, 4, self.rng.randint(5, 24)), (44, 22, 17, 10, 7))[0]
        for turn in range(turns):
            self._add_turn(talk, first=turn == 0)
        return talk.messages

    def _add_turn(self, talk: Conversation, first: bool) -> None:
        kind = _pick(_OPENING if first else _LATER, self.rng)
        if kind == "follow_up":
            self._follow_up(talk)
        elif kind == "term":
            self._about_term(talk)
        elif kind == "contrast":
            self._about_contrast(talk)
        elif kind == "faq":
            pool = self._openers if first else self._any_time + self._later
            self._about_faq(talk, self.rng.choice(pool))
        elif kind == "sum":
            problem = training_sum(self.rng)
            talk.add(as_typed(problem.question, self.rng), problem.answer, "")
        else:
            talk.add(ask_off_subject(self.rng), REFUSAL, _REFUSED)

    def _about_term(self, talk: Conversation) -> None:
        term = self.rng.choice(self.knowledge.terms)
        intent = _pick(_INTENTS, self.rng)
        if term.is_lab and self.rng.random() < 0.5:
            intent = "lab"
        talk.add(ask(intent, self.rng, t=term), answer(term, intent, self.rng), term.name)

    def _about_contrast(self, talk: Conversation) -> None:
        """A written contrast in either order, or, less often, two terms side by side."""
        rng = self.rng
        if rng.random() < 0.7:
            contrast = rng.choice(self.knowledge.contrasts)
            first, second = rng.sample([self._named(name) for name in contrast.between], 2)
            reply = contrast.answer
        else:
            first = rng.choice(self.knowledge.terms)
            second = other_term(self.knowledge, first, rng)
            reply = self.knowledge.contrast(first, second)
        talk.add(ask("contrast", rng, a=first, b=second), reply, first.name)

    def _named(self, name: str) -> Term:
        """The term of that name, or a bare stand-in for a plain word such as "training"."""
        return self.knowledge.by_name.get(name) or Term(name, "", "", "", "", {})

    def _about_faq(self, talk: Conversation, faq: Faq) -> None:
        # Small talk leaves the topic as it is: one may say thanks and then ask "why?".
        question = as_typed(sample(self.rng.choice(faq.ask), self.rng), self.rng)
        talk.add(question, faq.answer, faq.after or talk.topic)

    def _follow_up(self, talk: Conversation) -> None:
        """A question that only makes sense after the topic; without a topic, a new question."""
        related = [faq for faq in self.knowledge.faqs if faq.after and faq.after == talk.topic]
        if related and self.rng.random() < 0.35:
            self._about_faq(talk, self.rng.choice(related))
            return
        topic = self.knowledge.by_name.get(talk.topic)
        if topic is None:
            self._about_term(talk)
            return
        rng = self.rng
        intent = _pick(_FOLLOW_UPS, rng)
        if intent == "follow_define":
            other = other_term(self.knowledge, topic, rng)
            talk.add(ask(intent, rng, t=other), other.what, other.name)
        elif intent == "follow_contrast":
            other = self._contrast_partner(topic)
            reply = self.knowledge.contrast(topic, other)
            talk.add(ask(intent, rng, t=other), reply, topic.name)
        else:
            talk.add(ask(intent, rng), answer(topic, intent, rng), topic.name)

    def _contrast_partner(self, topic: Term) -> Term:
        """A term with a written contrast to the topic if there is one, else often any other."""
        partners = [_other(pair, topic.name) for pair in self.knowledge.contrasts]
        names = [name for name in partners if name in self.knowledge.by_name]
        if names and self.rng.random() < 0.7:
            return self.knowledge.by_name[self.rng.choice(names)]
        return other_term(self.knowledge, topic, self.rng)


def _other(contrast: Contrast, name: str) -> str:
    """The other side of a contrast, or an empty string if `name` is on neither side."""
    first, second = contrast.between
    return {first: second, second: first}.get(name, "")


def dialogues(seed: int, count: int) -> Iterator[list[Message]]:
    """`count` conversations, the same ones for the same seed."""
    writer = DialogueWriter(random.Random(seed))
    for _ in range(count):
        yield writer.dialogue()
