"""`make watch`: what keys and saved files lead to. The last test has a terminal, the others none."""

import os
import pty
import subprocess
import sys
import termios
import time

import pytest
from rich.text import Text

from grader.watch import Watch
from tests.grader.results import RADIX_TREE, complete, mixed
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, load_curriculum

SCHEDULER = load_curriculum()["scheduler"]


class FakeGrading:
    def __init__(self):
        self.outcome = None
        self.is_cancelled = False

    def poll(self):
        return self.outcome

    def cancel(self):
        self.is_cancelled = True


class FakeDesk:
    """A world that does nothing by itself."""

    def __init__(self):
        self.source = "v1"
        self.started = []
        self.gradings = []
        self.resets = 0
        self.following = SCHEDULER

    def digest(self, lab):
        return self.source

    def start(self, lab):
        self.started.append(lab.key)
        self.gradings.append(FakeGrading())
        return self.gradings[-1]

    def hint(self, lab, width):
        return [Text("a hint")]

    def reset(self, lab):
        self.resets += 1
        self.source = "stub"
        return "Your files are in a backup."

    def next_lab(self, lab):
        return self.following


@pytest.fixture
def desk():
    return FakeDesk()


@pytest.fixture
def watch(desk):
    return Watch(RADIX_TREE, desk)


def finish(watch, desk, result, withdrawn=()):
    desk.gradings[-1].outcome = (result, withdrawn)
    watch.tick()


def screen(watch):
    return "\n".join(line.plain for line in watch.screen())


def save(watch, desk, source):
    desk.source = source
    watch.tick()
    watch.tick()


def test_it_grades_at_once_and_shows_the_report(watch, desk):
    assert desk.started == ["radix_tree"]
    assert "grading ..." in screen(watch)
    finish(watch, desk, mixed(), ("4.2",))
    assert "1 task that passed now fails: 4.2" in screen(watch)
    assert "watching labs/radix_tree" in screen(watch)


def test_a_save_is_graded_once_it_has_settled(watch, desk):
    finish(watch, desk, mixed())
    for source in ("v2", "v3"):
        desk.source = source
        watch.tick()
    assert len(desk.started) == 1
    watch.tick()
    watch.tick()
    assert len(desk.started) == 2


def test_a_save_while_grading_starts_again(watch, desk):
    save(watch, desk, "v2")
    assert [grading.is_cancelled for grading in desk.gradings] == [True, False]


def test_the_screen_is_drawn_only_when_something_has_changed(watch, desk):
    watch.is_stale = False
    watch.tick()
    assert not watch.is_stale
    finish(watch, desk, mixed())
    assert watch.is_stale


def test_a_complete_lab_does_not_go_on_by_itself(watch, desk):
    finish(watch, desk, complete())
    for _ in range(20):
        watch.tick()
    assert watch.lab is RADIX_TREE
    assert "n next" in screen(watch)


def test_n_goes_on_once_the_lab_is_complete(watch, desk):
    finish(watch, desk, complete())
    watch.key("n")
    assert watch.lab is SCHEDULER
    assert desk.started == ["radix_tree", "scheduler"]
    assert "n next" not in screen(watch)


def test_n_does_nothing_before_that(watch, desk):
    finish(watch, desk, mixed())
    assert "n next" not in screen(watch)
    watch.key("n")
    assert watch.lab is RADIX_TREE
    assert "once every task of this lab has passed" in screen(watch)


def test_n_at_the_end_of_the_path_says_so(watch, desk):
    desk.following = None
    finish(watch, desk, complete())
    watch.key("n")
    assert "No lab after this one is open." in screen(watch)


def test_h_shows_a_hint_that_stays_until_another_task_has_passed(watch, desk):
    finish(watch, desk, mixed())
    watch.key("h")
    assert "a hint" in screen(watch)
    save(watch, desk, "v2")
    finish(watch, desk, mixed())
    assert "a hint" in screen(watch).splitlines()
    save(watch, desk, "v3")
    finish(watch, desk, complete())
    assert "a hint" not in screen(watch).splitlines()


def test_a_lab_without_hints_says_so(watch, desk):
    def none(lab, width):
        raise ConfigError("no hints yet")

    desk.hint = none
    watch.key("h")
    assert "no hints yet" in screen(watch)


def test_r_asks_first(watch, desk):
    watch.key("r")
    assert "y/n" in screen(watch)
    watch.key("q")
    assert (desk.resets, watch.is_over) == (0, False)
    watch.key("r")
    watch.key("y")
    assert desk.resets == 1
    watch.tick()
    watch.tick()
    finish(watch, desk, mixed())
    assert "Your files are in a backup." in screen(watch)
    assert len(desk.started) == 2


def test_g_grades_again_and_q_leaves(watch, desk):
    finish(watch, desk, mixed())
    watch.key("g")
    assert len(desk.started) == 2
    watch.key("Q")
    assert watch.is_over


def test_other_keys_do_nothing(watch, desk):
    for key in ("x", "", " ", "é"):
        watch.key(key)
    assert (len(desk.started), watch.is_over, desk.resets) == (1, False, 0)


def test_nothing_runs_after_it_was_closed(watch, desk):
    watch.close()
    assert desk.gradings[0].is_cancelled


COMMAND = [sys.executable, "-m", "grader", "watch", "radix_tree"]


def test_without_a_terminal_it_says_that_it_needs_one():
    run = subprocess.run(
        COMMAND, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 2
    assert "watch needs a terminal" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "status"), [(b"q", 0), (b"\x03", 130)])
def test_the_terminal_is_as_it_was_afterwards(ending, status):
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    environment = os.environ | {"TERM": "xterm"}
    watching = subprocess.Popen(
        COMMAND, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
        preexec_fn=_own_terminal,
    )  # fmt: skip
    try:
        seen = b""
        deadline = time.monotonic() + 60
        while b"q quit" not in seen and time.monotonic() < deadline:
            seen += os.read(ours, 4096)
        assert termios.tcgetattr(theirs)[3] != before[3]
        os.write(ours, ending)
        assert watching.wait(30) == status
        assert termios.tcgetattr(theirs) == before
    finally:
        watching.kill()
        os.close(ours)
        os.close(theirs)


def _own_terminal():
    """Make stdin the controlling terminal, so that Ctrl-C comes as a signal."""
    import fcntl

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
