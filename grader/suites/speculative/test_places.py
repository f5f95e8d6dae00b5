"""Task 18.5: a draft model's place in its own cache."""

import random
from typing import Any

from grader.kit import expect, expect_equal, note, quietly, task, watch
from grader.suites.speculative.texts import Text
from solutions.paged_cache import BlockManager

SIZE = 4
HOLDS = (
    "What was written holds as long as the text has the same tokens there. Accepted drafts need no "
    "computing, what was drawn instead does."
)
REJECTED = "K and V of a rejected draft belong to another text: what was drawn is computed there."
LAST = "The last token is computed in any case: the first draft is drawn from its logits."
BEHIND = (
    "Behind the first token that differs nothing holds, even where tokens agree again: K and V depend "
    "on all tokens before."
)
CATCH_UP = "Where all drafts are accepted, two tokens are lacking: the last draft and the bonus."
ROOM = (
    "The table has room for text and drafts, but the last: its K and V are not computed. That is "
    "ceil((len(text) + num_drafts - 1) / block_size) blocks."
)
CUT = "A table that has more blocks than the text and its drafts need gives back those at its end."
STAY = "Blocks that stay keep their places in the table: what holds lies in them."
HELD = "A block has one reference for the table that it stands in, and no other."
REFUSED = (
    "A call that is refused changes nothing: not the table, and not what is known of the text."
)
ENOUGH = "Only blocks that the table lacks must be free."
ENDED = (
    "`end` frees the blocks and forgets the text, and may be called for a key that is not known."
)
APART = "Each key has a text and a table of its own."
ADDS = "What is written is added behind what was written since `begin`."
COST = "The leading tokens that held once hold for good: compare only what was written since."


