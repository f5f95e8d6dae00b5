"""Task 18.7: how many drafts are worth it."""

import random
from typing import Any

from grader.kit import expect, expect_equal, note, task

DECAY = "A draw counts `decay` times as much for each draw after it, right or wrong."
BEGIN = "It begins as if one of two draws had been right, and those grow old as all do."
SERIES = (
    "The step brings one token in any case, and the j-th draft one more if it and all before it are "
    "right: 1 + a + a^2 + ... + a^k."
)
SPEED = "Tokens a second: what the step is expected to bring, divided by what it takes."
ROWS = (
    "Each request takes a row for its last token and one for each draft; the others take one each."
)
OTHERS = "Requests without drafts bring a token each as well."
DRAFTING = "A step with n drafts takes seconds(its tokens) + drafting(n)."
FEWER = "A request with fewer drafts than the number verifies all that it has."
NONE = "Without drafts a step is a number to compare with, too: 0 may be the best."
SMALLER = "Of two numbers that bring as many tokens a second take the smaller one."
ALL = "The best number may lie behind a worse one: look at each."


@task("18.7")
def test_rate(part: Any) -> None:
    """The rate is the share of right draws, old ones counting less."""
    fresh = part.Acceptance(0.9)
    note("acceptance = Acceptance(0.9)")
    _near(fresh.rate, 0.5, "rate at the beginning", BEGIN)
    fresh.add(1, 1)
    _near(fresh.rate, (0.9 + 1) / (1.8 + 1), "rate behind add(1, 1)", DECAY)
    fresh.add(0, 1)
    _near(fresh.rate, 1.71 / (2.52 + 1), "rate behind add(1, 1), add(0, 1)", DECAY)
    for decay in (0.5, 0.97):
        rng = random.Random(1)
        one, right, asked = part.Acceptance(decay), 1.0, 2.0
        for _ in range(40):
            count = rng.randint(0, 5)
            good = rng.randint(0, count)
            one.add(good, count)
            right, asked = right * decay**count + good, asked * decay**count + count
        _near(one.rate, right / asked, f"rate behind 40 calls, decay {decay}", DECAY)


def _near(got: float, wanted: float, what: str, why: str) -> None:
    expect(abs(got - wanted) < 1e-9 * max(1.0, abs(wanted)), f"{what} is {got:.6g}, not {wanted:.6g}",
           why=why)  # fmt: skip


@task("18.7")
def test_expected(part: Any) -> None:
    """A step with k drafts brings 1 + a + ... + a^k tokens."""
    for right, asked in ((1, 1), (0, 3), (9, 10), (400, 400)):
        one = part.Acceptance(0.9)
        one.add(right, asked)
        for count in range(9):
            wanted = sum(one.rate**power for power in range(count + 1))
            _near(one.expected(count), wanted, f"expected({count}) at rate {one.rate:.3f}", SERIES)


