"""A client that leaves is noticed at once, streaming or not, and everything it held comes back."""

import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.server.conftest import LiveServer, posted, within


@pytest.fixture
def slow(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    """The real engine, so slow that a long answer takes several seconds."""
    step = live.llm.step

    def slow_step() -> object:
        time.sleep(0.005)
        return step()

    monkeypatch.setattr(live.llm, "step", slow_step)
    yield live
    within(20, lambda: live.llm.stats()["used_blocks"] == 0)
    live.llm.check()


def ask(live: LiveServer, **options: object) -> socket.socket:
    """Send a request for a long answer and leave the connection open."""
    body = {"prompt": "hello", "max_tokens": 900, "ignore_eos": True, **options}
    return posted(live, "/v1/completions", body)


def is_running(live: LiveServer) -> bool:
    return live.llm.stats()["used_blocks"] > 2


def is_empty(live: LiveServer) -> bool:
    return live.llm.stats()["used_blocks"] == 0 and not live.llm.has_work


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_leaving_while_it_runs_frees_its_blocks_within_a_second(
    slow: LiveServer, stream: bool, n: int
) -> None:
    connection = ask(slow, stream=stream, n=n)
    within(20, lambda: is_running(slow))
    connection.close()
    within(1, lambda: is_empty(slow))
    assert slow.engine.num_streams == 0


def test_leaving_before_the_stream_began_is_noticed_too(slow: LiveServer) -> None:
    connection = ask(slow, stream=True)
    within(20, lambda: slow.engine.num_streams == 1)
    connection.close()
    within(1, lambda: is_empty(slow) and slow.engine.num_streams == 0)


def test_others_go_on_undisturbed_when_one_leaves(slow: LiveServer) -> None:
    body = {"prompt": "hello", "max_tokens": 40, "ignore_eos": True, "temperature": 0}
    alone = slow.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    connection = ask(slow)
    within(20, lambda: is_running(slow))
    other = ask(slow, max_tokens=40, temperature=0)
    within(20, lambda: slow.engine.num_streams == 2)
    connection.close()
    answer = b""
    while b"\r\n\r\n" not in answer or not answer.rstrip().endswith(b"}"):
        answer += other.recv(65536)
    other.close()
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["choices"][0]["text"] == alone