class Rig:
    """Places of a part on a block manager, and their calls written down."""

    def __init__(self, part: Any, num_blocks: int = 16) -> None:
        self.blocks = BlockManager(num_blocks, SIZE, 0)
        note(f"blocks = BlockManager({num_blocks}, {SIZE}, 0)")
        self.places = watch(part.DraftPlaces(self.blocks), "places")

    def begin(
        self, key: str, text: list[int], num_drafts: int, wanted: int | None, why: str
    ) -> None:
        got = self.places.begin(key, text, num_drafts)
        expect_equal(got, wanted, f"begin({key!r}, {list(text)}, {num_drafts})", why=why)
        if wanted is not None:
            self.check(key, len(text) + num_drafts - 1)

    def check(self, key: str, num_tokens: int) -> None:
        """The table of a key has room for so many tokens, and the pool is as it should be."""
        table = list(quietly(self.places).table(key))
        needed = -(-num_tokens // SIZE)
        expect_equal(len(table), needed, f"blocks of {key!r} for {num_tokens} tokens",
                     why=ROOM if len(table) < needed else CUT)  # fmt: skip
        counts = [self.blocks.ref_count(block) for block in table]
        expect_equal(counts, [1] * len(table), f"references to the blocks of {key!r}", why=HELD)
        self.blocks.check()


@task("18.5")
def test_a_text_from_its_beginning(part: Any) -> None:
    """Of a new text nothing is written; what was written of it needs no computing again."""
    rig = Rig(part)
    rig.begin("a", [1, 2, 3, 4, 5], 3, 0, HOLDS)
    rig.places.wrote("a", [1, 2, 3, 4, 5])
    rig.begin("a", [1, 2, 3, 4, 5, 6], 3, 5, HOLDS)
    rig.places.wrote("a", [6])
    rig.begin("a", [1, 2, 3, 4, 5, 6], 2, 5, LAST)


@task("18.5")
def test_catching_up_behind_verified_drafts(part: Any) -> None:
    """Accepted drafts need no computing, rejected ones do not hold."""
    text = [1, 2, 3, 4, 5]
    for more, wanted, why in (
        ([6, 7, 8, 9], 7, CATCH_UP),
        ([6, 7, 9], 7, HOLDS),
        ([6, 9], 6, REJECTED),
        ([9], 5, REJECTED),
        ([6, 9, 9], 6, REJECTED),
        ([9, 7, 9], 5, BEHIND),
        ([7, 8, 9], 5, BEHIND),
        ([6, 7], 6, LAST),
        ([6], 5, LAST),
    ):
        rig = Rig(part)
        rig.begin("a", text, 3, 0, HOLDS)
        rig.places.wrote("a", [*text, 6, 7])  # drafts 6, 7, 8; the last is not computed
        rig.begin("a", [*text, *more], 3, wanted, why)


@task("18.5")
def test_rejected_drafts_are_forgotten(part: Any) -> None:
    """A draft that was rejected does not hold later either, when the text goes on as it did."""
    rig = Rig(part)
    rig.begin("a", [1, 2, 3], 3, 0, HOLDS)
    rig.places.wrote("a", [1, 2, 3, 4, 5])
    rig.begin("a", [1, 2, 3, 9], 2, 3, REJECTED)
    rig.begin("a", [1, 2, 3, 9, 5], 2, 3, "What did not hold is forgotten when it is seen.")
    rig.places.wrote("a", [9])
    rig.places.wrote("a", [5, 6])
    rig.begin("a", [1, 2, 3, 9, 5, 6, 7], 2, 6, ADDS)


@task("18.5")
def test_written_in_pieces(part: Any) -> None:
    """A long text may be written over several calls, with or without a begin between them."""
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    rig = Rig(part)
    rig.begin("a", text, 2, 0, HOLDS)
    rig.places.wrote("a", [1, 2, 3])
    rig.begin("a", text, 2, 3, ADDS)
    rig.places.wrote("a", [4, 5])
    rig.places.wrote("a", [6])
    rig.begin("a", text, 2, 6, ADDS)
    rig.begin("a", [*text, 10], 2, 6, HOLDS)


@task("18.5")
def test_tables_grow_and_are_cut_back(part: Any) -> None:
    """The table has the blocks that text and drafts need, and those that stay keep their places."""
    rig = Rig(part)
    rig.begin("a", [1, 2, 3, 4], 1, 0, HOLDS)
    before = list(quietly(rig.places).table("a"))
    rig.begin("a", [1, 2, 3, 4], 2, 0, HOLDS)
    rig.begin("a", [1, 2, 3, 4], 14, 0, HOLDS)
    grown = list(quietly(rig.places).table("a"))
    expect_equal(grown[:1], before, "the first block of a table that has grown", why=STAY)
    rig.begin("a", [1, 2, 3, 4, 5], 4, 0, HOLDS)
    cut = list(quietly(rig.places).table("a"))
    expect_equal(cut, grown[:2], "the table that was cut back", why=STAY)
    expect_equal(rig.blocks.num_free, 14, "free blocks", why=CUT)


@task("18.5")
def test_a_pool_that_is_full(part: Any) -> None:
    """Where blocks lack, begin returns None and changes nothing; only what is missing must be free."""
    rig = Rig(part, num_blocks=4)
    rig.begin("a", [1, 2, 3, 4, 5], 1, 0, HOLDS)
    rig.places.wrote("a", [1, 2, 3, 4, 5])
    rig.begin("b", [1, 2, 3], 1, 0, APART)
    before = list(quietly(rig.places).table("a"))
    got = rig.places.begin("a", [1, 2, 3, 4, 5, 6], 20)
    expect_equal(got, None, "begin of a text with more drafts than there is room for", why=REFUSED)
    expect_equal(list(quietly(rig.places).table("a")), before, "the table then", why=REFUSED)
    got = rig.places.begin("c", [1, 2, 3, 4, 5], 1)
    expect_equal(got, None, "begin of a text that there is no room for", why=REFUSED)
    rig.begin("a", [1, 2, 3, 4, 5, 6], 6, 5, REFUSED + " " + ENOUGH)
    rig.begin("a", [1, 2, 3, 4, 5, 6, 7], 1, 5, HOLDS)
    rig.blocks.check()


@task("18.5")
def test_ends(part: Any) -> None:
    """A text that has ended has no block, and one of the same key begins anew."""
    rig = Rig(part)
    rig.places.end("a")
    rig.begin("a", [1, 2, 3, 4, 5], 2, 0, HOLDS)
    rig.places.wrote("a", [1, 2, 3, 4, 5])
    rig.begin("b", [1, 2], 2, 0, APART)
    rig.places.end("a")
    expect_equal(list(quietly(rig.places).table("a")), [], "the table of what has ended", why=ENDED)
    expect_equal(rig.blocks.num_free, 15, "free blocks", why=ENDED)
    rig.places.end("a")
    rig.check("b", 3)
    rig.begin("a", [1, 2, 3, 4, 5], 2, 0, ENDED)


@task("18.5")
def test_costs_what_is_new(part: Any) -> None:
    """Behind a text of 3,000 tokens a step costs what it costs behind one of 30."""
    rig = Rig(part, num_blocks=800)
    text = Text(range(3000))
    places = quietly(rig.places)
    places.begin("a", text, 3)
    places.wrote("a", list(range(3000)))
    places.begin("a", text, 3)
    places.wrote("a", [2999, 7, 8])
    text += [7, 9]
    text.seen = 0
    expect_equal(places.begin("a", text, 3), 3001, "begin behind a long text", why=HOLDS)
    expect(text.seen <= 60, f"begin looked at {text.seen} tokens of the text", why=COST)


@task("18.5")
def test_any_course(part: Any) -> None:
    """Several texts at a time, drafts right and wrong, ends, full pools: what holds is what is there."""
    for seed in range(30):
        rng = random.Random(seed)
        rig = Rig(part, num_blocks=rng.choice([6, 12, 40]))
        texts: dict[str, list[int]] = {}
        written: dict[str, list[int]] = {}
        for _ in range(30):
            key = rng.choice("abc")
            if rng.random() < 0.1:
                rig.places.end(key)
                texts.pop(key, None)
                written.pop(key, None)
                continue
            text = texts.setdefault(key, [rng.randrange(3) for _ in range(rng.randint(1, 9))])
            count, known = rng.randint(1, 4), written.get(key, [])
            wanted = next(
                (
                    at
                    for at, (one, other) in enumerate(zip(known, text, strict=False))
                    if one != other
                ),
                min(len(known), len(text)),
            )
            wanted = min(wanted, len(text) - 1)
            needed = -(-(len(text) + count - 1) // SIZE)
            fits = needed - len(quietly(rig.places).table(key)) <= rig.blocks.num_free
            rig.begin(key, text, count, wanted if fits else None, HOLDS)
            if not fits:
                continue
            drafts = [rng.randrange(3) for _ in range(count)]
            new = [*text[wanted:], *drafts[:-1]]
            rig.places.wrote(key, new)
            written[key] = [*text[:wanted], *new]
            right, others = rng.randint(0, count), rng.choice([0, 1, 1, 1, 3])
            texts[key] = [*text, *drafts[:right], *(rng.randrange(3) for _ in range(others))]
