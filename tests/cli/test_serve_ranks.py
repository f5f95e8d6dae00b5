"""`yaie serve --tensor-parallel 2` as processes: how it ends, and that nothing of it is left."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.cli.conftest import Yaie
from tests.cli.test_serve import ROOT, address_in
from tests.server.conftest import within
from yaie.server.listen import listen

pytestmark = pytest.mark.slow
LONG: dict[str, Any] = {"prompt": "hello", "max_tokens": 900, "ignore_eos": True, "stream": True}
DRIVERS = ("--engine-process", "--no-engine-process")
GONE_SECONDS = 15.0
"""In which a server ends when a rank is lost."""


@dataclass
class Served:
    """A server whose model is on two ranks."""

    process: "subprocess.Popen[str]"
    lines: list[str]
    folder: Path
    url: str = ""

    def family(self) -> list[psutil.Process]:
        """All processes that it has started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def rank(self) -> psutil.Process:
        """That of rank 1."""
        found = [one for one in self.family() if is_rank(one)]
        assert len(found) == 1, found
        return found[0]

    def said(self) -> str:
        return "".join(self.lines)


def is_rank(process: psutil.Process) -> bool:
    """multiprocessing's children of ours, but for its tracker of resources."""
    command = " ".join(process.cmdline())
    return "spawn_main" in command and process.num_threads() > 2


@contextmanager
def served(model: str, tmp_path: Path, *args: str) -> Iterator[Served]:
    process = subprocess.Popen(
        [sys.executable, "-c", "from yaie.cli.main import main; main()", "serve", model,
         "--port=0", "--tensor-parallel=2", "--num-blocks=64", "--mine=none", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "200",
             "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    lines: list[str] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda pipe: lines.extend(pipe), args=(process.stdout,))
    reader.start()
    server = Served(process, lines, tmp_path)
    family: list[psutil.Process] = []
    try:
        server.url = address_in(process, lines)
        family = server.family()
        yield server
    finally:
        process.kill()
        process.wait()
        within(GONE_SECONDS, lambda: not any(is_there(one) for one in family))
        reader.join(10)
    expect_nothing_left(server, family)


def is_there(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def expect_nothing_left(server: Served, family: list[psutil.Process]) -> None:
    """No file through which ranks met, no shared memory, and its port can be taken."""
    assert not list(server.folder.glob("yaie-ranks-*"))
    ids = [server.process.pid, *(one.pid for one in family)]
    shared = Path("/dev/shm")
    names = [file.name for file in shared.iterdir()] if shared.is_dir() else []
    assert not [name for name in names if any(f"_{pid}_" in name for pid in ids)]
    with listen("127.0.0.1", int(server.url.rpartition(":")[2])):
        pass


def begin(url: str, answers: list[str]) -> threading.Thread:
    """A long stream, whose events go to `answers`."""

    def post() -> None:
        with (
            httpx.Client(timeout=60) as client,
            client.stream("POST", f"{url}/v1/completions", json=LONG) as answer,
        ):
            answers.extend(line for line in answer.iter_lines() if line)

    thread = threading.Thread(target=post)
    thread.start()
    return thread


def expect_end(server: Served, why: str, began: float) -> None:
    """It ends by itself, in time, with an exit code that says so."""
    assert server.process.wait(GONE_SECONDS) == 1
    assert time.monotonic() - began < GONE_SECONDS
    assert re.search(why, server.said()), server.said()


@pytest.mark.nightly
@pytest.mark.parametrize("driver", DRIVERS)
def test_a_rank_that_is_killed_ends_streams_with_an_error_and_the_server(
    tiny_folder: str, tmp_path: Path, driver: str
) -> None:
    with served(tiny_folder, tmp_path, driver) as server:
        assert "ranks        2 ranks, which split every layer, over lab 20's ring" in server.said()
        assert httpx.get(f"{server.url}/health").json()["ranks"] == 2
        answers: list[str] = []
        thread = begin(server.url, answers)
        within(30, lambda: len(answers) > 3)
        victims = [one for one in server.family() if is_rank(one)]
        began = time.monotonic()
        victims[-1].send_signal(signal.SIGKILL)
        expect_end(server, "SIGKILL", began)
        thread.join(GONE_SECONDS)
        assert "engine_dead" in "".join(answers[-2:])


def test_a_rank_that_hangs_ends_the_server(tiny_folder: str, tmp_path: Path) -> None:
    args = ("--no-engine-process", "--rank-timeout=2")
    with served(tiny_folder, tmp_path, *args) as server:
        answers: list[str] = []
        thread = begin(server.url, answers)
        within(30, lambda: len(answers) > 3)
        began = time.monotonic()
        server.rank().send_signal(signal.SIGSTOP)
        expect_end(server, "2000ms|more than 2 seconds|for 2 seconds", began)
        thread.join(GONE_SECONDS)
        assert "engine_dead" in "".join(answers[-2:])


@pytest.mark.nightly
def test_an_idle_servers_lost_rank_is_noticed_as_well(tiny_folder: str, tmp_path: Path) -> None:
    with served(tiny_folder, tmp_path, "--no-engine-process") as server:
        began = time.monotonic()
        server.rank().send_signal(signal.SIGKILL)
        expect_end(server, "rank 1 was ended by SIGKILL", began)


@pytest.mark.nightly
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_ranks_end_with_the_server(tiny_folder: str, tmp_path: Path, how: signal.Signals) -> None:
    with served(tiny_folder, tmp_path, "--no-engine-process") as server:
        rank = server.rank()
        if how is signal.SIGKILL:
            rank.send_signal(signal.SIGSTOP)  # even one that does nothing by itself
        server.process.send_signal(how)
        assert server.process.wait(GONE_SECONDS) == (0 if how is signal.SIGINT else -how)
        within(5, lambda: not is_there(rank))


def test_what_cannot_be_split_is_said_at_once(tiny_folder: str, yaie: Yaie) -> None:
    ran = yaie("serve", tiny_folder, "--port=0", "--tensor-parallel=3")
    assert ran.code == 2
    assert "tensor_parallel 3 does not divide the 4 attention heads" in ran.err
    assert "choose one of 1, 2, 4" in ran.err
