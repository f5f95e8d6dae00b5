"""Kinds of mistakes, and the words by which a message names one.

A message names a kind only if the evidence separates it from its siblings. So the message about a known
mistake must not hold the words of a kind that the mistake is not of; unless it names its own kind as
well and says what tells the two apart ("either", "or", "if ... it is").

    kinds_of(told, misconception, says, is_kernel=...)     what a known mistake is about
    foreign_kinds(own, message, is_kernel=...)             the other kinds that its message names
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from grader.verdict import Explanation


@dataclass(frozen=True, slots=True)
class Kind:
    """says: words in a message that name this kind. means: those in a misconception about it."""

    says: str
    means: str

    def is_named_in(self, message: str) -> bool:
        return re.search(self.says, message, re.IGNORECASE) is not None

    def is_meant_by(self, misconception: str) -> bool:
        return re.search(self.means, misconception, re.IGNORECASE) is not None


OF_KERNELS = {
    "mask": Kind(
        r"\b(un)?mask(s|ed|ing)?\b|last (partial )?tile|lanes? past|past (its|the row'?s?) end|\btail\b",
        r"\b(un)?mask(s|ed|ing)?\b|lanes? past|past (the|its) (row|end|last)|\btail\b|row's end"
        r"|reach(es)? past|last (tile|block|column) |beyond|do not exist|are not there|bound",
    ),
    "stride": Kind(
        r"(?<!meet a )\bstrides?\b(?! \[)|\bpacked\b|\bgaps?\b|lie apart|as far apart",
        r"\bstrides?\b|\bpacked\b|\bgaps?\b|\bdense\b|contiguous|far apart|a row apart"
        r"|one after the other|neighbours",
    ),
    "coverage": Kind(
        r"\bloop\b|in steps|goes on|covers? (what|it)\b",
        r"only the first|without a loop|of one step|takes over|left out|not copied|skipped|fixed size",
    ),
    "padding": Kind(
        r"(?<!becomes )negative|below 0|padding|slot -1", r"negative|padding|without a slot"
    ),
    "rounding": Kind(
        r"\broundings?\b|\b(is|are) rounded\b|half precision|float16 has \d+ bits",
        r"\bround(s|ed|ing|ings)?\b|half precision|precision of the input|in the dtype of",
    ),
    "width of numbers": Kind(
        r"\bint32\b|\bint64\b|64_t|32 bits",
        r"\bint32\b|\bint64\b|64_t|32 bits|as an int\b|small number|overflow",
    ),
    "barrier": Kind(r"__syncthreads|\bbarriers?\b", r"__syncthreads|\bbarriers?\b|waiting"),
    "rescaling": Kind(
        r"\brescal(e|es|ed|ing)\b|old peak", r"rescal|old peak|maxim|peak|larger score"
    ),
    "axes of a grid": Kind(
        r"\bwrong axis\b", r"numbered down|grid counts .* first|numbers? of a grid|grid's numbers"
    ),
    "alignment": Kind(
        r"\baligned\b|16 bytes need|as wide as both", r"aligned|address|packs|width|16 bytes"
    ),
}
OF_STATE = {
    "leak": Kind(
        r"\bleak(s|ed)?\b", r"leak|stay|never|keeps?\b|kept|remain|forg[eo]t|left|leave|twice"
    ),
    "lock": Kind(r"\b(un)?lock(s|ed|ing)?\b", r"lock|path|in use|evict|node"),
    "order of eviction": Kind(
        r"least recently|used last|marks? (every|each) node",
        r"recent|\buse\b|used|order|evict|lost|first|peek",
    ),
    "off by one": Kind(
        r"\boff by one\b|\bone (too )?(long|short|far|early|late)\b",
        r"off by|one (more|less|too|ahead|token|short)|last|itself|too (many|late|early)",
    ),
}
KINDS = OF_KERNELS | OF_STATE
"""The words of a kind are looked for in the labs of its family alone: a kernel's loop is no queue's."""

APART = re.compile(
    r"\beither\b|\bor\b|\bif\b|\brather than\b|\bnot (by|with|of|from|the|a)\b|\btells? them apart\b",
    re.IGNORECASE,
)
"""How a message sets one kind against another."""


def kinds_of(
    told: Collection[str], misconception: str, says: str = "", *, is_kernel: bool
) -> frozenset[str]:
    """What a known mistake is about. told: its `kind`, which counts alone if it is there. Otherwise
    whatever its misconception means, and what its message must say. Empty: of no kind in the table.

    Raises ValueError for a kind that the table does not have.
    """
    if unknown := sorted(set(told) - KINDS.keys()):
        raise ValueError(
            f"there is no kind {unknown[0]!r} of mistakes; choose from {', '.join(KINDS)}"
        )
    if told:
        return frozenset(told)
    return frozenset(
        name
        for name, kind in (OF_KERNELS if is_kernel else OF_STATE).items()
        if kind.is_meant_by(misconception) or kind.is_named_in(says.replace("\\", ""))
    )


def message_of(why: Explanation) -> str:
    """What of an explanation may name a kind: what happened, and the advice. Not the claim, which says
    what must hold, and not what was expected and got, which are values."""
    return f"{why.problem}\n{why.why}"


def foreign_kinds(own: Collection[str], message: str, *, is_kernel: bool) -> list[str]:
    """The kinds that a message names though the mistake is of another. Empty for a mistake of no kind:
    nothing is known of what its message should say."""
    if not own:
        return []
    family = OF_KERNELS if is_kernel else OF_STATE
    named = [name for name, kind in family.items() if kind.is_named_in(message)]
    foreign = [name for name in named if name not in own]
    names_own = len(foreign) < len(named)
    return [] if names_own and APART.search(message) else foreign


def complaint(
    name: str,
    told: Collection[str],
    misconception: str,
    says: str,
    why: Explanation,
    *,
    is_kernel: bool,
) -> str:
    """For selfcheck: what is wrong with the message about a known mistake; "" if nothing is.

    name: of the mistake, as its file is called. why: of the first failing test of its task, which is
    what a learner reads.
    """
    own = kinds_of(told, f"{name.replace('_', ' ')}: {misconception}", says, is_kernel=is_kernel)
    message = message_of(why)
    if not (foreign := foreign_kinds(own, message, is_kernel=is_kernel)):
        return ""
    return (
        f"a mistake of the kind {' or '.join(sorted(own))}, but its message speaks of "
        f"{', '.join(foreign)}: {' '.join(message.split())[:200]!r}"
    )
