"""Turns a template into a question as a person would type it: articles, aliases, case, slips."""

import random
import re
from functools import lru_cache

from book.tutor import strange
from book.tutor.glossary import Knowledge, Term, load_knowledge, load_phrasings
from book.tutor.templates import sample

OPENERS = (
    "Please,", "Hi,", "Hello,", "Hey,", "Quick question:", "So,", "Sorry,", "Ok,", "Now", "Well,",
    "I have a question:", "Tutor,", "As a beginner:", "For my exam:", "I am reading the book.",
    "Just to be sure,", "By the way,", "Next question:", "One more thing:", "Hi tutor!", "Hmm,",
    "For the lab,", "Honest question:", "Maybe a silly question, but", "Thanks. And",
)  # fmt: skip
CLOSERS = (
    "please", "thanks", "thank you", "in an LLM engine", "for a beginner", "I am curious",
    "I need it for the lab", "in your own words", "if you know", "exactly", "again", "here",
    "in simple English", "in YAIE", "for language models", "on a GPU",
)  # fmt: skip
_QUESTION_WORDS = (
    "what", "why", "how", "which", "where", "who", "is", "are", "can", "could", "does", "do",
    "would", "in what", "and what", "when", "will",
)  # fmt: skip


_PEOPLE = (
    "my boss", "my friend", "our teacher", "a colleague", "my team", "somebody", "a student",
    "my grandmother", "the exam", "an interviewer", "my brother", "a customer", "the professor",
)  # fmt: skip
_WONDERS = ("asked me", "wants to know", "keeps asking", "wonders", "would like to hear", "asks")
SPRINKLED = 0.07
"""Share of on-subject questions with a stray word; many more, and off-subject prompts slip in."""
EXCHANGED = 0.22
"""Share of questions in which words are exchanged for others of the same meaning."""
SHORTENED = 0.07
"""Share of questions that lack some words."""
_TURNING = frozenset(
    "always any before after different don't false few less more most never no none not nothing only"
    " same true without wrong".split()
)
_SMALL_WORDS = frozenset("is are the a an do does of to me please in can could you and it".split())


def surface(term: Term, rng: random.Random) -> str:
    """The term as somebody may write it: its name or an alias, with or without an article."""
    word = term.name if rng.random() < 0.5 or not term.aliases else rng.choice(term.aliases)
    kind = rng.random()
    article = term.article if kind < 0.5 else rng.choice(("a", "the")) if kind < 0.65 else ""
    if not article or word.startswith("the "):
        return word
    if article != "the":
        article = "an" if word[0].lower() in "aeiou" else "a"
    return f"{article} {word}"


@lru_cache(maxsize=1)
def _stray_words() -> tuple[str, ...]:
    """Words of other subjects, without those that would turn a yes into a no."""
    rules = " ".join(load_phrasings("system")["rules"])
    texts = (rules, *strange.names(), *strange.verbs())
    words = (word.strip(".,") for text in texts for word in text.split())
    return tuple(word for word in words if word.lower() not in _TURNING)


def _sprinkle(text: str, rng: random.Random) -> str:
    """Put one or two stray words between the words: an odd word must not change the answer."""
    words = text.split(" ")
    for _ in range(rng.randint(1, 2)):
        words.insert(rng.randint(0, len(words)), rng.choice(_stray_words()))
    return " ".join(words)


def fill(template: str, rng: random.Random, **terms: Term) -> str:
    """Expand the template once and put a surface form of each term into its place."""
    text = sample(template, rng)
    if rng.random() < SPRINKLED:
        text = _sprinkle(text, rng)
    for name, term in terms.items():
        text = text.replace(f"{{{name}}}", surface(term, rng))
    return text


def slip(text: str, rng: random.Random) -> str:
    """One typing slip, in a word of at least five letters: swap, drop or double a letter."""
    words = text.split(" ")
    long = [index for index, word in enumerate(words) if len(word) >= 5 and word.isalpha()]
    if not long:
        return text
    index = rng.choice(long)
    word = words[index]
    at = rng.randrange(1, len(word) - 2)
    middle = rng.choice((word[at + 1] + word[at], word[at + 1], word[at] + word[at : at + 2]))
    words[index] = word[:at] + middle + word[at + 2 :]
    return " ".join(words)


def _drop_small_word(text: str, rng: random.Random) -> str:
    """Leave out a word such as "is" or "the", as hurried and foreign writers do."""
    words = text.split(" ")
    small = [index for index, word in enumerate(words) if word.lower() in _SMALL_WORDS]
    if small and len(words) > 2:
        del words[rng.choice(small)]
    return " ".join(words)


