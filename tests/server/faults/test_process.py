"""Faults that end the process, on `yaie serve` as one: who waits is told, and the exit code says it."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.server.conftest import within
from tests.server.faults.clients import PATH, connect, head
from yaie.server.listen import listen

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
LONG = {"prompt": "blocks", "max_tokens": 300, "ignore_eos": True, "temperature": 0}

# Runs `yaie serve` with a fault in the worker, from the moment a file is there.
BREAK = """
import sys, time, pathlib
from yaie.worker.worker import Worker
sign, fault, execute = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1), Worker.execute
def broken(self, step):
    time.sleep(0.02)  # so long that all clients run at once
    if sign.exists():
        if fault == "raise":
            raise RuntimeError("boom at /some/secret/path")
        if fault == "hang":
            time.sleep(1000)
    return execute(self, step)
Worker.execute = broken
from yaie.cli.main import main
main()
"""


@dataclass
class Server:
    """A `yaie serve` process that can be broken; `said` are its lines."""

    process: subprocess.Popen[str]
    url: str
    said: list[str]
    sign: Path

    def break_it(self) -> None:
        self.sign.touch()

    def health(self) -> tuple[int, str]:
        response = httpx.get(f"{self.url}/health")
        return response.status_code, response.json()["status"]


@contextmanager
def server(folder: Path, sign: Path, fault: str, *options: str) -> Iterator[Server]:
    command = [sys.executable, "-c", BREAK, str(sign), fault, "serve", str(folder), "--port=0"]
    process = subprocess.Popen(
        [*command, "--threads=1", "--num-blocks=512", "--mine=none", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "200"},
    )
    said: list[str] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda pipe: said.extend(pipe), args=(process.stdout,))
    reader.start()
    try:
        found: list[str] = []
        pattern = r"Serving at (\S+)/v1"
        within(60, lambda: bool(found.extend(re.findall(pattern, "".join(said))) or found))
        yield Server(process, found[0], said, sign)
    finally:
        process.kill()
        process.wait(10)
        reader.join(10)


@contextmanager
def clients(url: str, streams: list[bool]) -> Iterator[list[Future[httpx.Response]]]:
    """Clients in the middle of a long answer, each streamed or not."""
    with httpx.Client(base_url=url, timeout=60) as http, ThreadPoolExecutor(len(streams)) as pool:

        def ask(stream: bool) -> httpx.Response:
            return http.post(PATH, json={**LONG, "stream": stream})

        answers = [pool.submit(ask, stream) for stream in streams]
        within(20, lambda: _num_running(http) == len(streams))
        yield answers


def _num_running(http: httpx.Client) -> int:
    metrics = http.get("/metrics").text
    found = re.findall(r"^vllm:num_requests_running\S* (\S+)", metrics, re.MULTILINE)
    return int(sum(float(value) for value in found))


HANG = pytest.param("hang", ["--step-timeout=1"], marks=pytest.mark.nightly)


@pytest.mark.parametrize(("fault", "options"), [("raise", []), HANG])
def test_step_that_raises_or_hangs_ends_the_process_and_tells_all_who_wait(
    folder: Path, tmp_path: Path, fault: str, options: list[str]
) -> None:
    with server(folder, tmp_path / "sign", fault, *options) as broken:
        with clients(broken.url, [False, True] * 3) as answers:
            assert broken.health() == (200, "ready")
            broken.break_it()
            responses = [answer.result(30) for answer in answers]
            with suppress(httpx.TransportError):  # it listens no more, which says as much
                assert broken.health() == (503, "dead")
        assert broken.process.wait(20) == 1
    for response in responses:
        _is_told(response)
    said = "".join(broken.said)
    assert "CRITICAL" in said
    assert "broken" in said  # the stack of the step


def _is_told(response: httpx.Response) -> None:
    """An answer that failed says so, by its status or in its last event, and not why."""
    if response.status_code == 200:
        *_, error, done = [line for line in response.text.split("\n\n") if line]
        assert done == "data: [DONE]"
        assert "engine_dead" in error
    else:
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "engine_dead"
    assert "secret" not in response.text


@pytest.mark.nightly
def test_sigterm_under_load_finishes_what_runs_and_leaves_nothing_behind(
    folder: Path, tmp_path: Path
) -> None:
    with server(folder, tmp_path / "sign", "none", "--drain-seconds=60") as drained:
        family = psutil.Process(drained.process.pid).children(recursive=True)
        stalled = connect(drained.url)  # must not keep the server from leaving
        stalled.sendall(head(1000) + b'{"prompt": ')
        with clients(drained.url, [False, True] * 4) as answers:
            drained.process.send_signal(signal.SIGTERM)
            within(20, lambda: drained.health() == (503, "draining"))
            refused = httpx.post(f"{drained.url}{PATH}", json=LONG)
            responses = [answer.result(60) for answer in answers]
        assert drained.process.wait(30) == 0
        stalled.close()
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    assert {_reason(response) for response in responses} == {"length"}
    assert not [process for process in family if process.is_running()]
    assert "Traceback" not in "".join(drained.said)


def _reason(response: httpx.Response) -> Any:
    assert response.status_code == 200
    found = re.findall(r'"finish_reason": ?"(\w+)"', response.text)
    return found[-1]


@pytest.mark.nightly
def test_sigterm_whose_limit_has_come_tells_those_it_cuts_off(folder: Path, tmp_path: Path) -> None:
    with server(folder, tmp_path / "sign", "none", "--drain-seconds=0") as drained:
        with clients(drained.url, [True] * 3) as answers:
            drained.process.send_signal(signal.SIGTERM)
            responses = [answer.result(60) for answer in answers]
        assert drained.process.wait(30) == 0
    for response in responses:
        assert "shutting down" in response.text
        if response.status_code == 200:
            assert response.text.endswith("data: [DONE]\n\n")


def test_taken_port_is_said_at_once_and_its_owner_is_left_alone() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        arguments = ["serve", "/no/such/model", "--port", str(port)]
        ran = subprocess.run(
            [sys.executable, "-m", "yaie", *arguments],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=60,
        )
        with socket.create_connection(("127.0.0.1", port)):
            connection, _ = taken.accept()
            connection.close()
    assert ran.returncode == 2
    assert f"port {port} on 127.0.0.1 is in use" in ran.stderr
    assert ran.stdout == ""
