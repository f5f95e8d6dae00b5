"""Generates the conversations the tutor is trained on; the same seed gives the same ones.

A conversation is a walk: each turn is a new question, a follow-up on the current topic, small
talk, a sum, or something off the subject that is refused. Some conversations offer tools.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from book.tutor.arithmetic import training_sum
from book.tutor.glossary import Contrast, Faq, Knowledge, Term, load_knowledge
from book.tutor.off_subject import ask_off_subject
from book.tutor.questions import as_typed, ask, other_term, system_message
from book.tutor.templates import sample
from book.tutor.tool_schema import Tool, tools_turn
from book.tutor.tool_talk import ask_beside_tools, ask_missing_tool, call_turns
from book.tutor.tool_use import draw_tools
from book.tutor.unseen import is_reserved
from book.tutor.wider import ask_claim, ask_facet, ask_gist, ask_situation, load_wider

Message = dict[str, str]
"""{"role": "system" | "user" | "assistant", "content": text}, as chat templates want it."""

REFUSAL = (
    "I only know about LLM inference engines, so I cannot help with that. "
    "Ask me about KV caches, scheduling, sampling or kernels."
)

# Weights of what may come next. A follow-up needs a topic; the rest may come at any time.
# Refusals and reasons are what further training forgets first: they have more than their share.
_OPENING = {
    "term": 88, "contrast": 9, "faq": 15, "off_subject": 62, "sum": 7,
    "claim": 122, "situation": 80, "facet": 24, "gist": 9,
}  # fmt: skip
_LATER = {
    "follow_up": 60, "term": 28, "contrast": 3, "faq": 13, "off_subject": 33, "sum": 4,
    "claim": 43, "situation": 28, "facet": 10, "gist": 3,
}  # fmt: skip
_WITH_TOOLS = {"call": 51, "missing": 11, "other": 30, "small_talk": 5, "sum": 3}
OFFERED_TOOLS = 0.21
"""Share of the conversations that offer tools."""
_INTENTS = {
    "define": 36, "explain": 12, "short": 6, "why": 32, "how": 16, "define_how": 3, "example": 5,
    "simple": 5, "where": 2,
}  # fmt: skip
_FOLLOW_UPS = {
    "follow_why": 20, "follow_how": 16, "follow_example": 13, "follow_short": 9,
    "follow_simple": 8, "follow_define": 20, "follow_contrast": 10, "follow_where": 4,
}  # fmt: skip
_REFUSED = "refusal"
_SMALL_TALK = ("hello", "who", "can-do", "thanks", "bye", "language")
_ASKING = ("is", "isn't", "are", "aren't", "do", "does", "can")
"""How a question on two terms begins that wants yes or no."""
_WITHOUT = (
    "without",
    "leave out",
    "omit",
    "drop",
    "avoid",
    "away",
    "ignore",
    "remove",
    "disable",
    "off",
)


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


def with_verdict(intent: str, question: str, reply: str) -> str:
    """The reply behind "Yes" or "No", if the question, as it was before it was typed, wants one."""
    words = question.lower().split()
    if intent.endswith("contrast") and words[0] in _ASKING and words[1] not in ("you", "there"):
        return f"{'Yes' if 'different' in words else 'No'}: {reply}"
    if intent not in ("why", "follow_why"):
        return reply
    if words[0] in ("is", "are", "do", "does") and words[:2] not in (
        ["do", "you"],
        ["is", "there"],
    ):
        return f"Yes: {reply}"
    if words[0] in ("can", "could", "may", "would") and any(word in question for word in _WITHOUT):
        return f"No: {reply}"
    return reply


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

    def __init__(
        self, rng: random.Random, knowledge: Knowledge | None = None, systems: float = 1.0
    ) -> None:
        self.rng, self.systems = rng, systems
        self.knowledge = knowledge or load_knowledge()
        self._openers = [faq for faq in self.knowledge.faqs if not faq.only_after]
        self._any_time = [faq for faq in self._openers if not faq.only_first]
        self._later = [faq for faq in self.knowledge.faqs if faq.only_after and not faq.after]
        self._small_talk = [faq for faq in self._openers if faq.id in _SMALL_TALK]
        self.wider = load_wider()
        self._sided = [term for term in self.knowledge.terms if term.name in self.wider.facets]

    def dialogue(self) -> list[Message]:
        """One conversation, with or without a system message, without any unseen question."""
        while True:
            messages = self._dialogue()
            if not any(is_reserved(message) for message in messages):
                return messages

    def _dialogue(self) -> list[Message]:
        talk = Conversation()
        system = system_message(self.rng)
        if self.systems < 1 and self.rng.random() >= self.systems:
            system = None
        tools = draw_tools(self.rng) if self.rng.random() < OFFERED_TOOLS else []
        if tools:
            system = tools_turn([tool.line() for tool in tools], system or "")
        if system is not None:
            talk.messages.append({"role": "system", "content": system})
        turns = self.rng.choices((1, 2, 3, 4, self.rng.randint(5, 24)), (44, 22, 17, 10, 7))[0]
        for turn in range(turns):
            self._add_turn(talk, turn == 0, tools)
        return talk.messages

    def _add_turn(self, talk: Conversation, first: bool, tools: list[Tool]) -> None:
        kind = _pick(_WITH_TOOLS, self.rng) if tools else "other"
        if kind == "call":
            talk.messages += call_turns(tools, self.rng)
        elif kind == "missing":
            talk.add(ask_missing_tool(tools, self.rng), REFUSAL, _REFUSED)
        elif kind == "small_talk":
            self._about_faq(talk, self.rng.choice(self._small_talk))
        else:
            self._add_plain_turn(
                talk,
                kind if kind == "sum" else _pick(_OPENING if first else _LATER, self.rng),
                first,
                tools,
            )

    def _add_plain_turn(
        self, talk: Conversation, kind: str, first: bool, tools: list[Tool]
    ) -> None:
        """A turn that no tool is needed for."""
        if kind == "claim":
            claim = self.rng.choice(self.wider.claims)
            question, reply = ask_claim(claim, self.rng)
            talk.add(question, reply, claim.term)
        elif kind == "situation":
            situation = self.rng.choice(self.wider.situations)
            talk.add(ask_situation(situation, self.rng), situation.answer, situation.topic)
        elif kind == "gist":
            term = self.knowledge.by_name[self.rng.choice(list(self.wider.gists))]
            talk.add(ask_gist(term.name, self.rng), term.what, term.name)
        elif kind == "facet":
            term = self.rng.choice(self._sided)
            talk.add(*ask_facet(term, self.rng), term.name)
        elif kind == "follow_up":
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
        elif tools:
            talk.add(ask_beside_tools(tools, self.rng), REFUSAL, _REFUSED)
        else:
            talk.add(ask_off_subject(self.rng), REFUSAL, _REFUSED)

    def _about_term(self, talk: Conversation) -> None:
        term = self.rng.choice(self.knowledge.terms)
        intent = _pick(_INTENTS, self.rng)
        if term.is_lab and self.rng.random() < 0.5:
            intent = "lab"
        question, typed = ask(intent, self.rng, t=term)
        reply = with_verdict(intent, question, answer(term, intent, self.rng))
        talk.add(typed, reply, term.name)

    def _about_contrast(self, talk: Conversation) -> None:
        """A written contrast in either order, or, less often, two terms side by side."""
        rng = self.rng
        if rng.random() < 0.7:
            contrast = rng.choice(self.knowledge.all_contrasts)
            first, second = rng.sample([self._named(name) for name in contrast.between], 2)
            reply = contrast.answer
        else:
            first = rng.choice(self.knowledge.terms)
            second = other_term(self.knowledge, first, rng)
            reply = self.knowledge.contrast(first, second)
        question, typed = ask("contrast", rng, a=first, b=second)
        talk.add(typed, with_verdict("contrast", question, reply), first.name)

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
        if topic.name in self.wider.facets and rng.random() < 0.4:
            talk.add(*ask_facet(topic, rng, follow=True), topic.name)
            return
        claims = [claim for claim in self.wider.claims if claim.term == topic.name]
        if claims and rng.random() < 0.24:
            talk.add(*ask_claim(rng.choice(claims), rng, follow=True), topic.name)
            return
        if topic.name in self.wider.later and rng.random() < 0.15:
            situation = rng.choice(self.wider.later[topic.name])
            talk.add(ask_situation(situation, rng, follow=True), situation.answer, topic.name)
            return
        intent = _pick(_FOLLOW_UPS, rng)
        if intent == "follow_define":
            other = other_term(self.knowledge, topic, rng)
            talk.add(ask(intent, rng, t=other)[1], other.what, other.name)
        elif intent == "follow_contrast":
            other = self._contrast_partner(topic)
            question, typed = ask(intent, rng, t=other)
            reply = self.knowledge.contrast(topic, other)
            talk.add(typed, with_verdict(intent, question, reply), topic.name)
        else:
            question, typed = ask(intent, rng)
            talk.add(typed, with_verdict(intent, question, answer(topic, intent, rng)), topic.name)

    def _contrast_partner(self, topic: Term) -> Term:
        """A term with a written contrast to the topic if there is one, else often any other."""
        partners = [_other(pair, topic.name) for pair in self.knowledge.all_contrasts]
        names = [name for name in partners if name in self.knowledge.by_name]
        if names and self.rng.random() < 0.7:
            return self.knowledge.by_name[self.rng.choice(names)]
        return other_term(self.knowledge, topic, self.rng)


def _other(contrast: Contrast, name: str) -> str:
    """The other side of a contrast, or an empty string if `name` is on neither side."""
    first, second = contrast.between
    return {first: second, second: first}.get(name, "")


def dialogues(seed: int, count: int, systems: float = 1.0) -> Iterator[list[Message]]:
    """`count` conversations, the same ones for the same seed.

    systems: share of the system messages that stay. They are half of all tokens, and a model that has
    learned to take them as they come may be trained further with fewer.
    """
    writer = DialogueWriter(random.Random(seed), systems=systems)
    for _ in range(count):
        yield writer.dialogue()
