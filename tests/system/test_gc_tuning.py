"""When all objects are looked through: never beside a large answer."""

import gc
import sys
import threading
import weakref
from collections.abc import Iterator

import psutil
import pytest

from yaie.engine.background import engine_thread
from yaie.engine.background.engine_thread import EngineThread
from yaie.engine.background.messages import Wake
from yaie.system.gc_tuning import collect_at_rest, few_collections, freeze_heap


@pytest.fixture
def whole_collections() -> Iterator[list[int]]:
    """One entry for each, from `freeze_heap` on."""
    before, seen = gc.get_threshold(), list[int]()
    freeze_heap()

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start" and about["generation"] == 2:
            seen.append(1)

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.set_threshold(*before)
    gc.unfreeze()


MANY = 200_000
"""Objects of a few tens of megabytes in all."""


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self, size: int = 0) -> None:
        self.own = self
        self.room = bytearray(size)


def never() -> None:
    raise AssertionError


def test_large_answers_alone_start_no_whole_collection(whole_collections: list[int]) -> None:
    """Each has as many objects as the log-probabilities of 64 echoed prompts of 1,900 tokens."""
    for _ in range(4):
        answer = [[(token, 0.5) for token in range(5)] for _ in range(64 * 1900)]
        assert len(answer) == 64 * 1900
    assert whole_collections == []


def test_garbage_goes_where_nothing_has_run_for_a_while(
    whole_collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_thread, "CALM", 0.01)
    thread = EngineThread(never)
    knots, gone = [Knot() for _ in range(MANY)], threading.Event()
    weakref.finalize(knots[0], gone.set)
    gc.collect(1)  # no longer young
    del knots
    waiting = threading.Thread(target=thread._next_command, daemon=True)
    waiting.start()
    assert gone.wait(10)
    thread.send(Wake())
    waiting.join(10)
    assert not waiting.is_alive()
    assert whole_collections == [1]


def test_no_whole_collection_while_a_large_answer_is_written(whole_collections: list[int]) -> None:
    with few_collections():
        collect_at_rest()
    assert whole_collections == []
    collect_at_rest()
    assert whole_collections == [1]


def resident() -> int:
    """Bytes of this process in memory."""
    size: int = psutil.Process().memory_info().rss
    return size


@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc")
def test_what_garbage_held_goes_back_to_the_system() -> None:
    """200 MB that only the collector finds, among small things that stay: the C library would keep
    them."""
    before, staying = resident(), list[bytearray]()

    def work() -> None:
        for number in range(2000):
            Knot(100_000)
            if number % 10 == 0:
                staying.append(bytearray(3000))

    with few_collections():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    collect_at_rest()
    assert resident() - before < 50 << 20
