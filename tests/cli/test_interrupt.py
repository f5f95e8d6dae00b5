"""Ctrl-C ends any command at any moment: status 130, one line, nothing left running.

CI presses it at a few moments of two commands, the night at twenty of all.
"""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.interrupting import (
    ROOM,
    SECONDS,
    Running,
    expect_end,
    grader,
    pressed_after,
    yaie,
)
from tests.models import fake_hub as hubs
from tests.models.fake_hub import FakeHub, fake_hub
from yaie.system.interrupt import IMPORT_SECONDS

MOMENTS = 20
LONG = ("--max-tokens", "900", "--temperature", "4", "--threads", "1")

COMMANDS = {
    "generate": (yaie("generate", "Tell me all.", *LONG), 8.0),
    "chat": (yaie("chat", *LONG), 6.0),
    "serve": (yaie("serve", "--port", "0", "--threads", "1"), 5.0),
    "serve with two processes": (yaie("serve", "--port", "0", "--engine-process"), 6.0),
    "bench": (yaie("bench", "latency", "--threads", "1"), 8.0),
    "bench with a server": (yaie("bench", "overhead", "--threads", "1"), 15.0),
    "doctor": (yaie("doctor"), 3.0),
    "build-kernels": (yaie("build-kernels"), 1.0),
    "lab": (yaie("lab"), 1.0),
    "lab grade": (yaie("lab", "grade", "radix_tree", "--impl", "solutions"), 6.0),
    "grade": (grader("grade", "--impl", "solutions"), 8.0),
    "hint": (grader("hint", "radix_tree", "--again"), 0.6),
    "selfcheck": (grader("selfcheck", "radix_tree"), 8.0),
    "stubs": ([sys.executable, "-m", "grader.stubs", "--check"], 1.5),
    "given": ([sys.executable, "-m", "book.tools.given_names", "--check"], 0.8),
    "traces": ([sys.executable, "-m", "book.tools.traces", "--check"], 6.0),
}

ANSWERS = {"hint": "Task 4.1: "}
"""How what a command prints begins, where that may be half out when the key is pressed."""

SWALLOWS = """
import time, sys
from yaie.system.interrupt import Interruptible
with Interruptible():
    print("ready", flush=True)
    while True:
        try:
            time.sleep(60)
        except BaseException:
            print("Error: this model is broken", file=sys.stderr) if len(sys.argv) > 1 else None
"""

FAILS_AFTER = """
import sys, time
from yaie.cli import main as cli
from yaie.core.errors import ModelError
from yaie.system.interrupt import Interruptible

class Broken:
    def __del__(self):
        raise ValueError("torn out")

def app(**_):
    broken = Broken()
    print("ready", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        raise ModelError("half of a library looks like a broken model")
    finally:
        open(sys.argv[1], "w").write("cleaned up")

cli.app = app
with Interruptible():
    cli.main()
"""


def script(text: str, *arguments: str) -> Running:
    running = Running([sys.executable, "-c", text, *arguments])
    running.wait_until(lambda: "ready" in running.output)
    return running


def test_an_interrupt_that_is_caught_ends_the_process_all_the_same() -> None:
    ended = script(SWALLOWS).interrupt()
    expect_end(ended)
    assert ended.said == "Stopped.\n"


def test_a_failure_that_it_causes_is_not_told_and_what_cleans_up_runs(tmp_path: Path) -> None:
    ended = script(FAILS_AFTER, str(tmp_path / "file")).interrupt()
    expect_end(ended)
    assert ended.said == "Stopped.\n"
    assert (tmp_path / "file").read_text() == "cleaned up"


IMPORTS = """
import sys, time
from yaie.system import interrupt
interrupt.IMPORT_SECONDS = interrupt.GRACE_SECONDS = float(sys.argv[2])
with interrupt.Interruptible():
    print("ready", flush=True)
    try:
        import slow_import
        time.sleep(60)
    finally:
        open(sys.argv[1], "w").write("cleaned up")
"""


ENDS_BY_ITSELF = """
import signal, time
from yaie.system import interrupt
interrupt.IMPORT_SECONDS = 1.0
with interrupt.Interruptible():
    print("ready", flush=True)
    import slow_import
    signal.signal(signal.SIGINT, lambda *_: None)
    interrupt.say_stopped()
    time.sleep(60)
"""


def test_a_command_that_ends_by_itself_and_is_ended_says_so_once(tmp_path: Path) -> None:
    """A server, whose own handler is in place when a signal that came in an import is passed on."""
    (tmp_path / "slow_import.py").write_text("import time\ntime.sleep(0.5)\n")
    text = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n" + ENDS_BY_ITSELF
    ended = script(text).interrupt()
    expect_end(ended)
    assert ended.said == "Stopped.\n"


