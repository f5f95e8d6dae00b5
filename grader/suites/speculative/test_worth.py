"""Task 18.7: how many drafts are worth it."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, expect, expect_equal, note, start_script, task, watch
from grader.kit.apart import expect_unchanged
from grader.suites.speculative.worth_readings import choices, told_choice, why_choice, why_rate

SUM = (
    "A step with k drafts brings 1 + a + a^2 + ... + a^k tokens: the sample that always counts, and "
    "each further one only if all drafts before it were right."
)
NOW = "What is expected follows from the rate as it is now, after all that was added."
NEAR_ONE = (
    "A rate below 1 is no 1, however near: each draft is worth a little less than the one before."
)
MORE = st.integers(0, 60)
"""Samples of a call with many drafts."""
BEGIN = "It begins as if one of two samples had been right."
DECAY = (
    "A call with n samples first makes what counted before worth `decay` ** n of that, right ones and "
    "asked ones alike. The n samples of the call itself all count in full."
)
NEW = "What is added counts in full: it is what was there before that has become older."
BOTH = "Older samples count less, right ones and asked ones alike: both counts decay."
SHARE = "The rate is the right ones over all that were asked."
OF_RATES = {"begin": BEGIN, "decay": DECAY, "both": f"{BOTH} {SHARE}", "new": NEW, "share": SHARE}

SPEED = (
    "What counts is tokens a second: the expected tokens of all requests over the time of the step."
)
DRAFTING = "The step takes as long as it takes to make the drafts and to verify them."
OTHERS = (
    "Requests without drafts are in the same step: each brings a token, and each makes it longer."
)
ROWS = "A request with n drafts has n + 1 rows in the step: its known token, and the drafts."
OFFERED = "A request verifies no more drafts than it has."
NONE = "No draft at all is a choice, and the right one if every number loses."
REACH = "Every number from 0 to `most` is a choice, `most` included."
SMALLER = "Of two numbers that bring as many, the smaller: drafts that bring nothing only cost."
OWN = (
    "Each request brings what its own rate says. Drafts that are often right gain more than the mean of "
    "all rates tells, as expected tokens grow with the powers of a rate."
)
MAKES = (
    "`drafting(n)` is what it takes to make n drafts, for each n, 0 too: not n times that of one."
)
EMPTY = (
    "An offer of no drafts is in the step all the same: the request has a row, and brings a token."
)
LEAD = "The number that brings the most tokens a second is taken, however small its lead is."
ANEW = (
    "Rates and times are asked in each call: they change between steps, while the objects that tell "
    "them stay the same."
)
FURTHER = (
    "A number may be worse than the one before and a larger one better than both, where the time of a "
    "step grows in stairs. Look at all of them."
)
OF_CHOICES = {
    "rows": ROWS, "others": OTHERS, "drafting": DRAFTING, "speed": f"{DRAFTING} {SPEED}",
    "offered": OFFERED, "smaller": SMALLER, "reach": REACH, "none": NONE, "further": FURTHER,
    "own": OWN, "makes": MAKES, "empty": EMPTY,
}  # fmt: skip


class Rate:
    """An acceptance whose rate is known."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def expected(self, num_drafts: int) -> float:
        return sum((self.rate**number for number in range(1, num_drafts + 1)), 1.0)

    def add(self, right: int, asked: int) -> None:
        raise AssertionError("most_worth asks; it does not add")

    def __repr__(self) -> str:
        return f"rate {self.rate:g}"


def acceptance(part: Any, decay: float, *added: tuple[int, int]) -> Any:
    start_script()
    note(f"acceptance = Acceptance({decay})")
    made = watch(part.Acceptance(decay), "acceptance")
    for right, asked in added:
        made.add(right, asked)
    return made


def near(got: float, right: float, what: str, why: str) -> None:
    if abs(got - right) > 1e-9 * max(1.0, abs(right)):
        expect_equal(round(got, 9), round(right, 9), what, why=why)


def expect_rate(part: Any, got: float, right: float, what: str) -> None:
    if abs(got - right) > 1e-9:
        near(got, right, what, why_rate(part, OF_RATES))


