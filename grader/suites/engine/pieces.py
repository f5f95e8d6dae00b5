"""What is wrong with the pieces in which a text came, where they tell: late, cut off, shown twice."""

from collections.abc import Sequence

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
TOO_EARLY = "The text before the stop string belongs to the answer, up to its last character."

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
    return otherwise


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
