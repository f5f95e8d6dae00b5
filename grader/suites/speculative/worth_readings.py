"""What mistakes make of `most_worth`, of an `Acceptance`, and of the speed of a choice."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from grader.kit.misread import Reading, reading_of

Seconds = Callable[[int], float]


def choices(
    offers: Sequence[tuple[Any, int]], others: int, seconds: Seconds, drafting: Seconds, most: int
) -> list[tuple[float, float]]:
    """(expected tokens, seconds) of the step with 0 to `most` drafts."""
    found = []
    for number in range(most + 1):
        taken = [(rate, min(number, offered)) for rate, offered in offers]
        gain = others + sum(rate.expected(count) for rate, count in taken)
        size = others + sum(1 + count for _, count in taken)
        found.append((gain, seconds(size) + drafting(number)))
    return found


def told_choice(number: int, choice: tuple[float, float]) -> str:
    """A number of drafts with what it brings."""
    gain, time = choice
    speed = gain / time if time else float("inf")
    return f"{number}, which brings {gain:.10g} tokens in {time:.6g} s: {speed:.10g} a second"


def _chosen(
    offers: Sequence[tuple[Any, int]],
    others: int,
    seconds: Seconds,
    drafting: Seconds,
    most: int,
    *,
    rows: Callable[[int], int] = lambda count: 1 + count,
    others_bring: int = 1,
    others_take: int = 1,
    drafts_take: int = 1,
    is_flat: bool = False,
    is_timeless: bool = False,
    is_limited: bool = True,
    likes_more: bool = False,
    numbers: Callable[[int], range] = lambda most: range(most + 1),
    stops: int = 0,
    is_mean: bool = False,
    leaves_out: bool = False,
    makes: Callable[[Seconds, int], float] = lambda drafting, number: drafting(number),
) -> int:
    """The choice, with one thing taken another way."""
    best, best_speed, worse = numbers(most)[0], 0.0, 0
    if leaves_out:
        offers = [offer for offer in offers if offer[1]]
    for number in numbers(most):
        taken = [(rate, min(number, offered) if is_limited else number) for rate, offered in offers]
        gain = others * others_bring + sum(rate.expected(count) for rate, count in taken)
        if is_mean and taken:
            mean = _Rate(sum(rate.rate for rate, _ in taken) / len(taken))
            gain = others + sum(mean.expected(count) for _, count in taken)
        size = others * others_take + sum(rows(count) for _, count in taken)
        size = others + len(offers) if is_flat else size
        time = 1.0 if is_timeless else seconds(size) + drafts_take * makes(drafting, number)
        speed = gain / time
        if speed > best_speed or (likes_more and speed == best_speed):
            best, best_speed, worse = number, speed, 0
        elif speed < best_speed:
            worse += 1
            if worse == stops:
                break
    return best


class _Rate:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def expected(self, number: int) -> float:
        return sum((self.rate**count for count in range(1, number + 1)), 1.0)


def _stairs(*times: float) -> Seconds:
    return lambda size: times[min(size, len(times) - 1)]


def _free(number: int) -> float:
    return 0.0


CASES: tuple[tuple[Any, ...], ...] = (
    ([(_Rate(0.9), 5)], 0, float, _free, 5),
    ([(_Rate(0.5), 9)], 0, _stairs(*[1.0] * 9, 10.0), _free, 9),
    ([(_Rate(0.5), 9)], 4, _stairs(*[1.0] * 9, 10.0), _free, 9),
    ([(_Rate(0.5), 9)] * 2, 2, _stairs(*[1.0] * 9, 10.0), _free, 9),
    ([(_Rate(0.8), 9)], 0, lambda size: 10.0, float, 9),
    ([(_Rate(0.5), 2)], 0, lambda size: 10.0, _free, 6),
    ([(_Rate(0.9), 4)], 100, lambda size: 10.0 + size, _free, 4),
    ([(_Rate(0.9), 4)], 3, lambda size: 2.0 + size, _free, 4),
    ([(_Rate(0.9), 7)], 0, _stairs(1.0, 1.0, 2.0), _free, 7),
    ([(_Rate(0.98), 12)], 0, _stairs(1.0, 1.0, 3.0), _free, 12),
    ([(_Rate(0.98), 16)], 0, _stairs(1.0, 1.0, 4.0), _free, 16),
    ([(_Rate(0.98), 20)], 0, _stairs(1.0, 1.0, 5.0), _free, 20),
    ([(_Rate(0.5), 9), (_Rate(0.5), 0)], 0, _stairs(*[1.0] * 9, 10.0), _free, 9),
    ([(_Rate(0.95), 4), (_Rate(0.05), 4)], 0, lambda size: 0.5 + size / 2, _free, 4),
    ([(_Rate(0.8), 4)], 0, lambda size: 3.0 + size, lambda n: 1.0 + 0.1 * n, 4),
    ([(_Rate(0.8), 4)], 0, lambda size: 3.0 + size, lambda n: 0.8 * (n > 0), 4),
    ([(_Rate(0.7), 3), (_Rate(0.3), 1)], 1, lambda size: 3.0 + size / 2, lambda n: 0.1 * n, 4),
)


def why_choice(part: Any, sentences: dict[str, str], case: tuple[Any, ...]) -> str:
    """The sentence whose mistake explains all choices, and this one; "" if none does."""
    readings: list[Reading] = [(sentences[name], partial(_chosen, **how)) for name, how in _HOWS]
    return reading_of(
        lambda *case: part.most_worth(list(case[0]), *case[1:]), readings, [*CASES, case]
    )


_HOWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("rows", {"rows": lambda count: max(1, count)}),
    ("rows", {"rows": lambda count: count}),
    ("others", {"others_take": 0}),
    ("others", {"others_bring": 0}),
    ("others", {"others_bring": 0, "others_take": 0}),
    ("drafting", {"drafts_take": 0}),
    ("rows", {"is_flat": True}),
    ("speed", {"is_timeless": True}),
    ("offered", {"is_limited": False}),
    ("smaller", {"likes_more": True}),
    ("reach", {"numbers": lambda most: range(max(1, most))}),
    ("none", {"numbers": lambda most: range(1, most + 1) or range(1)}),
    ("further", {"stops": 1}),
    ("further", {"stops": 2}),
    ("further", {"stops": 3}),
    ("own", {"is_mean": True}),
    ("empty", {"leaves_out": True}),
    ("makes", {"makes": lambda drafting, number: number * drafting(1)}),
    ("makes", {"makes": lambda drafting, number: drafting(number) if number else 0.0}),
)


def why_rate(part: Any, sentences: dict[str, str]) -> str:
    """The sentence whose mistake explains the rates after several courses; "" if none does."""
    readings: list[Reading] = [
        (sentences["begin"], lambda *course: _rate(*course, begin=(0.0, 0.0))),
        (sentences["begin"], lambda *course: _rate(*course, begin=(1.0, 1.0))),
        (sentences["begin"], lambda *course: _rate(*course, begin=(0.5, 1.0))),
        (sentences["decay"], lambda *course: _rate(*course, keep=lambda decay, asked: decay)),
        (sentences["decay"], lambda *course: _rate(*course, keep=lambda decay, asked: 1.0)),
        (sentences["both"], lambda *course: _rate(*course, old_asked=True)),
        (sentences["both"], lambda *course: _rate(*course, old_right=True)),
        (sentences["decay"], lambda *course: _rate(*course, one_by_one=True)),
        (sentences["new"], lambda *course: _rate(*course, new_too=True)),
        (sentences["share"], lambda *course: _rate(*course, of_wrong=True)),
    ]

    def asked(decay: float, *added: tuple[int, int]) -> float:
        acceptance = part.Acceptance(decay)
        for right, number in added:
            acceptance.add(right, number)
        return round(acceptance.rate, 9)

    courses = [(0.9,), (0.5, (1, 1)), (0.5, (0, 1)), (0.5, (1, 1), (0, 2)), (0.5, (3, 4)),
               (0.8, (2, 2), (0, 1)), (0.9, (2, 4), (1, 3), (0, 0))]  # fmt: skip
    return reading_of(asked, readings, courses)


def _rate(
    decay: float,
    *added: tuple[int, int],
    begin: tuple[float, float] = (1.0, 2.0),
    keep: Callable[[float, int], float] = lambda decay, asked: decay**asked,
    old_asked: bool = False,
    old_right: bool = False,
    one_by_one: bool = False,
    new_too: bool = False,
    of_wrong: bool = False,
) -> float:
    """The rate, with one thing taken another way."""
    right, asked = begin
    for few, many in added:
        share = keep(decay, many)
        if one_by_one:
            for number in range(many):
                right, asked = right * decay + (number < few), asked * decay + 1
        elif new_too:
            right, asked = (right + few) * share, (asked + many) * share
        else:
            right = right * (1.0 if old_right else share) + few
            asked = asked * (1.0 if old_asked else share) + many - few * of_wrong
    return round(right / asked, 9)
