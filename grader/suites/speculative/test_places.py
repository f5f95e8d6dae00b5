"""Task 18.5: a draft model's place in its own cache."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, quietly, start_script, task, watch
from grader.kit.apart import IDS, MASKS, NO_BITS_LOST, SAME_OBJECT, apart, expect_unchanged
from grader.kit.script import current_script, resume_script
from grader.kit.siblings import telling
from grader.suites.speculative.test_ngrams import Counted
from solutions.paged_cache import BlockManager

TEXT = list(range(10))

HOLDS = (
    "A token holds if it was written at its position and the text has it there: accepted drafts need no "
    "computing again."
)
REJECTED = (
    "A draft that was rejected stands in the cache where the text has another token: neither it nor "
    "anything written behind it holds."
)
HOLE = (
    "The last draft came out of the model and never went in: after full acceptance two tokens must be "
    "computed, or the cache has a hole."
)
LOGITS = "The last token must be computed whatever holds: drafting begins with its logits."
FORGOTTEN = "What does not hold is forgotten at once: later tokens are written in its place."
UNWRITTEN = (
    "Only what `wrote` was given lies in the cache. A long text is written over several calls, and what "
    "`begin` has seen of it is not written by that."
)
LENGTH = (
    "The table has ceil((len(text) + num_drafts - 1) / block_size) blocks: room for the text and all "
    "drafts but the last, which is never computed, and no more."
)
STAY = "Blocks that stay keep their places: what was written lies in them."
LEAK = "Every block is free, or in one table, once: what is held meanwhile must be released."
ROOM = "Only what the table lacks must be free; if that is too much, the answer is None."
UNCHANGED = "A refusal changes nothing: neither the table nor what is known of the text."
ENDED = "The end of a text frees its blocks and forgets what it held; of an unknown one it does nothing."
SCAN = "What was seen to be equal stays equal, because the text only grows: begin where you last ended."
HELD_ON = "These tokens were written before `end`, which forgets them."
OTHERS = "Each text has its own place and its own table."


def _alike(one: list[int], other: list[int]) -> int:
    """How many tokens are equal from the beginning."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _loses(mask: int, token: int) -> bool:
    return token & mask != token


def _first(text: list[int], is_one: Callable[[int], bool]) -> int | None:
    """The first position of such a token that is not the last."""
    return next((at for at, token in enumerate(text[:-1]) if is_one(token)), None)


class Pool(BlockManager):
    """Blocks that were freed are handed out after all others: a pool promises no order of them."""

    def _drop(self, block_ids: Sequence[int]) -> None:
        before = len(self._free)
        super()._drop(block_ids)
        self._free = self._free[before:] + self._free[:before]