@task("18.7")
def test_the_rate_at_first(part: Any) -> None:
    """It begins as if one of two samples had been right."""
    expect_rate(part, acceptance(part, 0.9).rate, 0.5, "the rate at first")
    expect_rate(part, acceptance(part, 0.9, (0, 0)).rate, 0.5, "the rate after no sample")


@task("18.7")
def test_old_draws_count_less(part: Any) -> None:
    """One more sample multiplies what counted before."""
    for decay, added, right, what in (
        (0.5, [(1, 1)], 1.5 / 2, "the rate after a sample that was right"),
        (0.5, [(0, 1)], 0.5 / 2, "the rate after a sample that was wrong"),
        (0.5, [(1, 1), (0, 2)], 0.375 / 2.5, "the rate after one right and two wrong"),
        (0.5, [(3, 4)], (1 / 16 + 3) / (2 / 16 + 4), "the rate after four samples in one call"),
        (0.8, [(2, 2), (0, 1)], 0.8 * (0.64 + 2) / (0.8 * (1.28 + 2) + 1),
         "the rate after two right and one wrong, decay 0.8"),
    ):  # fmt: skip
        expect_rate(part, acceptance(part, decay, *added).rate, right, what)


@task("18.7")
@examples(80)
@given(
    st.sampled_from([0.5, 0.9, 0.97, 0.999]),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)) | st.tuples(MORE, MORE)),
)
def test_any_draws(part: Any, decay: float, added: list[tuple[int, int]]) -> None:
    """Whatever was added, the rate is the share of samples, each worth what decay has left of it."""
    made = acceptance(part, decay)
    right, asked = 1.0, 2.0
    for one, other in added:
        few, many = min(one, other), max(one, other)
        made.add(few, many)
        keep = decay**many
        right, asked = right * keep + few, asked * keep + many
        expect_rate(part, made.rate, right / asked, f"the rate after {few} right of {many}")


@task("18.7")
def test_expected_tokens(part: Any) -> None:
    """One token always counts, and each draft is worth less than the one before."""
    made = acceptance(part, 0.9)
    for number, right in ((0, 1.0), (1, 1.5), (2, 1.75), (4, 1.9375)):
        near(made.expected(number), right, f"expected({number}) at a rate of 0.5", SUM)
    made = acceptance(part, 0.5, (1, 1))
    near(made.expected(3), 1 + 0.75 + 0.75**2 + 0.75**3, "expected(3) at a rate of 0.75", SUM)


@task("18.7")
def test_expected_tokens_of_drafts_that_are_nearly_always_right(part: Any) -> None:
    """A rate near 1 is not 1."""
    for number in (4, 8, 11, 14):
        made = acceptance(part, 0.5, *[(1, 1)] * number)
        wrong = 0.5**number / 2
        right = sum((1 - wrong) ** power for power in range(5))
        what = f"expected(4) after {number} samples that were right, a rate of {1 - wrong:.6f}"
        near(made.expected(4), right, what, NEAR_ONE)


@task("18.7")
def test_expected_tokens_of_drafts_that_are_always_right(part: Any) -> None:
    """At a rate of 1, k drafts are k + 1 tokens."""
    made = acceptance(part, 0.5, *[(1, 1)] * 80)
    near(made.expected(4), 5.0, "expected(4) after 80 samples that were right", SUM)


@task("18.7")
def test_what_is_expected_follows_the_rate(part: Any) -> None:
    """What a number of drafts brings is that of the rate as it is now."""
    made, right, asked = acceptance(part, 0.5), 1.0, 2.0
    for few, many in ((0, 0), (3, 3), (0, 2), (1, 4)):
        made.add(few, many)
        right, asked = right * 0.5**many + few, asked * 0.5**many + many
        rate = right / asked
        what = f"expected(2) after {few} right of {many}, at a rate of {rate:.9g}"
        near(made.expected(2), 1 + rate + rate**2, what, NOW)


