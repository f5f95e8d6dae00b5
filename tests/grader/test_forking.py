"""A copy of the warm process that tells without end is ended, and the others are not."""

from dataclasses import dataclass

from grader.selfcheck import forking
from grader.selfcheck.forking import run_forked


@dataclass(frozen=True)
class Told:
    """emits: events of a kilobyte."""

    emits: int
    seconds: float = 60.0


def work(order, emit, slot):
    for number in range(order.emits):
        emit({"event": "result", "number": number, "text": "x" * 1024})


def test_what_a_copy_tells_is_bounded(monkeypatch):
    monkeypatch.setattr(forking, "MOST_TOLD", 2**20)
    done = list(run_forked([Told(10), Told(10**9)], 2, work, 2**30))
    by_order = {one.order.emits: one for one in done}
    assert (by_order[10].problem, len(by_order[10].events)) == ("", 11)
    endless = by_order[10**9]
    assert endless.problem == "told too much"
    assert 900 < len(endless.events) < 1300