@lru_cache(maxsize=1)
def _same_words() -> tuple[re.Pattern[str], dict[str, tuple[str, ...]]]:
    """Finds words of variety*.toml as whole words, the longest first; the others of each one's group."""
    rows = [
        row for name in ("variety", "variety_more") for row in load_phrasings(name)["same"]["words"]
    ]
    groups = [tuple(row.split("|")) for row in rows]
    others: dict[str, tuple[str, ...]] = {}
    for group in groups:
        for word in group:
            others.setdefault(word, tuple(other for other in group if other != word))
    ordered = sorted(others, key=len, reverse=True)
    return re.compile(rf"(?<![\w{{-])({'|'.join(map(re.escape, ordered))})(?![\w}}'-])"), others


def exchange(text: str, rng: random.Random) -> str:
    """Put other words of the same meaning for about half of those that have some."""
    found, others = _same_words()
    # Questions begin with a capital, and often with one of these words.
    capital = text[:1].isupper() and text[1:2].islower()
    changed = found.sub(
        lambda match: rng.choice(others[match.group()]) if rng.random() < 0.5 else match.group(),
        text[:1].lower() + text[1:] if capital else text,
    )
    return changed[:1].upper() + changed[1:] if capital else changed


def _drop_words(text: str, rng: random.Random) -> str:
    """Leave out one word in six, whichever: what is left must be enough to know the question."""
    words = text.split(" ")
    kept = [word for word in words if "{" in word or rng.random() > 1 / 6]
    return " ".join(kept) if len(words) > 5 and len(kept) > 3 else text


def as_typed(text: str, rng: random.Random, every_word: bool = False) -> str:
    """Vary what does not change a question: words, politeness, final mark, case, a typing slip.

    `every_word`: leave out none but an article and its like, as the answer may hang on an "only".
    """
    bare = text.rstrip("?.! ")
    if rng.random() < EXCHANGED:
        bare = exchange(bare, rng)
    if rng.random() < SHORTENED and not every_word:
        bare = _drop_words(bare, rng)
    if rng.random() < 0.14:
        opener = rng.choice(OPENERS)
        bare = (
            f"{opener} {bare[0].lower()}{bare[1:]}" if bare[1:2].islower() else f"{opener} {bare}"
        )
    elif rng.random() < 0.06:
        bare = f"{rng.choice(_PEOPLE)} {rng.choice(_WONDERS)}{rng.choice((':', ',', ''))} {bare}"
    if rng.random() < 0.06:
        bare = _drop_small_word(bare, rng)
    if rng.random() < 0.10:
        bare += rng.choice((" ", ", ", " ")) + rng.choice(CLOSERS)
    if rng.random() < 0.06:
        bare = slip(bare, rng)
    usual = "?" if text.lower().startswith(_QUESTION_WORDS) else "."
    mark = rng.choices((usual, "", "?", "!", "??", " ?"), (58, 32, 5, 2, 1, 2))[0]
    case = rng.random()
    if case < 0.30:
        bare = bare.lower()
    elif case < 0.31:
        bare = bare.upper()
    elif case < 0.80:
        bare = bare[:1].upper() + bare[1:]
    return bare + mark


def ask(intent: str, rng: random.Random, **terms: Term) -> tuple[str, str]:
    """A training question of the intent about the given terms: as it is thought, and as it is typed."""
    text = fill(rng.choice(load_phrasings("train")[intent]["templates"]), rng, **terms)
    return text, as_typed(text, rng)


@lru_cache(maxsize=1)
def _context_sentences() -> tuple[str, ...]:
    knowledge = load_knowledge()
    return tuple(text for term in knowledge.terms for text in (term.what, term.why, term.how))


def system_message(rng: random.Random) -> str | None:
    """None, a short system message, or rules, facts and noise of up to about 1,500 tokens."""
    phrasings = load_phrasings("system")
    kind = rng.random()
    if kind < 0.45:
        return None
    if kind < 0.65:
        return rng.choice(phrasings["short"])
    if kind < 0.80:
        pool, low, high = tuple(phrasings["rules"]), 2, 10
    elif kind < 0.92:
        pool, low, high = tuple(phrasings["rules"]), 10, 90
    elif kind < 0.97:
        pool, low, high = _context_sentences(), 2, 30
    else:
        pool, low, high = tuple(strange.invented_word(rng) for _ in range(50)), 5, 150
    count = rng.randint(low, high)
    # A short pool repeats itself, as a padded system prompt does.
    joiner = rng.choice((" ", " ", "\n", "\n- "))
    return joiner.join(rng.choice(pool) for _ in range(count))


def other_term(knowledge: Knowledge, than: Term, rng: random.Random) -> Term:
    """Any term but the given one."""
    while (term := rng.choice(knowledge.terms)) is than:
        pass
    return term
