"""What stop strings cost: characters looked at, counted, however long the text before is."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from solutions.engine import StopChecker as Reference
from yaie.core.contracts import StopChecker
from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.core.params_lists import MAX_STOP_CHARS, MAX_STOPS
from yaie.engine.step.late_stops import LateStopChecker


class Counted(str):
    """A text that counts the characters that are looked at or copied in it and its pieces."""

    looked = 0

    def _count(self, num_chars: int) -> None:
        Counted.looked += 1 + num_chars

    def __add__(self, other: str) -> "Counted":
        self._count(len(self) + len(other))
        return Counted(str(self) + str(other))

    def __radd__(self, other: str) -> "Counted":
        self._count(len(self) + len(other))
        return Counted(str(other) + str(self))

    def __getitem__(self, key: Any) -> "Counted":
        piece = str(self)[key]
        self._count(len(piece))
        return Counted(piece)

    def find(self, stop: str, start: int = 0, *_: Any) -> int:  # type: ignore[override]
        at = str(self).find(str(stop), start)
        self._count((len(self) if at < 0 else at + len(stop)) - start)
        return at

    def startswith(self, prefix: Any, *_: Any) -> bool:  # type: ignore[override]
        self._count(len(prefix))
        return str(self).startswith(str(prefix))

    def endswith(self, suffix: Any, *_: Any) -> bool:  # type: ignore[override]
        self._count(len(suffix))
        return str(self).endswith(str(suffix))


def work(checker: StopChecker, pieces: Sequence[str]) -> list[int]:
    """Characters that each piece of a text cost."""
    costs = []
    for piece in pieces:
        Counted.looked = 0
        assert checker.push(Counted(piece))[1] is None
        costs.append(Counted.looked)
    return costs


def stops() -> list[Counted]:
    """As many and as long as they may be, and alike to their last characters."""
    return [Counted("a" * (MAX_STOP_CHARS - 2) + f"{i:02x}") for i in range(MAX_STOPS)]


MAKERS = {
    "reference": lambda: Reference(stops()),
    "late": lambda: LateStopChecker(stops(), 3),
    "late, not yet": lambda: LateStopChecker(stops(), 10**9),
}
TEXTS: dict[str, list[str]] = {
    "all may be a start": ["aaaa"] * 600,
    "nearly a stop string, again and again": ["a" * 4] * 63 + ["x"] + ["a" * 4] * 63 + ["x"] * 400,
    "nothing like it": ["bcde"] * 600,
    "by chance": random.Random(0).choices(["a", "aa", "aaa b", "c", ""], k=600),
}
MOST = 3 * MAX_STOPS * (MAX_STOP_CHARS + 8)
"""Characters a token, on average: each stop string is compared with what is held back a few times."""


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_token_costs_no_more_however_much_text_came_before(maker: str, text: str) -> None:
    costs = work(MAKERS[maker](), TEXTS[text])
    early, late = sum(costs[100:300]), sum(costs[-200:])
    assert late <= 1.1 * early + MOST
    assert sum(costs) <= MOST * len(costs)


def test_the_end_of_what_was_held_back_is_found_in_one_go() -> None:
    """The worst single token: every place that was held back turns out to be none."""
    costs = work(LateStopChecker(stops(), 1), ["a" * 250, "b"])
    assert costs[1] <= 2 * MAX_STOPS * MAX_STOP_CHARS**2 / 2


@pytest.mark.parametrize("given", ["x" * 257, ["a", "x" * 257]])
def test_a_stop_string_that_is_too_long_is_refused_by_index_and_numbers(given: Any) -> None:
    with pytest.raises(InvalidRequestError) as error:
        SamplingParams(stop=given)
    index = 0 if isinstance(given, str) else 1
    assert error.value.param == "stop"
    for part in ("stop", f"index {index}", "256", "257"):
        assert part in error.value.message


def test_the_longest_and_most_stop_strings_are_taken() -> None:
    assert len(SamplingParams(stop=["x" * MAX_STOP_CHARS] * MAX_STOPS).stop) == MAX_STOPS