class Known:
    """A rate that is known."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def expected(self, num_drafts: int) -> float:
        return sum(self.rate**power for power in range(num_drafts + 1))

    def add(self, right: int, asked: int) -> None:
        raise AssertionError("most_worth only looks")


def number(part: Any, offers: list[tuple[float, int]], others: int, seconds: Any, drafting: Any,
           most: int = 8) -> int:  # fmt: skip
    known = [(Known(rate), offered) for rate, offered in offers]
    got: int = part.most_worth(known, others, seconds, drafting, most)
    return got


def free(_: int) -> float:
    return 0.0


def steps(of: dict[int, float]) -> Any:
    """seconds(t) of a table; what is not in it costs the next larger entry."""
    return lambda count: next((of[size] for size in sorted(of) if size >= count), 1e9)


@task("18.7")
def test_worked_cases(part: Any) -> None:
    """The number is the one with the most expected tokens a second."""
    dear = 1.0
    for what, offers, others, seconds, drafting, most, wanted, why in (
        ("verification is free", [(0.5, 8)], 0, lambda t: 1.0, free, 8, 8, SPEED),
        ("each token costs a step", [(0.9, 8)], 0, lambda t: float(t), free, 8, 0, NONE),
        ("nothing is ever right", [(0.0, 8)], 0, lambda t: 1.0, free, 8, 0, SMALLER),
        ("a draft costs a tenth", [(0.5, 8)], 0, lambda t: 0.9 + 0.1 * t, free, 8, 2, SPEED),
        ("drafts cost to make", [(0.5, 8)], 0, lambda t: 1.0, lambda n: 0.3 * n, 8, 1, DRAFTING),
        ("drafts cost too much", [(0.5, 8)], 0, lambda t: 1.0, lambda n: dear * n, 8, 0, DRAFTING),
        ("only three are offered", [(0.9, 3)], 0, lambda t: 1.0, free, 8, 3, SMALLER),
        ("most is 2", [(0.9, 8)], 0, lambda t: 1.0, free, 2, 2, ALL),
        ("a step takes 4 tokens at once", [(0.6, 8)], 0, steps({4: 1, 8: 2, 16: 4}), free, 8, 3, ROWS),
        ("two requests, 4 at once", [(0.6, 8)] * 2, 0, steps({4: 1, 8: 3, 32: 9}), free, 8, 1, ROWS),
        ("one of three has a draft, 4 at once", [(0.6, 8)], 2, steps({4: 1, 8: 3, 16: 9}), free, 8, 1,
         ROWS),
        ("one has 1 draft, one 8, 6 at once", [(0.8, 1), (0.8, 8)], 0, steps({6: 1, 12: 4}), free, 8, 3,
         FEWER),
        ("a worse number lies between", [(0.9, 8)], 0, steps({1: 1, 2: 2.5, 8: 2.6, 16: 9}), free, 8, 7,
         ALL),
        ("no one has drafts", [], 3, lambda t: 1.0, free, 8, 0, NONE),
    ):  # fmt: skip
        got = number(part, offers, others, seconds, drafting, most)
        expect_equal(got, wanted, f"most_worth where {what}", why=why)


@task("18.7")
def test_others_count(part: Any) -> None:
    """What the others bring weighs against drafts that slow them down."""
    line = lambda count: 1.0 + 0.1 * count  # noqa: E731
    alone = number(part, [(0.8, 8)], 0, line, free)
    beside = number(part, [(0.8, 8)], 40, line, free)
    expect_equal((alone, beside), (_best(0.8, 0, line), _best(0.8, 40, line)),
                 "drafts of one request alone, and beside 40 others", why=OTHERS)  # fmt: skip


def _best(rate: float, others: int, seconds: Any, most: int = 8) -> int:
    speeds = [(others + Known(rate).expected(count)) / seconds(others + 1 + count)
              for count in range(most + 1)]  # fmt: skip
    return speeds.index(max(speeds))


@task("18.7")
def test_any_costs(part: Any) -> None:
    """Whatever the rates and the costs, no number brings more tokens a second."""
    rng = random.Random(2)
    for _ in range(200):
        offers = [(rng.random(), rng.randint(1, 6)) for _ in range(rng.randint(1, 4))]
        others, most = rng.choice([0, 0, 1, 7]), rng.randint(1, 8)
        base, slope, each = (
            rng.random() + 0.1,
            rng.random() * 0.3,
            rng.choice([0, rng.random() * 0.3]),
        )

        def seconds(count: int, base: float = base, slope: float = slope) -> float:
            return base + slope * count

        def drafting(count: int, each: float = each) -> float:
            return each * count

        def speed(count: int) -> float:
            taken = [(rate, min(count, own)) for rate, own in offers]  # noqa: B023
            gain = others + sum(Known(rate).expected(own) for rate, own in taken)  # noqa: B023
            size = others + sum(1 + own for _, own in taken)  # noqa: B023
            return gain / (seconds(size) + drafting(count))

        got = number(part, offers, others, seconds, drafting, most)
        best = max(range(most + 1), key=lambda count: (speed(count), -count))
        what = f"most_worth of rates and offers {[(round(r, 2), n) for r, n in offers]}, {others} others"
        expect(0 <= got <= most, f"{what} is {got}, of at most {most}", why=ALL)
        expect(
            speed(got) >= speed(best) - 1e-12, f"{what} is {got}, and {best} brings more", why=SPEED
        )
