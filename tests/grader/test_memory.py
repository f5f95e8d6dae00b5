"""What calls keep and take, in bytes: a leak is found whatever tables are made meanwhile."""

import sys
from itertools import count
from types import ModuleType
from typing import Any

import pytest

from grader.kit import Mismatch
from grader.kit.holders import holder_of
from grader.kit.memory import LEAST, expect_keeps_nothing, kept_by, peak_of
from grader.kit.standing import expect_results_stand


def test_a_call_that_keeps_its_arguments_is_found() -> None:
    history: list[Any] = []

    def leaks(number: int) -> int:
        history.append(dict(locals()))
        return number

    assert kept_by(lambda: leaks(1000)) > LEAST
    with pytest.raises(Mismatch, match="leaks keeps"):
        expect_keeps_nothing(lambda: leaks(1000), "leaks")


def test_a_table_that_grows_for_a_while_is_no_leak() -> None:
    table: dict[int, list[int]] = {}

    def learns() -> None:
        if len(table) < 150:
            table[len(table)] = [0] * 40

    expect_keeps_nothing(learns, "a call that learns")
    assert len(table) == 150


def test_what_a_call_has_at_most_is_counted() -> None:
    numbers = list(range(10_000))
    assert peak_of(lambda: numbers[:10]) < 1000
    assert peak_of(lambda: numbers[:]) >= 80_000


def test_a_result_that_the_next_call_fills_is_found() -> None:
    buffer: list[int] = []

    def fills(number: int) -> list[int]:
        buffer[:] = [number]
        return buffer

    expect_results_stand([lambda: [1], lambda: [2]], "fresh lists")
    with pytest.raises(Mismatch, match="the result of call 1 has changed") as failure:
        expect_results_stand([lambda: fills(1), lambda: fills(2)], "fills")
    assert failure.value.why.startswith("It holds the result of call 2 now.")


def test_the_attribute_that_grows_is_named_and_one_that_may_stay_is_not() -> None:
    class Keeper:
        __module__ = "labs.engine.detokenizer"

        def __init__(self) -> None:
            self._ids: list[int] = []
            self._known: dict[int, str] = {}

        def push(self, number: int) -> None:
            self._ids.append(number)
            self._known[number] = "text" * number

    keeper, numbers = Keeper(), count()
    holder = holder_of(lambda: keeper.push(next(numbers)))
    assert holder is not None
    assert holder.told == "`_known` of Keeper gains an entry"
    assert holder_of(lambda: None) is None


def test_a_modules_dict_that_grows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module, numbers = ModuleType("labs.sampler.noise"), count()
    kept: dict[int, str] = {}
    vars(module)["_KEPT"] = kept
    monkeypatch.setitem(sys.modules, module.__name__, module)
    holder = holder_of(lambda: kept.setdefault(next(numbers), "text"))
    assert holder is not None
    assert holder.told == "`_KEPT` of labs.sampler.noise gains an entry"