class Rig:
    """The part on a pool of its own, and what must hold by the contract's words."""

    def __init__(self, part: Any, num_blocks: int = 32, block_size: int = 4) -> None:
        self.blocks = Pool(num_blocks, block_size)
        self.places = watch(part.DraftPlaces(self.blocks), "places")
        self.cached: dict[str, list[int]] = {}
        self.never_forgotten: dict[str, list[int]] = {}
        self.ended: dict[str, list[int]] = {}
        self.refused: set[str] = set()
        self.lengths: dict[str, int] = {}  # of each text at the last call
        self.texts: dict[str, list[int]] = {}

    def growing(self, key: str, text: list[int]) -> list[int]:
        """The text as the engine has it: one list that grows while it lasts."""
        there = self.texts.get(key, [])
        if there != text[: len(there)]:
            there = []
        there += apart(text[len(there) :])
        self.texts[key] = there
        return there

    def begin(self, key: str, text: list[int], num_drafts: int, why: str = "") -> int | None:
        """Call `begin`, and compare what it says and does with the contract."""
        size = self.blocks.block_size
        before = list(quietly(self.places).table(key))
        free = self.blocks.num_free
        got: int | None = self.places.begin(key, self.growing(key, text), num_drafts)
        expect_unchanged(self.texts[key], text, "the text that begin was given")
        wanted = -(-(len(text) + num_drafts - 1) // size)
        if wanted - len(before) > free:
            expect_equal(got, None, f"begin with {free} free blocks", why=ROOM)
            after = list(quietly(self.places).table(key))
            expect_equal(after, before, "the table behind a refusal", why=UNCHANGED)
            self.refused.add(key)
            return got
        cached = self.cached.get(key, [])
        same = 0
        while same < min(len(cached), len(text) - 1) and cached[same] == text[same]:
            same += 1
        expect(got is not None, f"begin says None with {free} free blocks", why=ROOM)
        problem = f"tokens that need no computing, of {len(text)}"
        if got != same:
            if isinstance(got, int) and 0 <= got < same:
                problem += (
                    f", where {text[got]} was written at position {got}, as it is in the text"
                )
            expect_equal(got, same, problem, why=self._why(key, got, text, why))
        self.lengths[key] = len(text)
        self.refused.discard(key)
        table = list(quietly(self.places).table(key))
        expect_equal(len(table), wanted, "blocks of the table", why=LENGTH)
        stay = min(len(table), len(before))
        expect_equal(table[:stay], before[:stay], "the table's first blocks", why=STAY)
        self.cached[key] = cached[:same]
        self.check()
        return got

    def _why(self, key: str, got: int | None, text: list[int], asked: str) -> str:
        """What a number of tokens that hold is the number of; of several such things the one that the
        test asks about, or none. asked: what it asks about."""
        cached, most = self.cached.get(key, []), len(text) - 1
        equal = [one == other for one, other in zip(cached, text, strict=False)]
        in_a_row = _alike(cached, text)
        others = [tokens for name, tokens in self.cached.items() if name != key]
        kinds: tuple[tuple[str, set[Any]], ...] = (
            (LOGITS, {in_a_row} if in_a_row > most else set()),
            (REJECTED, {len(cached), min(len(cached), most), min(sum(equal), most)}),
            (NO_BITS_LOST, {_first(text, partial(_loses, m)) for m in MASKS}),
            (SAME_OBJECT, {_first(text, lambda token: token > 256)}),
            (HOLE, {most} if cached else set()),
            (FORGOTTEN, {min(_alike(self.never_forgotten.get(key, []), text), most)}),
            (HOLDS, {min(self.lengths.get(key, 0), most), 0} if cached else set()),
            (OTHERS, {min(_alike(tokens, text), most) for tokens in others}),
            (HELD_ON, {min(_alike(self.ended.get(key, []), text), most)} - {0}),
            (UNCHANGED, set(range(in_a_row)) if key in self.refused else set()),
        )
        if asked == UNWRITTEN and isinstance(got, int) and len(cached) < got <= most:
            return asked
        found = [why for why, numbers in kinds if got in numbers]
        return asked if asked in found else found[0] if len(found) == 1 else ""

    def wrote(self, key: str, tokens: list[int]) -> None:
        given = apart(tokens)
        self.places.wrote(key, given)
        given.clear()  # the caller's list, which it uses for the next step
        self.cached[key] = [*self.cached.get(key, []), *tokens]
        self.never_forgotten[key] = [*self.never_forgotten.get(key, []), *tokens]

    def step(self, key: str, text: list[int], drafts: list[int], why: str = "") -> int:
        """Catch up with the text, and write all drafts but the last."""
        held = self.begin(key, text, len(drafts), why)
        assert held is not None
        self.wrote(key, text[held:])
        for draft in drafts[:-1]:
            self.wrote(key, [draft])
        return held

    def end(self, key: str) -> None:
        self.places.end(key)
        if key in self.cached:
            self.ended[key] = self.cached.pop(key)
            self.never_forgotten.pop(key, None)
        expect_equal(
            list(quietly(self.places).table(key)), [], "the table of an ended text", why=ENDED
        )
        self.check()

    def check(self) -> None:
        """All blocks are accounted for."""
        self.blocks.check()
        tables = [block for key in self.cached for block in quietly(self.places).table(key)]
        used = self.blocks.num_blocks - self.blocks.num_free
        expect_equal(used, len(tables), "blocks that are not free", why=LEAK)


@task("18.5")
def test_a_new_text(part: Any) -> None:
    """Of a new text everything is computed, in a table that its drafts fit into as well."""
    rig = Rig(part)
    expect_equal(rig.begin("a", TEXT, 4), 0, "tokens of a new text that need no computing")
    rig = Rig(part)
    rig.begin("a", TEXT, 3)
    rig.begin("b", TEXT, 1)
    rig.begin("c", TEXT[:1], 1)


@task("18.5")
def test_some_drafts_accepted(part: Any) -> None:
    """Accepted drafts hold, rejected ones do not."""
    rig = Rig(part)
    rig.step("a", TEXT, [50, 51, 52, 53])
    text = [*TEXT, 50, 51, 99]
    rig.step("a", text, [60, 61, 62, 63])
    rig.step("a", [*text, 98], [70, 71, 72, 73])


@task("18.5")
def test_all_drafts_accepted(part: Any) -> None:
    """When all drafts were right, the last of them is computed with the token behind it."""
    rig = Rig(part)
    rig.step("a", TEXT, [50, 51, 52, 53])
    with telling(lambda: of_nothing_written(part)):
        rig.begin("a", [*TEXT, 50, 51, 52, 53, 99], 4, HOLE)


def of_nothing_written(part: Any) -> str:
    """Whether all but the last token hold where nothing was written."""
    start = current_script()
    start_script()
    try:
        places = part.DraftPlaces(Pool(8, 4))
        places.begin("a", TEXT, 1)
        got = places.begin("a", [*TEXT, 99], 1)
    finally:
        resume_script(start)
    if got != len(TEXT):
        return ""
    return (
        f"begin gives {got} of {len(TEXT) + 1} tokens as well where begin was called once before and "
        "wrote never: what was written is not looked at."
    )


@task("18.5")
def test_the_last_token_is_computed(part: Any) -> None:
    """Even when all tokens are in the cache, the last one is computed again."""
    for text in (TEXT, list(range(300))):
        rig = Rig(part, num_blocks=96)
        rig.step("a", text, [50, 51, 52, 53])
        rig.begin("a", text, 4, LOGITS)
    rig = Rig(part)
    rig.step("a", TEXT, [50, 51, 52, 53])
    rig.begin("a", [*TEXT, 50, 51], 4, LOGITS)


@task("18.5")
def test_nothing_holds_behind_a_difference(part: Any) -> None:
    """Equal tokens behind a different one do not hold."""
    rig = Rig(part)
    rig.step("a", TEXT, [50, 51, 52, 53])
    rig.begin("a", [*TEXT, 99, 51, 52, 53], 2, REJECTED)
    rig = Rig(part)
    rig.step("a", TEXT, [50, 51, 52, 53])
    rig.begin("a", [*TEXT, 51, 52, 50], 2, REJECTED)


@task("18.5")
def test_rejected_drafts_do_not_come_back(part: Any) -> None:
    """A draft that was rejected once does not hold later, when the text happens to have its token."""
    rig = Rig(part)
    rig.step("a", TEXT, [50, 51, 52, 53])
    rig.begin("a", [*TEXT, 0], 4, FORGOTTEN)
    rig.begin("a", [*TEXT, 0, 1, 2], 4, FORGOTTEN)
    rig = Rig(part)
    for start in (0, 3, 6):
        text = [*TEXT, *range(100, 100 + start)]
        rig.step("a", text, [50, 51, 52, 53], FORGOTTEN)


@task("18.5")
def test_many_tokens_without_drafts(part: Any) -> None:
    """Steps without drafts are caught up all at once."""
    rig = Rig(part)
    rig.step("a", TEXT, [50, 51, 52, 53])
    text = [*TEXT, 50, *range(200, 220)]
    rig.step("a", text, [60, 61])
    rig.step("a", [*text, 60, 61, 99], [1])


@task("18.5")
def test_a_text_that_is_written_in_portions(part: Any) -> None:
    """A long text is written over several calls, and nothing holds that was not written."""
    rig = Rig(part)
    for portion in (4, 5, 1):
        held = rig.begin("a", TEXT, 1, UNWRITTEN)
        assert held is not None
        rig.wrote("a", TEXT[held : held + portion])
    rig.step("a", [*TEXT, 50], [60, 61], UNWRITTEN)
    rig.begin("a", [*TEXT, 50, 60, 99], 2, UNWRITTEN)


@task("18.5")
def test_tokens_in_a_tuple(part: Any) -> None:
    """Text and written tokens are any sequences of ints."""
    places, text = watch(part.DraftPlaces(Pool(8, 4)), "places"), (*TEXT, 50, 99)
    places.begin("a", text[:10], 3)
    places.wrote("a", text[:10])
    places.wrote("a", (50, 51))
    expect_equal(places.begin("a", text, 3), 11, "tokens that need no computing, of 12", why=HOLDS)


@task("18.5")
def test_the_table_is_cut_back(part: Any) -> None:
    """A table that has become too long gives its last blocks back; the others stay."""
    rig = Rig(part)
    for num_drafts in (8, 1):  # five blocks, and then three
        rig.begin("a", TEXT, num_drafts)
    rig.end("a")
    rig = Rig(part)
    rig.step("a", TEXT, list(range(50, 60)))
    rig.step("b", TEXT, [50])
    for num_drafts in (8, 3, 7, 1, 1, 12):
        rig.begin("a", TEXT, num_drafts, LOGITS)
    rig.end("a")
    rig.end("b")


@task("18.5")
def test_too_few_blocks(part: Any) -> None:
    """Without room the answer is None, and everything is as it was."""
    rig = Rig(part, num_blocks=5)
    rig.begin("a", TEXT, 4)
    rig.begin("b", TEXT, 4)
    rig.end("b")
    rig.begin("a", TEXT, 8)
    rig.begin("a", TEXT, 12)
    rig.begin("b", [1], 1)


@task("18.5")
def test_a_refusal_forgets_nothing(part: Any) -> None:
    """What was written before a refusal holds behind it."""
    rig = Rig(part, num_blocks=4)
    rig.step("a", TEXT, [50, 51, 52, 53])
    rig.begin("a", [*TEXT, 50], 20, UNCHANGED)
    rig.begin("a", [*TEXT, 50, 51, 99], 2, UNCHANGED)


@task("18.5")
def test_the_end_of_a_text(part: Any) -> None:
    """The end frees the blocks and forgets the text, and is harmless for one that is not known."""
    rig = Rig(part)
    rig.places.end("nobody")
    rig.step("a", TEXT, [50, 51, 52, 53])
    rig.end("a")
    rig.end("a")
    rig.begin("a", TEXT, 4, HELD_ON)
    rig = Rig(part, num_blocks=1)
    rig.begin("a", TEXT, 4)
    rig.end("a")


@task("18.5")
def test_texts_do_not_meet(part: Any) -> None:
    """Two texts have a place and a table each."""
    rig = Rig(part)
    rig.step("a", TEXT, [50, 51, 52, 53])
    rig.step("b", [7, 8, 9], [60, 61])
    rig.step("a", [*TEXT, 50, 99], [50, 51], OTHERS)
    rig.step("b", [7, 8, 9, 60, 61, 62], [60, 61], OTHERS)
    rig.end("a")
    rig.step("b", [7, 8, 9, 60, 61, 62, 60, 99], [60, 61], OTHERS)


@task("18.5")
def test_the_text_is_not_looked_through(part: Any) -> None:
    """A call looks at the new tokens and the drafts, not at the whole text."""
    note(
        "# a text of 3,000 tokens; each step: begin('a', text, 4), and wrote the tokens that it needs,"
    )
    note("# and three drafts; two of them are accepted, and one token comes behind them")
    places = part.DraftPlaces(BlockManager(1024, 4))
    text = Counted(list(range(3000)))
    held = places.begin("a", text, 4)
    places.wrote("a", text.tokens[held:])
    for number in range(20):
        looks = text.looks
        held = places.begin("a", text, 4)
        if number > 1:
            looked = text.looks - looks
            problem = f"begin behind 3,000 tokens, 3 of them new, looked at {looked:,}"
            expect(looked < 100, f"{problem}, where 100 do", why=SCAN)
        places.wrote("a", text.tokens[held:])
        places.wrote("a", [7, 8, 9])
        text.tokens += [7, 8, 5]


@task("18.5")
@examples(80)
@given(st.data(), st.integers(1, 4), st.integers(4, 16))
def test_any_course(part: Any, data: st.DataObject, size: int, num_blocks: int) -> None:
    """However texts grow, are refused and end, what holds is what the text has in its place."""
    rig = Rig(part, num_blocks, size)
    tokens = st.sampled_from(data.draw(st.sampled_from(IDS)))
    texts: dict[str, list[int]] = {}
    for _ in range(data.draw(st.integers(1, 8))):
        key = data.draw(st.sampled_from(["a", ""]))
        if key in texts and data.draw(st.integers(0, 5)) == 0:
            rig.end(key)
            del texts[key]
            continue
        text = texts.setdefault(key, [1])
        drafts = data.draw(st.lists(tokens, min_size=1, max_size=5))
        held = rig.begin(key, text, len(drafts))
        if held is not None and data.draw(st.integers(0, 4)):
            lacking = text[held:]
            portion = data.draw(st.sampled_from([1, 2, len(lacking), len(lacking)]))
            rig.wrote(key, lacking[:portion])
            if portion >= len(lacking):
                rig.wrote(key, drafts[:-1])
                right = data.draw(st.integers(0, len(drafts)))
                text += drafts[:right]
        text += data.draw(st.lists(tokens, min_size=1, max_size=3))
    for key in texts:
        rig.end(key)
