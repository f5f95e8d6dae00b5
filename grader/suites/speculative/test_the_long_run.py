"""Tasks 18.1 to 18.6 beyond one call and a few drafts: results that stay, nothing left behind, long
lists, large ids. Those of task 18.7 are in `test_worth_long_run.py`, behind its others."""

from itertools import count
from typing import Any

import numpy as np

from grader.kit import expect, expect_equal, note, start_script, task, watch
from grader.kit.apart import NO_BITS_LOST, apart, deep_calls
from grader.kit.memory import expect_keeps_nothing
from grader.kit.standing import expect_results_stand
from grader.suites.speculative.probabilities import (
    DRAFT,
    LAST_TARGET,
    SECOND_DRAFT,
    SECOND_TARGET,
    TARGET,
    sure,
)
from grader.suites.speculative.test_rejection import on_the_reference, sample
from grader.suites.speculative.test_taking_back import FOLLOW, Place, expect_tokens
from solutions.paged_cache import BlockManager

MANY = 1100
"""Drafts of a step, or tokens that are read at once: no contract has a limit."""
WIDE = 0x1000010
"""Tokens of a vocabulary whose last ids have 25 bits."""
IDS_BY_VOCABULARY = {1000: 0x1F7, 70_000: 0x8FF7, WIDE: 0x1000007}
"""An id of each, which is another one in its lowest 8, 15 or 24 bits."""
CUT = {0x1F7: 0xF7, 0x8FF7: 0xFF7, 0x1000007: 7}
"""Those other ones."""
PROMPT = 24_000
"""Tokens of a long prompt, with three n-grams at each."""
STAYS = (
    "What was taken in is known as long as the text lasts: a text may repeat what it began with."
)
NO_LIMIT = (
    "No limit is set on how many there may be: what is behind the first thousand counts as well."
)


@task("18.1")
def test_an_index_of_many_calls(part: Any) -> None:
    """What an index keeps are the n-grams of its text; calls that read nothing new add nothing."""
    text = apart(number * number % 97 for number in range(400))
    index = part.NgramIndex(3, 1)
    index.read(text, 1000)
    expect_keeps_nothing(lambda: index.read(text, 1000), "read of a text that has been taken in")
    expect_keeps_nothing(lambda: index.place(text), "place")


@task("18.1")
def test_a_long_text_is_taken_in_at_once(part: Any) -> None:
    """One call of `read` takes in all that it may, and its last n-grams are found."""
    text = apart(70_000 + number for number in range(MANY))
    text += text[-5:-3]
    note(f"# a text of {MANY} different tokens, and two of them again")
    index = watch(part.NgramIndex(2, 2), "index")
    expect_equal(index.read(text, 5000), True, "read of up to 5000 tokens")
    expect_equal(index.place(text), MANY - 3, "the place", why=NO_LIMIT)


@task("18.1")
def test_no_ngram_is_forgotten(part: Any) -> None:
    """The first n-gram of a long text is found as well as the last."""
    text = [*range(PROMPT), 0, 1]
    note(f"# a text of {PROMPT:,} different tokens, and the first two of them again")
    index = watch(part.NgramIndex(4, 2), "index")
    index.read(text, 2 * PROMPT)
    expect_equal(index.place(text), 2, "the place behind 0 1", why=STAYS)


@task("18.1")
def test_many_lengths(part: Any) -> None:
    """However long the longest n-gram may be, the shorter ones are looked up."""
    index = watch(part.NgramIndex(MANY, 1), "index")
    text = [5, 6, 7, 5, 6]
    index.read(text, 10)
    expect_equal(
        index.place(text), 2, f"the place behind 5 6, n-grams of 1 to {MANY}", why=NO_LIMIT
    )


@task("18.2")
def test_many_drafts(part: Any) -> None:
    """However many drafts were right, all their samples count."""
    drafts = apart(range(70_000, 70_000 + MANY))
    note(f"# {MANY} drafts, all of them right")
    with deep_calls():
        got = part.accepted(drafts, [*apart(drafts), 5])
    expect_equal(len(got), MANY + 1, "how many samples count", why=NO_LIMIT)


@task("18.2")
def test_samples_of_many_calls(part: Any) -> None:
    """The tokens gained are a list for each call, and nothing is left behind."""
    calls = [lambda n=n: part.accepted([7, n], [7, n, 9]) for n in range(3)]
    expect_results_stand(calls, "accepted")
    fresh = count(1000)
    expect_keeps_nothing(lambda: part.accepted([7, next(fresh)], [7, 3, 8]), "accepted")


@task("18.3")
def test_residuals_of_many_calls(part: Any) -> None:
    """A residual is made for its call or is the target, and nothing is left behind."""
    pairs = [(TARGET, DRAFT), (SECOND_TARGET, SECOND_DRAFT), (LAST_TARGET, DRAFT)]
    expect_results_stand([lambda pair=pair: part.residual(*pair) for pair in pairs], "residual")  # type: ignore[misc]
    fresh = np.random.default_rng(0)
    expect_keeps_nothing(lambda: part.residual(TARGET, fresh.dirichlet(TARGET + 1)), "residual")


@task("18.4")
def test_many_certain_drafts(part: Any) -> None:
    """However many drafts are accepted, all of them are in the output, and the bonus."""
    draft = np.tile(sure(1, 2), (MANY, 1))
    target = np.concatenate([draft, sure(0, 2)[None]])
    note(f"# {MANY} drafts, of which the target is as sure as the draft model")
    with deep_calls():
        got = sample(part, [1] * MANY, draft, target, np.random.default_rng(0))
    expect(got == [1] * MANY + [0], f"{len(got)} tokens are gained of {MANY + 1}", why=NO_LIMIT)


