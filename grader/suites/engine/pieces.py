"""What is wrong with the pieces in which a text came, where they tell: late, cut off, shown twice."""

import unicodedata
from collections.abc import Sequence
from typing import Literal

from grader.kit import expect_equal
from grader.suites.engine.naive_stop import first_stop

LATE = (
    "All of the text comes, and some of it with a later piece than it could. A reader must not be one "
    "token behind: what is complete is shown at once."
)
CUT = (
    "Each piece is the beginning of the right one. What is missing at its end comes with no later "
    "piece, nor from flush: what is not returned must be kept until it is."
)
TWICE = (
    "A character at the border of what is returned and what is held back is both: the next piece begins "
    "with it once more."
)
LOST = (
    "A character at the border of what is returned and what is held back is neither: it is lost, and "
    "the next piece goes on without it."
)
FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")
NORMALIZED = (
    "This is the text in Unicode's normal form {forms}. A client gets it as the model wrote it."
)
LEFT_OUT = "{names} {are} left out. A client gets the text as the model wrote it."
HELD_BACK = "{text!r} is held back. No stop string begins with it: it is shown at once."
TOO_EARLY = "The text before the stop string belongs to the answer, up to its last character."

MOST_MISSING = 4
"""Characters that are named."""
NOT_THE_FIRST = (
    "The text ends at the first {stop!r}, at character {first}. Here it goes on to the one at "
    "character {own}."
)
SHOWN_TOO = "What is shown ends with the stop string itself."
GOES_ON = "What is shown goes on behind the place where {stop!r} begins."

Push = tuple[str, str | None]


def of_pieces(got: Sequence[str], right: Sequence[str], otherwise: str = "") -> str:
    """The explanation that fits pieces of a text. otherwise: one for what is neither late nor cut."""
    if len(got) != len(right) or got == right:
        return otherwise
    if "".join(got) == "".join(right):
        behind = all(
            len("".join(got[:count])) <= len("".join(right[:count])) for count in range(len(got))
        )
        return LATE if behind else otherwise
    begins = all(
        whole.startswith(piece) and bool(piece) == bool(whole)
        for piece, whole in zip(got, right, strict=True)
    )
    return CUT if begins else otherwise


def changed(got: Sequence[str], right: Sequence[str]) -> str:
    """Whether a text was normalized, or which of its characters are left out; "" if neither."""
    text, whole = "".join(got), "".join(right)
    if text == whole:
        return ""
    forms = [form for form in FORMS if unicodedata.normalize(form, whole) == text]
    if forms:
        return NORMALIZED.format(forms=" or ".join(forms))
    rest = iter(text)
    letter, missing = next(rest, ""), list[str]()
    for each in whole:
        if each == letter:
            letter = next(rest, "")
        else:
            missing.append(f"U+{ord(each):04X}")
    if letter or len(missing) > MOST_MISSING:
        return ""
    return LEFT_OUT.format(names=", ".join(missing), are="is" if len(missing) == 1 else "are")


def expect_pieces(
    got: list[str],
    right: list[str],
    otherwise: str = "",
    what: str = "what each push and flush returned",
) -> None:
    """Pieces of a text. otherwise: as in `of_pieces`."""
    expect_equal(got, right, what, why=of_pieces(got, right, otherwise))


def of_pushes(
    stops: Sequence[str], pieces: Sequence[str], got: Sequence[Push], otherwise: str
) -> str:
    """The explanation that fits what each push of a stop checker returned. otherwise: one for what is
    neither returned twice nor lost."""
    for shown, held in ((1, 0), (2, 0), (-1, 0), (-2, 0), (0, 1), (0, -1)):
        if list(got) == _shifted(stops, pieces, shown, held):
            return TWICE if shown > held else LOST
    right = _shifted(stops, pieces, 0, 0)
    if [stop for _, stop in right] == [stop for _, stop in got]:
        both = zip(right, got, strict=True)
        apart = [(whole, text) for (whole, stop), (text, _) in both if stop and text != whole]
        if apart and all(whole.startswith(text) for whole, text in apart):
            return TOO_EARLY
        # Not where held text is joined to the piece: then the places are not those of the piece.
        if len(apart) == len(pieces) == 1 and apart[0][1].startswith(apart[0][0]):
            return _shown_behind(*apart[0], str(got[0][1]), pieces[0])
    return otherwise


def held_back(
    stops: Sequence[str], got: Sequence[Push], right: Sequence[Push], rest: str, right_rest: str
) -> str:
    """Which text comes later than it could, if all of it comes; else "". rest: what flush returned."""
    shown, due = ("".join(text for text, _ in pushes) for pushes in (got, right))
    if shown + rest != due + right_rest or [s for _, s in got] != [s for _, s in right]:
        return ""
    shown = due = ""
    for (text, _), (whole, _) in zip(got, right, strict=True):
        shown, due = shown + text, due + whole
        if shown != due:
            late = due[len(shown) :]
            is_late = due.startswith(shown) and not any(stop.startswith(late) for stop in stops)
            return HELD_BACK.format(text=late) if is_late else ""
    return ""


def _shown_behind(right: str, text: str, stop: str, piece: str) -> str:
    """What a text shows that goes on where it should be over."""
    if text == right + stop:
        return SHOWN_TOO
    if piece.startswith(text) and piece.startswith(stop, len(text)):
        return NOT_THE_FIRST.format(stop=stop, first=len(right), own=len(text))
    return GOES_ON.format(stop=stop)


def _shifted(stops: Sequence[str], pieces: Sequence[str], shown: int, kept: int) -> list[Push]:
    """What a checker returns whose two parts of a text end and begin this far from the right place."""
    held, found = "", list[Push]()
    for piece in pieces:
        text = held + piece
        before, stop = first_stop(text, stops)
        if stop is not None:
            found.append((before, stop))
            held = ""
            continue
        undecided = max(
            (
                length
                for length in range(1, len(text) + 1)
                if any(one.startswith(text[-length:]) for one in stops)
            ),
            default=0,
        )
        safe = len(text) - undecided
        held = text[safe + kept :]
        found.append((text[: safe + shown], None))
    return found
