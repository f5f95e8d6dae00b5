"""Pairs of questions that differ in little and want opposite answers, from one compact row.

"paging ~ does ~ <save|spare // waste> memory" says that paging saves memory and does not waste it.
The words before `//` make the row true, those after it make it false. The row becomes questions
("Does paging waste memory"), sentences ("paging spares memory") and denied sentences ("paging
doesn't save memory"). A row without ` ~ ` is a question as it stands, and is asked only so.
"""

import random
import re
from dataclasses import dataclass
from functools import cache

_SIDES = re.compile(r"<([^<>]*)//([^<>]*)>")
_LEADING = frozenset(
    "also always already even ever just never often only really simply still".split()
)
"""Words that may stand before a verb that has to be conjugated."""
_UNDENIED = frozenset(
    "all any each every never no none not nothing only both many most some sometimes nor neither"
    " hardly".split()
)
"""A row with one of them is not denied: "any" and "all" would mean something else beside a "not"."""
_NEGATED = {"can": "can't", "will": "won't", "am": "am not", "must": "must not"}
_HAVE = {"has to": "does", "have to": "do", "needs to": "does", "need to": "do"}


@dataclass(frozen=True)
class Pair:
    """A row: its true side and its false side, each split into subject, auxiliary and predicate."""

    true: tuple[str, ...]
    false: tuple[str, ...]

    @property
    def is_sentence(self) -> bool:
        """Whether it can be said as a sentence, too."""
        return len(self.true) == 3

    def can_be_denied(self, holds: bool) -> bool:
        """Whether a "not" in the sentence of that side means that it is otherwise."""
        side = self.true if holds else self.false
        words = re.findall(r"[a-z]+", " ".join(side).lower())
        return self.is_sentence and not _UNDENIED.intersection(words)

    def question(self, holds: bool) -> str:
        """The side as a question for yes or no."""
        side = self.true if holds else self.false
        return question(side) if self.is_sentence else side[0]

    def sentence(self, holds: bool, denied: bool = False) -> str:
        """The side as a sentence; a denied one says that it is not so."""
        return sentence(self.true if holds else self.false, denied=denied)


@cache
def parse_pair(row: str) -> Pair:
    """Read one row; ValueError if it has no `<true // false>` or an odd number of parts."""
    if not _SIDES.search(row):
        raise ValueError(f"{row!r} has no <true // false>")
    sides = []
    for group in (1, 2):
        text = _side(row, group)
        sides.append(tuple(part.strip() for part in text.split(" ~ ")))
    if len(sides[0]) not in (1, 3):
        raise ValueError(f"{row!r} is no question and no 'subject ~ auxiliary ~ predicate'")
    return Pair(*sides)


def _side(row: str, group: int) -> str:
    return _SIDES.sub(lambda match: _one_of(match.group(group)), row)


def _one_of(words: str) -> str:
    """The alternatives in the notation of `templates.py`."""
    words = words.strip()
    return f"[{words}]" if "|" in words else words


def _bare(auxiliary: str) -> str:
    """ "has to" after "does"."""
    return "need to" if auxiliary.startswith("need") else "have to"


def question(side: tuple[str, ...]) -> str:
    """ "Does paging save memory"."""
    subject, auxiliary, predicate = side
    if auxiliary in _HAVE:
        return f"{_HAVE[auxiliary].capitalize()} {subject} {_bare(auxiliary)} {predicate}"
    return f"{auxiliary.capitalize()} {subject} {predicate}"


def sentence(side: tuple[str, ...], denied: bool = False) -> str:
    """ "paging saves memory", or denied "paging doesn't save memory"."""
    subject, auxiliary, predicate = side
    if auxiliary in _HAVE and denied:
        return f"{subject} {_HAVE[auxiliary]}n't {_bare(auxiliary)} {predicate}"
    if denied:
        negated = _NEGATED.get(auxiliary) or f"{auxiliary}n't"
        return f"{subject} {negated} {predicate}"
    if auxiliary == "do":
        return f"{subject} {predicate}"
    if auxiliary == "does":
        return f"{subject} {_third_person(predicate)}"
    return f"{subject} {auxiliary} {predicate}"