def worth(
    part: Any,
    offers: list[tuple[Rate, int]],
    others: int,
    seconds: Callable[[int], float],
    drafting: Callable[[int], float],
    most: int,
    said: str,
    *,
    goes_on: bool = False,
) -> int:
    """goes_on: whether the calls before belong to this one."""
    if not goes_on:
        start_script()
    note(f"most_worth({offers}, {others}, seconds, drafting, {most})    # {said}")
    given = list(offers)
    got: int = part.most_worth(given, others, seconds, drafting, most)
    expect_unchanged(given, offers, "the list of offers that most_worth was given")
    return got


def expect_worth(
    part: Any,
    offers: list[tuple[Rate, int]],
    others: int,
    seconds: Callable[[int], float],
    drafting: Callable[[int], float],
    most: int,
    said: str,
    right: int,
    what: str = "the number of drafts",
    why: str = "",
    *,
    goes_on: bool = False,
) -> None:
    """That most_worth takes this number. If not, what both numbers bring, and the mistake. why: the one
    that leads there if no reading does."""
    got = worth(part, offers, others, seconds, drafting, most, said, goes_on=goes_on)
    if got == right and isinstance(got, int):
        return
    is_choice = isinstance(got, int) and 0 <= got <= most
    expect(is_choice, f"{what}: {got} is none of 0 to {most}", why=REACH)
    brings = choices(offers, others, seconds, drafting, most)
    why = why_choice(part, OF_CHOICES, (offers, others, seconds, drafting, most)) or why
    raise Mismatch(
        f"{what}: not as expected",
        told_choice(right, brings[right]), told_choice(got, brings[got]), why,
    )  # fmt: skip


def expect_worth_of(part: Any, rates: list[Rate], times: list[float], right: int) -> None:
    """As expect_worth: four drafts for each rate, and a step of t tokens takes times[t - 1]."""
    said = f"steps of 1, 2, ... tokens take {', '.join(f'{time:g}' for time in times)}"
    offers = [(rate, 4) for rate in rates]
    expect_worth(part, offers, 0, lambda size: times[size - 1], free, 4, said, right)


def free(number: int) -> float:
    return 0.0


def flat(size: int) -> float:
    return 10.0


@task("18.7")
def test_steps_that_take_as_long(part: Any) -> None:
    """Where verification costs nothing, as many drafts as there are."""
    said = "a step takes 10, drafting 0"
    expect_worth(part, [(Rate(0.5), 9)], 0, flat, free, 6, said, 6)
    what = "the number of drafts when there are 2"
    expect_worth(part, [(Rate(0.5), 2)], 0, flat, free, 6, said, 2, what)


@task("18.7")
def test_drafting_takes_time(part: Any) -> None:
    """A draft that takes a tenth of a step is worth it up to the sixth at a rate of 0.8."""
    said = "a step takes 10, drafting 1 each"
    expect_worth(part, [(Rate(0.8), 9)], 0, flat, float, 9, said, 6)


@task("18.7")
def test_drafts_that_lose(part: Any) -> None:
    """Where each row takes as long as a step, no draft is worth it."""
    expect_worth(part, [(Rate(0.9), 5)], 0, float, free, 5, "a step of t tokens takes t", 0)
    expect_worth(part, [], 3, flat, free, 5, "no request has drafts", 0)
    expect_worth(part, [(Rate(0.9), 5)], 0, flat, free, 0, "none may be taken", 0)


def cliff(size: int) -> float:
    """Up to 8 tokens nothing more, from there much more."""
    return 1.0 if size <= 8 else 10.0


@task("18.7")
def test_rows_of_the_step(part: Any) -> None:
    """The step's size counts every row: known tokens, drafts, and the other requests'."""
    for offers, others, right in ((1, 0, 7), (1, 4, 3), (2, 0, 3), (2, 2, 2), (4, 4, 0)):
        asked = [(Rate(0.5), 9)] * offers
        said = "a step of up to 8 tokens takes 1, of more 10"
        what = f"the number of drafts, {offers} with drafts and {others} without"
        expect_worth(part, asked, others, cliff, free, 9, said, right, what)


@task("18.7")
def test_the_others_wait(part: Any) -> None:
    """What a few requests gain, all the others pay for."""
    offers, said = [(Rate(0.9), 4)], "a step of t tokens takes 10 + t"

    def slower(size: int) -> float:
        return 10.0 + size

    what = "the number of drafts beside 100 others"
    expect_worth(part, offers, 100, slower, free, 4, said, 0, what)
    expect_worth(part, offers, 0, slower, free, 4, said, 4, "the number of drafts of one alone")


