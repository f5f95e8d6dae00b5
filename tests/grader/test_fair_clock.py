"""The clock that leaves out what other programs took: on this machine's threads, and on made-up ones."""

import os
import subprocess
import sys

import pytest

from grader import fair_clock
from grader.fair_clock import MOST, FairClock, waits, with_children


class Threads:
    """Made-up threads, and a clock on the wall that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.waits: dict[str, float] = {}
        monkeypatch.setattr(fair_clock, "waits", lambda pids: dict(self.waits))
        monkeypatch.setattr(fair_clock.time, "monotonic", lambda: self.now)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(monkeypatch)


def test_a_machine_that_is_not_busy_has_a_clock_on_the_wall(threads: Threads) -> None:
    threads.waits = {"a": 5.0}  # before
    clock = FairClock()
    threads.now += 3.0
    clock.look()
    assert clock.used == 3.0
    assert not clock.is_starved


def test_the_thread_that_waited_longest_counts(threads: Threads) -> None:
    threads.waits = {"a": 5.0, "b": 1.0}
    clock = FairClock()
    threads.now += 4.0
    threads.waits = {"a": 6.0, "b": 4.0}
    clock.look()
    assert clock.used == 1.0
    assert clock.is_starved
    threads.now += 4.0
    threads.waits = {"a": 8.0, "c": 1.0}  # b has ended, c is new
    clock.look()
    assert clock.used == 3.0


def test_threads_that_wait_together_do_not_count_twice(threads: Threads) -> None:
    clock = FairClock()
    threads.now += 1.0
    threads.waits = {"a": 40.0}  # a thread that began long before it was met
    clock.look()
    assert clock.used == pytest.approx(1.0 / MOST)


def test_a_wait_ends_whatever_else_runs(threads: Threads) -> None:
    clock = FairClock()

    def wait(seconds: float) -> bool:
        threads.now += 0.5
        threads.waits["a"] = threads.now  # it never ran
        return False

    assert clock.until(2.0, wait) is False
    assert 100.0 + 2.0 * MOST <= threads.now < 101.0 + 2.0 * MOST


def test_a_wait_returns_what_came() -> None:
    assert FairClock().until(60.0, lambda seconds: [seconds]) == [fair_clock.SLICE]


SHARES = """
import os, sys, time
from grader.fair_clock import waits
os.sched_setaffinity(0, {int(sys.argv[1])})
end = time.monotonic() + 1.0
while time.monotonic() < end:
    pass
print(max(waits([os.getpid()]).values()))
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="needs Linux, which tells how long threads wait"
)
def test_two_processes_on_one_core_are_seen_to_wait() -> None:
    core = str(min(os.sched_getaffinity(0)))
    command = [sys.executable, "-c", SHARES, core]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [float(process.communicate(timeout=60)[0]) for process in running]
    assert min(said) > 0.1
    assert sum(said) > 0.5


def test_what_has_ended_has_not_waited() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert waits([process.pid]) == {}


def test_a_family_is_this_process_and_all_below_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    try:
        assert {os.getpid(), child.pid, grandchild} <= set(with_children())
    finally:
        child.kill()
        child.communicate()
    assert child.pid not in with_children()


PARENT = (
    "import subprocess, sys; "
    "child = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], "
    "stdin=subprocess.PIPE); "
    "print(child.pid, flush=True); child.wait()"
)