@pytest.mark.parametrize(
    ("seconds", "patience", "cleaned"), [(0.3, 30, True), (60, IMPORT_SECONDS, False)]
)
def test_an_import_is_not_torn_apart_and_not_waited_for_long(
    tmp_path: Path, seconds: float, patience: float, cleaned: bool
) -> None:
    """As C++ does that imports and meets an exception, the module here ends the process. On a busy
    machine a short import may outlast any short patience."""
    (tmp_path / "slow_import.py").write_text(
        f"import os, time\ntry:\n    time.sleep({seconds})\nexcept BaseException:\n    os.abort()\n"
    )
    told = tmp_path / "file"
    text = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n" + IMPORTS
    ended = script(text, str(told), str(patience)).interrupt()
    expect_end(ended)
    assert ended.said == "Stopped.\n"
    assert told.exists() == cleaned


@pytest.mark.parametrize(
    "command",
    [yaie("generate", "hello"), grader("grade", "radix_tree", "--impl", "solutions")],
    ids=["generate", "grade"],
)
def test_three_moments_of_the_start(command: list[str]) -> None:
    with ThreadPoolExecutor(3) as pool:
        for ended in pool.map(pressed_after, (0.4, 0.8, 1.2), [command] * 3):
            if not ended.is_pythons_own:  # which a busy machine may take as long as that for
                expect_end(ended)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", COMMANDS)
def test_twenty_moments_of_every_command(name: str, tmp_path: Path) -> None:
    command, seconds = COMMANDS[name]
    early = done = 0
    for moment in range(MOMENTS):
        ended = pressed_after(
            seconds * (moment + 0.5) / MOMENTS, command, XDG_STATE_HOME=str(tmp_path)
        )
        early += ended.is_pythons_own
        if name.startswith("serve") and ended.status == 0:
            continue  # it served: the first Ctrl-C lets answers end, see test_serve.py
        if ended.status == 0 and not ended.said:
            done += 1  # it came as the command ended by itself
            continue
        if not ended.is_pythons_own:
            expect_end(ended, ANSWERS.get(name, ""), SECONDS + ROOM)
    assert early <= MOMENTS // 4
    assert done <= 1  # more would be a command that goes on


@pytest.fixture
def slow_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with a tiny model whose weights take half a minute to come."""

    def trickle(self: Any, status: int, data: bytes, headers: dict[str, str]) -> None:
        if len(data) < 100_000 or self.command != "GET":
            send(self, status, data, headers)
            return
        send(self, status, b"", headers)
        with suppress(OSError):
            for start in range(0, len(data), len(data) // 300):
                self.wfile.write(data[start : start + len(data) // 300])
                time.sleep(0.1)

    from tests.models.tiny import tiny_model

    send = hubs._Handler._send
    monkeypatch.setattr(hubs._Handler, "_send", trickle)
    with fake_hub() as hub:
        hub.add_folder("authors/tiny-llama", tiny_model("llama", tmp_path / "tiny"))
        yield hub


def press_while_downloading(hub: FakeHub, home: Path, delay: float) -> None:
    hub.requests.clear()
    running = Running(
        yaie("generate", "hello", "--model", "authors/tiny-llama"),
        HF_ENDPOINT=hub.url,
        HF_HOME=str(home),
        HF_HUB_OFFLINE="0",
        HF_HUB_DISABLE_XET="1",
    )
    running.wait_until(
        lambda: any(way == "GET" and path.endswith("safetensors") for way, path in hub.requests)
    )
    time.sleep(delay)
    ended = running.interrupt()
    assert ended.status is not None, running.output
    expect_end(ended, within=SECONDS + ROOM)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_twenty_moments_of_a_download(slow_hub: FakeHub, tmp_path: Path) -> None:
    for moment in range(MOMENTS):
        press_while_downloading(slow_hub, tmp_path / f"home{moment}", moment * 0.15)


@pytest.mark.nightly
def test_make_adds_a_line_of_its_own_and_no_more() -> None:
    ready = f"{sys.prefix}/.yaie-ready"
    command = [
        "make",
        "grade",
        "LAB=radix_tree",
        "IMPL=solutions",
        f"VENV={sys.prefix}",
        "-o",
        ready,
    ]
    ended = pressed_after(2.0, command)
    assert ended.status not in (None, 0)
    assert [line for line in ended.said.splitlines() if not line.startswith("make")] == ["Stopped."]
    assert ended.left == []
