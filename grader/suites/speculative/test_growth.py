"""What a draft costs does not grow with the text, nor with other requests."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from grader.kit import task
from grader.kit.counted import CountedList
from grader.kit.growth import expect_growth
from solutions.paged_cache import BlockManager

TEXT = (
    "Drafts are looked up for each request in each step. A search through the text costs more with "
    "each of its tokens, and at some length more than the step that it saves."
)
LATEST = (
    "An n-gram may stand in a text thousands of times, and the latest place alone is wanted: keep that "
    "one for each n-gram of each length."
)
STANDS = "A table of the right length stays as it is: none of its blocks is shared or held anew."
EACH = "A draft is looked at once; what is known of the drafts before it is carried along."
NUMBERS = "A rate and its powers are numbers: no list of past steps is kept or added up."


@task("18.1")
def test_a_token_is_looked_up_at_any_length(part: ModuleType) -> None:
    """read of one more token, and place, cost the same behind 64 tokens and behind 256."""

    def index_of(n: int) -> tuple[Any, CountedList]:
        index, tokens = part.NgramIndex(4, 2), CountedList(token * 7 % 61 for token in range(n))
        index.read(tokens, n)
        return index, tokens

    def read(n: int) -> Callable[[], Any]:
        index, tokens = index_of(n)
        tokens.append(3)
        return partial(index.read, tokens, 8)

    def place(n: int) -> Callable[[], Any]:
        index, tokens = index_of(n)
        return partial(index.place, tokens)

    def behind(n: int) -> Callable[[], Any]:
        index = part.NgramIndex(4, 2)
        tokens = CountedList(token for number in range(n) for token in (number + 9, 1, 2))
        index.read(tokens, 3 * n)
        return partial(index.place, tokens)

    expect_growth(part, "read of one more token", "tokens of the text", read, why=TEXT)
    expect_growth(part, "place", "tokens of the text", place, why=TEXT)
    expect_growth(part, "place", "places where the n-gram stood", behind, why=LATEST)


@task("18.2")
def test_each_draft_is_compared_once(part: ModuleType) -> None:
    """accepted costs one comparison for each draft."""

    def right(n: int) -> Callable[[], Any]:
        drafts = CountedList(range(n))
        return partial(part.accepted, drafts, CountedList(range(n + 1)))

    expect_growth(part, "accepted", "drafts, all right", right, exponent=1, why=EACH)


@task("18.5")
def test_a_place_goes_on_where_it_was(part: ModuleType) -> None:
    """begin and wrote cost the tokens that are new, at any length and beside any other texts."""

    def begun(others: int, length: int) -> tuple[Any, CountedList]:
        places = part.DraftPlaces(BlockManager(length + others + 40, 4))
        for number in range(others):
            places.begin(f"other{number}", [number], 2)
        tokens = CountedList(range(length))
        for new in range(2):  # the first time all of the text is new
            start = places.begin("r", tokens, 3)
            places.wrote("r", [*tokens[start:], new, new + 1])
            tokens.extend([new, new + 1, 7])
        return places, tokens

    def again(n: int) -> Callable[[], Any]:
        places, tokens = begun(0, n)
        return partial(places.begin, "r", tokens, 3)

    def beside(n: int) -> Callable[[], Any]:
        places, tokens = begun(n, 6)
        return partial(places.begin, "r", tokens, 3)

    def wrote(n: int) -> Callable[[], Any]:
        places, tokens = begun(0, n)
        start = places.begin("r", tokens, 3)
        return partial(places.wrote, "r", list(tokens[start:]))

    def unchanged(n: int) -> Callable[[], Any]:
        places, tokens = begun(0, n)
        places.begin("r", tokens, 3)
        return partial(places.begin, "r", tokens, 3)

    expect_growth(part, "begin, three tokens later", "tokens of the text", again, why=TEXT)
    expect_growth(part, "begin, three tokens later", "other texts", beside, why=TEXT)
    expect_growth(part, "wrote of a few tokens", "tokens of the text", wrote, why=TEXT)
    what = "begin of a text that has not grown"
    expect_growth(part, what, "tokens of the text", unchanged, why=STANDS)


@task("18.7")
def test_a_rate_is_a_number(part: ModuleType) -> None:
    """add and rate cost the same after 64 steps and after 256; expected costs its drafts."""

    def after(n: int) -> Any:
        acceptance = part.Acceptance(0.95)
        for step in range(n):
            acceptance.add(step % 4, 4)
        return acceptance

    def rate(n: int) -> Callable[[], Any]:
        acceptance = after(n)
        return lambda: acceptance.rate

    for what, call in (
        ("add", lambda n: partial(after(n).add, 2, 4)),
        ("rate", rate),
        ("expected of four drafts", lambda n: partial(after(n).expected, 4)),
    ):
        expect_growth(part, what, "steps before", call, why=NUMBERS)
    expect_growth(
        part, "expected", "drafts", lambda n: partial(after(4).expected, n), exponent=1, why=EACH
    )
