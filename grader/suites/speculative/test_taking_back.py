"""Task 18.6: what holds after a step with drafts, and the masks of one."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, expect, expect_equal, note, start_script, task
from grader.kit.apart import expect_unchanged
from grader.kit.script import show
from yaie.core.contracts.drafting import Kept

RIGHT = (
    "Of the tokens gained the last one was no draft: it came in the place of one, or as the bonus. m "
    "gained are m - 1 right drafts."
)
COMPUTED = (
    "Computed are the tokens that the step computed, less the rejected drafts. The token gained last is "
    "not among them: it is the next step's input."
)
BLOCKS = "The blocks are those that the computed tokens lie in, the last of them perhaps not full."
ALONE = "A block that has rejected drafts alone in it is not among them."
FULL = "A block may be filed only if it is full of tokens that hold."
SHARED = (
    "With a rejected draft in it another request would share keys of tokens that are in no text."
)
INTEGERS = "Tokens and blocks are counted by Python's int, which may be an index."
FAILED = (
    "A step that gained nothing has failed: what was computed before it holds, and nothing of it."
)

BACK = (
    "The grammar ends where it stood, whatever happened on the way: take back as many tokens as were "
    "accepted, on every way out."
)
BEHIND = (
    "Row i + 1 says what may come behind draft i, so it is filled when that draft was accepted."
)
OPEN = "Behind a draft that may not come no draw counts: all bits of all these rows are set."
AS_BEFORE = "Row {} is as it was before the call: nothing was written to it."
IN_ONE_PIECE = (
    " With rows that lie one behind the other in memory all is right. Here there is a gap between two "
    "rows, and NumPy's reshape of such rows is a copy."
)
BEFORE = 0x5A
"""What the bytes of the rows hold before."""
ASKED = "Whether a draft may come is in the row before it; `accept` is given those alone that may."
DEAR = (
    "A mask is computed for the whole vocabulary. Each row is filled once, and each draft accepted "
    "once: the grammar goes along the drafts, and back at the end."
)
BIT = (
    "Token t is bit t % 8 of byte t // 8, the lowest bit first, in the row right before the draft."
)


def why_not(got: Kept, right: Kept, end: int, num_gained: int, size: int) -> str:
    """What the first field that differs is. end: behind all that the step computed."""
    if num_gained == 0:
        drafts = right.num_rejected
        if got.num_rejected != drafts:
            return (
                f"A step that gained nothing has failed: {drafts} drafts are rejected, and no more."
            )
        return FAILED
    if got.num_rejected != right.num_rejected:
        return RIGHT
    if got.num_computed != right.num_computed:
        return COMPUTED
    if got.num_blocks != right.num_blocks:
        return f"{BLOCKS} {ALONE}" if got.num_blocks == -(-end // size) else BLOCKS
    return f"{FULL} {SHARED}" if got.num_full == end // size else FULL


def check(part: Any, start: int, known: int, drafts: int, gained: int, size: int) -> None:
    """Token by token: of what the step computed, those hold that come before the first rejected."""
    num_tokens = known + drafts
    right_drafts = max(0, gained - 1)
    holds = list(range(start))
    if gained:
        holds += range(start, start + known + right_drafts)
    blocks = {token // size for token in holds}
    full = [block for block in blocks if (block + 1) * size <= len(holds)]
    right = Kept(len(holds), len(blocks), len(full), drafts - right_drafts)
    start_script()
    note(f"kept({start}, {num_tokens}, {drafts}, {gained}, {size})")
    got = part.kept(start, num_tokens, drafts, gained, size)
    what = (
        f"what holds: {start} tokens before, {known} known and {drafts} drafts computed, "
        f"{gained} gained, blocks of {size}"
    )
    fields = {name: getattr(got, name, None) for name in Kept.__slots__}
    foreign = [name for name, value in fields.items() if not isinstance(value, int)]
    if got == right and foreign:
        name = foreign[0]
        kind = type(fields[name]).__name__
        raise Mismatch(f"{what}: `{name}` is no int", "int", f"{fields[name]} ({kind})", INTEGERS)
    if got != right:
        known_fields = isinstance(got, Kept)
        why = why_not(got, right, start + num_tokens, gained, size) if known_fields else ""
        expect_equal(got, right, what, why=why)


@task("18.6")
def test_the_chapters_table(part: Any) -> None:
    """Nine tokens computed, one known and four drafts in blocks of four."""
    for gained in (5, 3, 1, 2, 4):
        check(part, 9, 1, 4, gained, 4)


@task("18.6")
def test_a_block_with_a_rejected_draft(part: Any) -> None:
    """A block that was full in the step is not full if a draft in it was rejected."""
    check(part, 7, 1, 8, 8, 4)
    check(part, 12, 1, 3, 1, 4)
    check(part, 15, 1, 0, 1, 16)


@task("18.6")
def test_a_step_that_failed(part: Any) -> None:
    """Of a step that gained nothing, nothing holds."""
    check(part, 9, 1, 4, 0, 4)
    check(part, 0, 6, 0, 0, 4)


@task("18.6")
def test_several_known_tokens(part: Any) -> None:
    """A step may compute the end of a prompt with drafts behind it."""
    check(part, 4, 5, 3, 2, 4)
    check(part, 0, 6, 2, 1, 4)
    check(part, 0, 6, 0, 1, 4)


@task("18.6")
@examples(150)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 8), st.integers(1, 16), st.data())
def test_any_step(
    part: Any, start: int, known: int, drafts: int, size: int, data: st.DataObject
) -> None:
    """Whatever the step was, what holds comes before the first rejected draft."""
    check(part, start, known, drafts, data.draw(st.integers(0, drafts + 1)), size)


class Place:
    """A grammar of which tokens may follow which, that writes down what is asked of it."""

    def __init__(self, follow: dict[int, set[int]], start: int = 0, width: int = 2) -> None:
        self._follow = follow
        self._width = width
        self.stack = [start]
        self.refused: list[int] = []
        self.beyond = False
        self.num_filled = self.num_asked = 0

    def row(self, token: int) -> list[int]:
        """The mask behind a token."""
        bits = np.zeros(8 * self._width, np.uint8)
        bits[list(self._follow[token])] = 1
        return [int(byte) for byte in np.packbits(bits, bitorder="little")]

    def fill(self, bits: Any) -> None:
        self.num_filled += 1
        bits[:] = self.row(self.stack[-1])

    def accept(self, token: int) -> bool:
        self.num_asked += 1
        if token not in self._follow[self.stack[-1]]:
            self.refused.append(token)
            return False
        self.stack.append(token)
        return True

    def rollback(self, count: int) -> None:
        if not 0 <= count < len(self.stack):
            self.beyond = True
            return
        if count:
            del self.stack[-count:]


FOLLOW = {0: {1, 9}, 1: {8, 2}, 2: {0}, 8: {1, 15}, 9: {9}, 15: {0, 7}, 7: {7}}
for token in range(16):
    FOLLOW.setdefault(token, {0})


def expect_tokens(row: Any, right: Any, what: str, why: str) -> None:
    """That a row has these bits; both are told as the tokens whose bits are set."""
    if np.array_equal(row, right):
        return

    def told(row: Any) -> str:
        bits = np.unpackbits(np.asarray(row, np.uint8), bitorder="little")
        return "all of them" if bits.all() else show(bits.nonzero()[0].tolist())

    raise Mismatch(f"{what}: not as expected", told(right), told(row), why)


def _standing(before: tuple[int, ...]) -> Place:
    """A grammar that has accepted these tokens."""
    place = Place(FOLLOW)
    for token in before:
        place.accept(token)
    return place


def check_masks(part: Any, drafts: list[int], before: tuple[int, ...] = ()) -> None:
    place = _standing(before)
    stood = list(place.stack)
    wide = np.full((len(drafts) + 1, 3), BEFORE, np.uint8)  # of which the rows are a view
    rows = wide[:, :2]
    place.num_asked = 0
    wanted, at, dead = [place.row(stood[-1])], stood[-1], False
    for token in drafts:
        dead = dead or token not in FOLLOW[at]
        wanted.append([255, 255] if dead else place.row(token))
        at = token
    start_script()
    if before:
        note(f"# place has accepted {list(before)}")
    note(f"masks_ahead(place, {drafts}, rows)")
    given = list(drafts)
    part.masks_ahead(place, given, rows)
    expect_unchanged(given, drafts, "the list of drafts that masks_ahead was given")
    expect_equal(place.refused, [], "drafts that accept had to refuse", why=ASKED)
    expect(not place.beyond, "the grammar was taken back beyond where it stood", why=BACK)
    expect_equal(place.stack, stood, "the tokens behind which the grammar stands", why=BACK)
    got = [[int(byte) for byte in row] for row in rows]
    for number, (row, right) in enumerate(zip(got, wanted, strict=True)):
        why = OPEN if right == [255, 255] else BIT if row == [255, 255] else BEHIND
        if row != right and row == [BEFORE] * 2:
            packed = np.full((len(drafts) + 1, 2), BEFORE, np.uint8)
            part.masks_ahead(_standing(before), list(drafts), packed)
            is_gap = packed.tolist() == wanted
            why = AS_BEFORE.format(number) + (IN_ONE_PIECE if is_gap else f" {why}")
        what = f"the tokens of row {number} with the drafts {drafts}"
        expect_tokens(row, right, what, why)
    expect_equal(wide[:, 2].tolist(), [BEFORE] * len(wide), "the bytes behind the rows")
    if place.num_filled > len(rows) or place.num_asked > len(drafts):
        raise Mismatch(
            f"{len(rows)} rows with {len(drafts)} drafts ask the grammar too often",
            f"at most {len(rows)} calls of fill and {len(drafts)} of accept",
            f"{place.num_filled} calls of fill and {place.num_asked} of accept",
            DEAR,
        )


@task("18.6")
def test_masks_behind_allowed_drafts(part: Any) -> None:
    """Each draft that may come has the mask behind it in the next row."""
    check_masks(part, [])
    check_masks(part, [1])
    check_masks(part, [1, 8, 15, 7])
    check_masks(part, [9, 9, 9])
    check_masks(part, [15, 7], before=(1, 8))


@task("18.6")
def test_masks_behind_a_forbidden_draft(part: Any) -> None:
    """Behind the first draft that may not come every row is open, and the grammar is back."""
    check_masks(part, [1, 9, 8, 1])
    check_masks(part, [4, 1, 8])
    check_masks(part, [1, 8, 9], before=(1, 8))
    check_masks(part, [14])


class Narrow(Place):
    """Its mask has one of the tokens that may come: where a text is certain, lab 21's names one."""

    def row(self, token: int) -> list[int]:
        bits = np.zeros(8 * self._width, np.uint8)
        bits[min(self._follow[token])] = 1
        return [int(byte) for byte in np.packbits(bits, bitorder="little")]


@task("18.6")
def test_the_mask_decides(part: Any) -> None:
    """A draft whose bit is not set may not come, even if the grammar would accept it."""
    place = Narrow(FOLLOW)
    rows = np.full((4, 2), 0x5A, np.uint8)
    note("masks_ahead(place, [1, 8, 15], rows)    # behind 1 the mask has 2 alone")
    part.masks_ahead(place, [1, 8, 15], rows)
    expect_equal(place.stack, [0], "the tokens behind which the grammar stands", why=BACK)
    wanted = [place.row(0), place.row(1), [255, 255], [255, 255]]
    for number, (row, right) in enumerate(zip(rows, wanted, strict=True)):
        expect_tokens(row, right, f"the tokens of row {number}", ASKED)


@task("18.6")
@examples(80)
@given(st.lists(st.sampled_from([0, 1, 2, 7, 8, 9, 15]), max_size=5))
def test_masks_of_any_drafts(part: Any, drafts: list[int]) -> None:
    """Whatever the drafts are, the rows are right, and the grammar stands where it stood."""
    check_masks(part, drafts)
