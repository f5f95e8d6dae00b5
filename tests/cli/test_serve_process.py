"""`yaie serve --engine-process`: two processes that start, serve, and end together."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import psutil
import pytest

from tests.cli.test_serve import LONG, _wait_for_drain, address_in, server
from tests.server.conftest import within
from tests.server.test_failures import events_of
from yaie.server.engine import has_process
from yaie.server.settings import ServerSettings

pytestmark = pytest.mark.slow

OPTIONS = ("--engine-process", "--threads=1", "--num-blocks=512", "--mine=none")
GREEDY = {"prompt": "hello", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


def engine_of(pid: int) -> psutil.Process:
    """The process that has loaded the model: the largest one."""
    children = psutil.Process(pid).children(recursive=True)
    return max(children, key=lambda child: child.memory_info().rss)


def _are_gone(processes: list[psutil.Process]) -> bool:
    """Within five seconds. What has lost its parent may be left as a zombie."""
    _, alive = psutil.wait_procs(processes, timeout=5)
    return all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


@pytest.mark.nightly
def test_answers_are_those_of_an_engine_in_the_same_process(tiny_folder: str) -> None:
    texts = []
    for options in (OPTIONS, ("--no-engine-process", *OPTIONS[1:])):
        with server(tiny_folder, *options) as (process, lines):
            url = address_in(process, lines)
            whole = httpx.post(f"{url}/v1/completions", json=GREEDY, timeout=30).json()
            streamed = httpx.post(
                f"{url}/v1/completions", json={**GREEDY, "stream": True}, timeout=30
            )
            text = "".join(event["choices"][0]["text"] for event in events_of(streamed))
            assert text == whole["choices"][0]["text"]
            refused = httpx.post(f"{url}/v1/completions", json={"prompt": [10**6]}, timeout=30)
            texts.append((text, whole["usage"]["completion_tokens"], refused.json()["error"]))
            process.send_signal(signal.SIGINT)
        assert process.returncode == 0, "".join(lines)
        assert "Traceback" not in "".join(lines)
    assert texts[0] == texts[1]


@pytest.mark.nightly
def test_ctrl_c_in_the_terminal_drains_and_leaves_nothing_behind(tiny_folder: str) -> None:
    """A terminal signals every process of the group."""
    with server(tiny_folder, *OPTIONS, "--drain-seconds=50") as (process, lines):
        url = address_in(process, lines)
        family = psutil.Process(process.pid).children(recursive=True)
        with httpx.stream("POST", f"{url}/v1/completions", json=LONG, timeout=30) as answer:
            events = answer.iter_lines()
            next(events)
            for member in (*family, psutil.Process(process.pid)):
                member.send_signal(signal.SIGINT)
            _wait_for_drain(url)
            rest = [event for event in events if event]
        assert '"finish_reason":"length"' in rest[-2]
    assert process.returncode == 0
    assert "Traceback" not in "".join(lines)
    assert _are_gone(family)


def test_killed_engine_is_an_error_for_all_who_wait_and_ends_the_server(tiny_folder: str) -> None:
    answers: list[httpx.Response] = []
    with server(tiny_folder, *OPTIONS) as (process, lines), ThreadPoolExecutor(4) as pool:
        url = address_in(process, lines)
        body = {**LONG, "max_tokens": 400}

        def ask(stream: bool) -> None:
            answers.append(
                httpx.post(f"{url}/v1/completions", json={**body, "stream": stream}, timeout=30)
            )

        engine = engine_of(process.pid)
        engine.suspend()  # in the middle of them all
        asking = [pool.submit(ask, stream) for stream in (False, True) * 2]
        time.sleep(0.5)
        begin = time.monotonic()
        engine.kill()
        with suppress(httpx.TransportError):  # it listens no more, which says as much
            within(10, lambda: httpx.get(f"{url}/health").status_code == 503)
        for future in asking:
            future.result(30)
        assert time.monotonic() - begin < 20
    assert process.returncode == 1
    for answer in answers:
        said: Any = answer.json() if answer.status_code == 503 else events_of(answer)[-1]
        assert said["error"]["code"] == "engine_dead"
    assert "was ended by SIGKILL" in "".join(lines)


@pytest.mark.nightly
def test_killed_server_takes_its_engine_along(tiny_folder: str) -> None:
    with server(tiny_folder, *OPTIONS) as (process, lines):
        address_in(process, lines)
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
        process.kill()
    assert _are_gone(family)


@pytest.mark.parametrize(("cpus", "expected"), [(1, False), (3, False), (4, True), (64, True)])
def test_the_engine_gets_a_process_where_there_are_cpus_for_two(
    monkeypatch: pytest.MonkeyPatch, cpus: int, expected: bool
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)), raising=False)
    assert has_process(ServerSettings()) is expected
    assert has_process(ServerSettings(engine_process=True))
    assert not has_process(ServerSettings(engine_process=False))


def test_the_flag_has_two_sides_and_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("YAIE_ENGINE_PROCESS")
    assert ServerSettings.load({}).engine_process is None
    monkeypatch.setenv("YAIE_ENGINE_PROCESS", "1")
    assert ServerSettings.load({}).engine_process is True
    assert ServerSettings.load({"engine_process": False}).engine_process is False