def _third_person(predicate: str) -> str:
    """The predicate with its verb conjugated, in each alternative if it begins with some."""
    match = re.match(r"\[([^\]]*)\](.*)", predicate)
    if match is None:
        return _conjugated(predicate)
    options = match.group(1).split("|")
    if all(option in ("", *_LEADING) for option in options):
        return f"[{match.group(1)}] {_third_person(match.group(2).strip())}"
    return f"[{'|'.join(map(_conjugated, options))}]{match.group(2)}"


def _conjugated(words: str) -> str:
    first, _, rest = words.strip().partition(" ")
    if first in _LEADING:
        return f"{first} {_third_person(rest)}" if rest else first
    irregular = {"have": "has", "do": "does", "be": "is", "go": "goes"}
    if first in irregular:
        verb = irregular[first]
    elif first.endswith(("s", "x", "z", "ch", "sh", "o")):
        verb = first + "es"
    elif first.endswith("y") and first[-2] not in "aeiou":
        verb = first[:-1] + "ies"
    else:
        verb = first + "s"
    return f"{verb} {rest}".strip()


NEGATIVE_OPENERS = {
    "Does ": "Doesn't ", "Do ": "Don't ", "Is ": "Isn't ", "Are ": "Aren't ", "Can ": "Can't ",
    "Will ": "Won't ", "Would ": "Wouldn't ", "Could ": "Couldn't ", "Should ": "Shouldn't ",
}  # fmt: skip
"""How a question begins that expects a yes, and means the same as without the "not"."""


OR_NOT = (
    ", or not",
    " or not",
    ", or is it the other way round",
    ", or the opposite",
    ", yes or no",
)
"""What may follow a question for yes or no and asks for nothing else."""
TAGGED, EITHER = 0.16, 0.14
"""Shares of the sentences asked with a tag, and of their questions that name the opposite, too."""
_SPEAKERS = frozenset("i we you one everyone nobody somebody".split())


def tag(side: tuple[str, ...]) -> str:
    """ "doesn't it", or another that may stand behind the sentence; empty where none would be right.

    Behind a denied sentence there is none: "no" would agree with it to some, and to others not.
    """
    subject, auxiliary, _ = side
    auxiliary = _HAVE.get(auxiliary, auxiliary)
    if subject.split()[0].lower() in _SPEAKERS or auxiliary in ("am", "must"):
        return ""
    words = "they" if auxiliary in ("are", "do", "were") else "it"
    return " ".join((_NEGATED.get(auxiliary, auxiliary + "n't"), words))


def _either(pair: Pair, is_so: bool, rng: random.Random) -> str:
    """Both sides in one question: the answer says whether the first of them is so."""
    text, other = pair.question(is_so), pair.question(not is_so)
    if rng.random() < 0.4:
        return text + rng.choice(OR_NOT)
    words = ("it", "they")[pair.true[1] in ("are", "do", "were")]
    subject = (pair.true if not is_so else pair.false)[0]
    if subject.split()[0].lower() not in _SPEAKERS:
        other = other.replace(f" {subject} ", f" {words} ", 1)
    return f"{text}, or {other[0].lower()}{other[1:]}"


def draw_pair(pair: Pair, is_so: bool, rng: random.Random) -> tuple[str, bool]:
    """A template that `is_so` answers, and whether it is a sentence that still needs a frame.

    Three in ten sentences are denied ones, of the side that is not so.
    """
    form = rng.random()
    if not pair.is_sentence or form < 0.5:
        if pair.can_be_denied(is_so) and rng.random() < EITHER:
            return _either(pair, is_so, rng), False
        text = pair.question(is_so)
        if form < 0.05 and pair.can_be_denied(is_so):
            for opener, negative in NEGATIVE_OPENERS.items():
                if text.startswith(opener):
                    return negative + text[len(opener) :], False
        return text, False
    denied = form >= 0.75 and pair.can_be_denied(not is_so)
    text = pair.sentence(is_so != denied, denied=denied)
    asked = "" if denied or rng.random() >= TAGGED else tag(pair.true if is_so else pair.false)
    return (f"{text}, {asked}", False) if asked else (text, True)