@task("18.7")
def test_stairs(part: Any) -> None:
    """A number may lose and a larger one win."""

    for height, rate, most in ((2, 0.9, 7), (3, 0.98, 12), (4, 0.98, 16), (5, 0.98, 20)):

        def stairs(size: int, height: float = height) -> float:
            return 1.0 if size == 1 else height

        said = f"one token takes 1, more take {height}"
        expect_worth(part, [(Rate(rate), most)], 0, stairs, free, most, said, most)


@task("18.7")
def test_each_request_by_its_own_rate(part: Any) -> None:
    """What a step brings is added up by request: one is often right, and another hardly ever."""
    rates = [Rate(0.95), Rate(0.05)]
    expect_worth_of(part, rates, [2.0, 2.8, 3.0, 3.4, 3.6, 3.8, 4.3, 4.7, 4.7, 5.2], 4)


@task("18.7")
def test_a_small_lead(part: Any) -> None:
    """The best number is taken, however little it is better."""
    said = "a step takes 10, drafting 0"
    expect_worth(part, [(Rate(0.1), 8)], 0, flat, free, 8, said, 8, why=LEAD)


@task("18.7")
def test_each_choice_asks_anew(part: Any) -> None:
    """What a rate, a step and drafting are worth is asked in each call: they change between steps."""
    start_script()
    one, time = Rate(0.9), {"step": 10.0, "token": 0.0, "draft": 0.0}

    def seconds(size: int) -> float:
        return time["step"] + time["token"] * size

    def drafting(number: int) -> float:
        return time["draft"] * number

    for now, rate, right in (
        ({}, 0.9, 4),
        ({"token": 10.0}, 0.9, 3),
        ({"token": 10.0}, 0.1, 0),
        ({}, 0.1, 4),
        ({"draft": 10.0}, 0.9, 0),
    ):
        one.rate = rate
        time.update({"token": 0.0, "draft": 0.0} | now)
        said = f"a step of t tokens takes 10 + {time['token']:g} t now, drafting {time['draft']:g} each"
        what = "the number of drafts, with the same functions and requests as before"
        fresh = [(Rate(rate), 4)]
        got = part.most_worth(fresh, 0, lambda size: seconds(size), lambda n: drafting(n), 4)
        expect_worth(
            part, [(one, 4)], 0, seconds, drafting, 4, said, right, what, ANEW * (got == right),
            goes_on=True,
        )  # fmt: skip


@task("18.7")
@examples(100)
@given(st.data())
def test_any_offers(part: Any, data: st.DataObject) -> None:
    """The number taken brings the most tokens a second, and no smaller one as many."""
    rates = st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9])
    offers = data.draw(st.lists(st.tuples(rates.map(Rate), st.integers(0, 6)), max_size=4))
    others, most = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 8))
    times = [1.0]
    for growth in data.draw(
        st.lists(st.sampled_from([0.0, 0.0, 0.1, 0.5]), min_size=40, max_size=40)
    ):
        times.append(times[-1] + growth)
    draft_time = data.draw(st.sampled_from([0.0, 0.02, 0.1]))
    first = data.draw(st.sampled_from([0.0, 0.0, 0.3]))
    further = data.draw(st.sampled_from([0.0, 0.2]))
    stairs = ", ".join(f"{time:g}" for time in times[:10])
    said = f"steps of 1, 2, ... take {stairs}; drafting n takes {first:g} + {draft_time:g} n"
    said += " + 0.2 from n = 3 on" if further else ""

    def seconds(size: int) -> float:
        return times[size]

    def drafting(number: int) -> float:
        return first + draft_time * number + (further if number > 2 else 0.0)

    speeds = [gain / time for gain, time in choices(offers, others, seconds, drafting, most)]
    best = max(speeds)
    right = next(number for number, speed in enumerate(speeds) if speed >= best * (1 - 1e-9))
    expect_worth(part, offers, others, seconds, drafting, most, said, right)
