"""Builds the evaluation set from `phrasings/held_out.toml`: questions never seen in training."""

import random
from dataclasses import dataclass, replace

from book.tutor.arithmetic import KINDS, random_sum
from book.tutor.glossary import Facts, Knowledge, Term, load_knowledge, load_phrasings
from book.tutor.templates import expand, sample

QUESTIONS = 200
SUMS = 60
# Share of the glossary questions per intent; the rest of the 200 are contrasts and whole questions.
_INTENTS = ("define", "define", "define", "explain", "why", "why", "how", "example")
CONTRASTS = 24
TERMS_PER_UNUSUAL_WHY = 3

SHORT_SYSTEM = "You are a helpful assistant who answers questions about LLM inference engines."
_CONDUCT = (
    "You are an assistant deployed by a university for its course on computer systems. "
    "Students ask you about the lectures between the lessons. Treat everybody kindly. "
    "Never complain about the weather, the food in the canteen or the noise in the hall. "
    "Answers shall be plain, correct and complete. Cite no sources that you have not read. "
    "When something is unclear, pick the most natural reading and go ahead. "
)


@dataclass(frozen=True)
class Question:
    """A held-out question, the facts its answer must mention and the kind of set it belongs to."""

    text: str
    facts: Facts
    kind: str
    term: str = ""
    """The glossary entry asked about: an answer that recites another entry is wrong."""
    system: str = ""


@dataclass(frozen=True)
class HeldOutConversation:
    """User turns whose last answer must mention the facts."""

    turns: tuple[str, ...]
    facts: Facts


def _with_article(term: Term) -> str:
    return f"{term.article} {term.name}".strip()


def _facts_of(term: Term, intent: str) -> Facts:
    """`explain` and `define` must hold the definition's facts; an example must be the term's own."""
    if intent == "example":
        # The longest word run that no other example shares would be brittle: take the opening.
        return (term.example[:40].lower().split(": ")[0],)
    return term.facts["what" if intent in ("define", "explain") else intent]


def _glossary_questions(knowledge: Knowledge, count: int, rng: random.Random) -> list[Question]:
    """Every term is asked about before any is asked about twice."""
    templates = load_phrasings("held_out")["intents"]
    questions: list[Question] = []
    terms: list[Term] = []
    while len(questions) < count:
        terms = terms or rng.sample(knowledge.terms, len(knowledge.terms))
        term = terms.pop()
        # Nobody asks why engines need a lab.
        intent = "define" if term.is_lab else rng.choice(_INTENTS)
        text = sample(rng.choice(templates[intent]["templates"]), rng)
        text = text.replace("{t}", _with_article(term))
        questions.append(Question(_finish(text, rng), _facts_of(term, intent), intent, term.name))
    return questions


def _contrast_questions(knowledge: Knowledge, count: int, rng: random.Random) -> list[Question]:
    templates = load_phrasings("held_out")["intents"]["contrast"]["templates"]
    questions = []
    for contrast in rng.sample(knowledge.contrasts, count):
        text = sample(rng.choice(templates), rng)
        for slot, name in zip(("{a}", "{b}"), contrast.between, strict=True):
            term = knowledge.by_name.get(name)
            text = text.replace(slot, _with_article(term) if term else name)
        questions.append(Question(_finish(text, rng), contrast.facts, "contrast"))
    return questions


def _faq_questions(knowledge: Knowledge) -> list[Question]:
    facts = {faq.id: faq.facts for faq in knowledge.faqs}
    asked = load_phrasings("held_out")["faq"]
    return [
        Question(f"{text}?", facts[name], "faq") for name, texts in asked.items() for text in texts
    ]


def _finish(text: str, rng: random.Random) -> str:
    """Half of the questions as written, half in lower case without a mark."""
    return f"{text[0].upper()}{text[1:]}?" if rng.random() < 0.5 else text.lower()


def held_out_questions(seed: int = 0, count: int = QUESTIONS) -> list[Question]:
    """The evaluation's on-subject questions, the same ones for the same seed."""
    rng = random.Random(seed)
    knowledge = load_knowledge()
    rest = _contrast_questions(knowledge, CONTRASTS, rng) + _faq_questions(knowledge)
    return _glossary_questions(knowledge, count - len(rest), rng) + rest


def with_system(questions: list[Question]) -> list[Question]:
    """The same questions under a system message: a short one or one of up to 1,200 tokens."""
    messages = (SHORT_SYSTEM, _CONDUCT, _CONDUCT * 5, _CONDUCT * 11)
    return [replace(q, system=messages[i % len(messages)]) for i, q in enumerate(questions)]


def unusual_whys(seed: int = 0) -> list[Question]:
    """Unusual ways to ask for a reason, each about three terms that are drawn at random."""
    rng = random.Random(seed)
    terms = [term for term in load_knowledge().terms if not term.is_lab]
    return [
        Question(
            _finish(template.replace("{t}", _with_article(term)), rng),
            term.facts["why"],
            "why",
            term.name,
        )
        for template in load_phrasings("held_out")["unusual_why"]["templates"]
        for term in rng.sample(terms, TERMS_PER_UNUSUAL_WHY)
    ]


def held_out_conversations() -> list[HeldOutConversation]:
    tables = load_phrasings("held_out")["conversation"]
    return [HeldOutConversation(tuple(t["turns"]), tuple(t["facts"])) for t in tables]


def held_out_sums(seed: int = 0, count: int = SUMS) -> list[Question]:
    """Sums over numbers that no training sum combines; the only right answer is the worked one."""
    rng = random.Random(seed)
    sums: list[Question] = []
    while len(sums) < count:
        problem = random_sum(rng, KINDS[len(sums) % len(KINDS)])
        if problem.held_out:
            sums.append(Question(f"{problem.question}?", (problem.answer.lower(),), "sum"))
    return sums


def held_out_templates() -> list[str]:
    """Every expansion of every held-out template and whole question, terms left open."""
    phrasings = load_phrasings("held_out")
    rows = [row for intent in phrasings["intents"].values() for row in intent["templates"]]
    rows += [text for texts in phrasings["faq"].values() for text in texts]
    rows += phrasings["unusual_why"]["templates"]
    return [text for row in rows for text in expand(row)]
