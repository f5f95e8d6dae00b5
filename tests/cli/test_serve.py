"""`yaie serve` as a process: what it says, what it exits with."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Yaie
from tests.server.fake_engine import FakeEngine
from yaie.server.listen import listen

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LONG = {"prompt": "hello", "max_tokens": 200, "ignore_eos": True, "stream": True}
SLOW = {**LONG, "n": 100}
"""Seconds, on the fastest machine: of one answer none is left when the server is asked how it ends."""


def test_taken_port_is_said_before_the_model_loads(yaie: Yaie) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        ran = yaie("serve", "/no/such/model", "--port", port)
    assert ran.code == 2
    assert f"port {port} on 127.0.0.1 is in use" in ran.err
    assert "--port" in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.1"])
def test_address_that_is_not_here_is_explained(yaie: Yaie, host: str) -> None:
    ran = yaie("serve", "--host", host, "--port", "0")
    assert ran.code == 2
    assert "127.0.0.1" in ran.err


@contextmanager
def server(*args: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A `yaie serve` process and the lines it has printed, up to the address and beyond."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from yaie.cli.main import main; main()",
            "serve",
            "--port=0",
            *args,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "200"},
    )
    lines: list[str] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda pipe: lines.extend(pipe), args=(process.stdout,))
    reader.start()
    try:
        yield process, lines
        process.wait(90)
    finally:
        process.kill()
        reader.join(10)


def address_in(process: subprocess.Popen[str], lines: list[str]) -> str:
    deadline = time.monotonic() + 120
    while not (found := re.search(r"Serving at (\S+)/v1", "".join(lines))):
        assert process.poll() is None, "".join(lines)
        assert time.monotonic() < deadline, "".join(lines)
        time.sleep(0.05)
    return found[1]


def test_start_names_what_runs_and_sigterm_drains_and_exits_0(tiny_folder: str) -> None:
    with server(tiny_folder, "--block-size=8", "--drain-seconds=50") as (process, lines):
        url = address_in(process, lines)
        with httpx.stream("POST", f"{url}/v1/completions", json=SLOW, timeout=60) as answer:
            events = answer.iter_lines()
            next(events)
            process.send_signal(signal.SIGTERM)
            _wait_for_drain(url)
            refused = httpx.post(f"{url}/v1/completions", json={"prompt": "x"})
            assert refused.status_code == 503
            rest = [event for event in events if event]
        assert '"finish_reason":"length"' in rest[-2]
        assert rest[-1] == "data: [DONE]"
    assert process.returncode == 0
    said = "".join(lines)
    for expected in (
        "YAIE 0",
        "tiny-llama",
        "block_size=8",
        "KV pool",
        "sampler",
        "reference",
        "curl",
    ):
        assert expected in said
    assert "Traceback" not in said
    assert "hello" not in said  # prompts are not logged


def _wait_for_drain(url: str) -> None:
    health: Any = None
    deadline = time.monotonic() + 5
    while health is None or health.json()["status"] != "draining":
        assert time.monotonic() < deadline
        health = httpx.get(f"{url}/health")
    assert health.status_code == 503


@pytest.mark.nightly
def test_second_ctrl_c_ends_the_process_at_once(tiny_folder: str) -> None:
    with server(tiny_folder, "--drain-seconds=60") as (process, lines):
        url = address_in(process, lines)
        with httpx.stream("POST", f"{url}/v1/completions", json=SLOW, timeout=30) as answer:
            events = answer.iter_lines()
            next(events)
            process.send_signal(signal.SIGINT)
            _wait_for_drain(url)
            process.send_signal(signal.SIGINT)
            process.wait(5)
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in "".join(lines)


@pytest.mark.nightly
def test_model_that_does_not_load_is_exit_code_2(tmp_path: Path) -> None:
    with server(str(tmp_path)) as (process, lines):
        pass
    assert process.returncode == 2
    said = "".join(lines)
    assert "Error: " in said
    assert "Traceback" not in said


def test_engine_that_dies_ends_the_process_with_1(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, so that the engine can be broken: a client comes as soon as it serves."""
    fake.fault = RuntimeError("boom")
    answers: list[int] = []

    def announce(engine: FakeEngine, settings: object, url: str) -> None:
        def ask() -> None:
            answers.append(httpx.post(f"{url}/v1/completions", json=LONG, timeout=10).status_code)

        threading.Thread(target=ask).start()

    monkeypatch.setattr("yaie.cli.serve.announce", announce)
    assert yaie("serve", "--port", "0").code == 1
    assert answers == [503]
