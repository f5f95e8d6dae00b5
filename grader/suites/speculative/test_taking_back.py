"""Task 18.6: what is left of a step when drafts were rejected."""

from typing import Any

import numpy as np

from grader.kit import expect, expect_equal, task

WIDTH = 2
PLAIN = "Without drafts, a step's tokens are computed, and the one that is drawn is not."
REJECTED = "A rejected draft was computed, but at the place of another token: it does not count."
BONUS = "The last token that was gained was drawn, not computed: the next step computes it."
FAILED = (
    "A step that draws nothing has failed: what it computed does not hold, what was there does."
)
BLOCKS = "So many blocks as the tokens that hold lie in, the last of them maybe not full."
FULL = (
    "A block goes into the tree when it is full of tokens that hold: the tree gives it to others."
)
ACCEPTED = "Of the tokens that are gained the last is no draft: one less were accepted."
BACK = "The grammar goes back by the drafts that it has accepted, no more and no fewer."
ROWS = "Row j says what may come behind the first j drafts."
OPEN = "Behind a draft that may not come no draw counts: all bits of all rows there are set."
BIT = "Token t is bit t % 8 of byte t // 8, the lowest bit first."
NOT_ASKED = (
    "The row before a draft says if it may come. If its bit is not set, accept is not asked."
)


@task("18.6")
def test_kept(part: Any) -> None:
    """Tokens up to the last accepted draft hold, with their blocks; the other drafts are taken back."""
    for (start, tokens, drafts, gained, size), wanted, why in (
        ((10, 1, 0, 1, 4), (11, 3, 2, 0), PLAIN),
        ((0, 8, 0, 1, 4), (8, 2, 2, 0), BLOCKS),
        ((10, 4, 3, 4, 4), (14, 4, 3, 0), BONUS),
        ((10, 4, 3, 1, 4), (11, 3, 2, 3), REJECTED),
        ((10, 4, 3, 3, 4), (13, 4, 3, 1), ACCEPTED),
        ((10, 4, 3, 2, 4), (12, 3, 3, 2), FULL),
        ((10, 6, 5, 2, 4), (12, 3, 3, 4), FULL),
        ((10, 4, 3, 0, 4), (10, 3, 2, 3), FAILED),
        ((0, 5, 2, 0, 4), (0, 0, 0, 2), FAILED),
        ((16, 1, 0, 0, 16), (16, 1, 1, 0), FAILED),
        ((0, 20, 2, 2, 16), (19, 2, 1, 1), BLOCKS),
        ((15, 3, 2, 1, 16), (16, 1, 1, 2), REJECTED),
        ((15, 3, 2, 2, 16), (17, 2, 1, 1), BLOCKS),
    ):
        got = part.kept(start, tokens, drafts, gained, size)
        what = f"kept({start}, {tokens}, {drafts}, {gained}, {size})"
        names = ("num_computed", "num_blocks", "num_full", "num_rejected")
        whys = (why, BLOCKS, FULL, ACCEPTED)
        for name, value, reason in zip(names, wanted, whys, strict=True):
            expect_equal(getattr(got, name), value, f"{what}.{name}", why=reason)


class Place:
    """A grammar of fixed texts: what may come next is what one of them goes on with."""

    def __init__(self, *texts: list[int]) -> None:
        self._texts = texts
        self.at: list[int] = []
        self.asked: list[int] = []
        self.fills = 0

    def fill(self, bits: Any) -> None:
        self.fills += 1
        bits[:] = 0
        for token in self._next():
            bits[token // 8] |= 1 << token % 8

    def accept(self, token: int) -> bool:
        self.asked.append(token)
        if token not in self._next():
            return False
        self.at.append(token)
        return True

    def rollback(self, count: int) -> None:
        expect(0 <= count <= len(self.at), f"rollback({count}) where {len(self.at)} were accepted",
               why=BACK)  # fmt: skip
        del self.at[len(self.at) - count :]

    def _next(self) -> set[int]:
        here = len(self.at)
        return {text[here] for text in self._texts if text[:here] == self.at and len(text) > here}


def rows_of(part: Any, place: Place, drafts: list[int]) -> list[list[int]]:
    rows = np.full((len(drafts) + 1, WIDTH), 0x5A, np.uint8)
    before = list(place.at)
    part.masks_ahead(place, drafts, rows)
    expect_equal(place.at, before, f"where the grammar stands behind drafts {drafts}", why=BACK)
    return [np.flatnonzero(np.unpackbits(row, bitorder="little")).tolist() for row in rows]


EVERY = list(range(8 * WIDTH))


@task("18.6")
def test_masks_ahead(part: Any) -> None:
    """Row j of the masks says what may come behind the first j drafts; the grammar is then back."""
    texts = [1, 2, 9, 4], [1, 2, 10, 12, 3], [1, 7, 9]
    for drafts, wanted, why in (
        ([], [[1]], ROWS),
        ([1, 2, 9], [[1], [2, 7], [9, 10], [4]], ROWS),
        ([1, 2, 10, 12], [[1], [2, 7], [9, 10], [12], [3]], BIT),
        ([1, 7, 10], [[1], [2, 7], [9], EVERY], OPEN),
        ([1, 3, 9, 4], [[1], [2, 7], EVERY, EVERY, EVERY], OPEN),
        ([2, 9, 4], [[1], EVERY, EVERY, EVERY], OPEN),
        ([6], [[1], EVERY], BIT),
        ([1, 1], [[1], [2, 7], EVERY], NOT_ASKED),
    ):
        got = rows_of(part, Place(*texts), drafts)
        expect_equal(
            got, wanted, f"what may come next, and behind each of the drafts {drafts}", why=why
        )
    got = rows_of(part, Place([8, 15, 0, 7]), [8, 15, 0])
    expect_equal(got, [[8], [15], [0], [7]], "masks of tokens at the ends of their bytes", why=BIT)


@task("18.6")
def test_masks_behind_text(part: Any) -> None:
    """The text that the grammar has followed already is not taken back."""
    place = Place([1, 2, 9, 4])
    place.at = [1]
    got = rows_of(part, place, [2, 9])
    expect_equal(got, [[2], [9], [4]], "masks behind a text", why=ROWS)
    got = rows_of(part, place, [9, 4])
    expect_equal(got, [[2], EVERY, EVERY], "masks behind a text, with a wrong draft", why=OPEN)
    expect_equal(place.asked, [2, 9], "the drafts that accept was asked about", why=NOT_ASKED)


@task("18.6")
def test_the_mask_decides(part: Any) -> None:
    """A draft whose bit is not set may not come, even if the grammar would accept it."""

    class Narrow(Place):
        """Where two tokens may come, its mask has only the first: the text is certain."""

        def fill(self, bits: Any) -> None:
            super().fill(bits)
            bits[:] = 0
            if own := sorted(self._next()):
                bits[own[0] // 8] |= 1 << own[0] % 8

    place = Narrow([1, 2, 4], [1, 3, 5])
    got = rows_of(part, place, [1, 3, 5])
    expect_equal(got, [[1], [2], EVERY, EVERY], "masks of a grammar that is certain", why=NOT_ASKED)
    expect_equal(place.asked, [1], "the drafts that accept was asked about", why=NOT_ASKED)