@task("18.4")
def test_drafts_of_a_wide_vocabulary(part: Any) -> None:
    """Draft, target and output are those of the token, whatever its id.

    The draft model and the target give token x the same little probability, so x is accepted. Elsewhere
    they differ: with any other token's probability, x is rejected.
    """
    for vocab, x in IDS_BY_VOCABULARY.items():
        start_script()
        note(f"# a vocabulary of {vocab}; token {x} has a probability of 1e-9 in draft and target")
        draft, target = np.zeros((1, vocab)), np.zeros(vocab)
        draft[0, x], draft[0, CUT[x]] = 1e-9, 1 - 1e-9
        target[x], target[5] = 1e-9, 1 - 1e-9
        rows = np.broadcast_to(target, (2, vocab))
        note(f"rejection_sample([{x}], draft, target, rng)")
        got = sample(part, [x], draft, rows, np.random.default_rng(0))
        expect_equal(got, [x, 5], "the tokens gained", why=NO_BITS_LOST)


@task("18.4")
def test_tokens_of_many_calls(part: Any) -> None:
    """The tokens gained are a list for each call, and nothing is left behind."""
    own, rng = on_the_reference(part), np.random.default_rng(0)
    rows = [sure(token) for token in range(4)]

    def call(token: int) -> Any:
        return own([token], rows[token][None], np.stack([rows[token], rows[3]]), rng)

    expect_results_stand([lambda n=n: call(n) for n in range(3)], "rejection_sample")  # type: ignore[misc]
    draft, target = rows[1][None], np.stack([rows[1], rows[3]])
    expect_keeps_nothing(lambda: own([1], draft, target, rng), "rejection_sample")


@task("18.5")
def test_places_of_many_steps(part: Any) -> None:
    """Of a text that ended nothing is left, and a text that does not grow takes no more room."""
    places = part.DraftPlaces(BlockManager(16, 4))
    text = list(range(10))

    def step(key: str) -> None:
        held = places.begin(key, text, 3)
        places.wrote(key, text[held:])

    def whole() -> None:
        step("b")
        places.end("b")

    step("a")
    expect_keeps_nothing(lambda: step("a"), "a step of a text that has not grown")
    expect_keeps_nothing(whole, "a text that is begun, written and ended")


@task("18.6")
def test_kept_of_many_calls(part: Any) -> None:
    """What holds follows from the arguments; nothing is left behind."""
    fresh = count(1000)
    expect_keeps_nothing(lambda: part.kept(next(fresh), 5, 4, 3, 4), "kept")


@task("18.6")
def test_masks_of_many_calls(part: Any) -> None:
    """The rows are the caller's, and nothing of a call is left behind."""
    rows = np.zeros((4, 2), np.uint8)
    place = Place(FOLLOW)
    expect_keeps_nothing(lambda: part.masks_ahead(place, [1, 8, 15], rows), "masks_ahead")


@task("18.6")
def test_masks_of_many_drafts(part: Any) -> None:
    """However many drafts may come, the row behind each is filled."""
    place, rows = Place(FOLLOW), np.full((MANY + 1, 2), 0x5A, np.uint8)
    note(f"masks_ahead(place, [9] * {MANY}, rows)    # behind 9 only 9 may come")
    with deep_calls():
        part.masks_ahead(place, [9] * MANY, rows)
    wrong = [i for i in range(1, MANY + 1) if rows[i].tolist() != place.row(9)]
    expect(
        not wrong,
        f"of {MANY + 1} rows {len(wrong)} are wrong, from row {wrong[:1]} on",
        why=NO_LIMIT,
    )
    expect_equal(len(place.stack), 1, "how many tokens the grammar is behind", why=NO_LIMIT)


class OneWay(Place):
    """A grammar of one token after the other, over a wide vocabulary."""

    def __init__(self, tokens: list[int], vocab: int) -> None:
        follow = dict(zip([0, *tokens], ({token} for token in [*tokens, 0]), strict=True))
        super().__init__(follow, 0, -(-vocab // 8))

    def fill(self, bits: Any) -> None:
        bits[:] = 0
        (token,) = self._follow[self.stack[-1]]
        bits[token // 8] = 1 << token % 8


@task("18.6")
def test_masks_of_a_wide_vocabulary(part: Any) -> None:
    """A draft's bit is looked up, and the draft accepted, by its whole id."""
    for vocab, x in IDS_BY_VOCABULARY.items():
        start_script()
        place, rows = OneWay([x, 2], vocab), np.zeros((3, -(-vocab // 8)), np.uint8)
        note(
            f"masks_ahead(place, [{x}, 2], rows)    # of {vocab} tokens {x} alone may come, then 2"
        )
        part.masks_ahead(place, [x, 2], rows)
        expect_equal(place.refused, [], "drafts that accept had to refuse", why=NO_BITS_LOST)
        expect_equal(place.stack, [0], "the tokens behind which the grammar stands")
        for number, token in enumerate((x, 2, 0)):
            what = f"the tokens of row {number}, behind {[x, 2][:number]}"
            right = np.zeros(-(-vocab // 8), np.uint8)
            right[token // 8] = 1 << token % 8
            expect_tokens(rows[number], right, what, NO_BITS_LOST)
