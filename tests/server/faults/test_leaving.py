"""A client may leave at any point of its request's life: its blocks come back, nobody else notices."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.server.conftest import within
from tests.server.faults.clients import ask, port_of
from tests.server.faults.conftest import Patient
from tests.server.faults.watch import SOON
from yaie.core.request import Request, RequestStatus

MARK = 203
"""How many tokens the client asks for who leaves, and nobody else."""
DOOMED = {
    "prompt": list(range(5, 85)),
    "max_tokens": MARK,
    "ignore_eos": True,
    "temperature": 0,
}


def has(status: RequestStatus) -> Callable[[Request], bool]:
    return lambda request: request.status is status


def is_queued(request: Request) -> bool:
    return request.status is RequestStatus.WAITING


def is_in_prefill(request: Request) -> bool:
    return 0 < request.num_computed_tokens < request.num_prompt_tokens


def is_decoding(request: Request) -> bool:
    return request.status is RequestStatus.RUNNING and request.num_output_tokens >= 2


def leave_at(server: Patient, reached: Callable[[Request], bool], stream: bool) -> None:
    """A client leaves when its request has got there, with company before and after it in the batch."""
    watch, seen = server.watch, []

    def is_there() -> bool:
        doomed = [request for request in watch.live() if request.max_tokens == MARK]
        seen[:] = doomed or seen
        return bool(seen) and reached(seen[0])

    watch.hold()
    with server.company() as company:
        within(10, lambda: server.engine.num_streams == company.size)
        connection = ask(server.url, {**DOOMED, "stream": stream})
        within(10, lambda: server.engine.num_streams == company.size + 1)
        watch.run_until(is_there)
        connection.close()
        within(SOON, lambda: not _is_served(server, seen[0]))
        watch.release()
        within(SOON, lambda: _holds_nothing(server, seen[0]))
    assert seen[0].is_finished


def _is_served(server: Patient, request: Request) -> bool:
    return request.request_id in server.engine._streams._owners


def _holds_nothing(server: Patient, request: Request) -> bool:
    blocks = server.llm._machine.cache._blocks
    held = request.request_id in blocks._tables or request.request_id in blocks._host_tables
    return not held and request not in server.watch.live()


POINTS = {
    "queued": is_queued,
    "prefill": is_in_prefill,
    "decoding": is_decoding,
    "preempted": has(RequestStatus.PREEMPTED),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("point", POINTS)
def test_leaving_gives_the_blocks_back_and_disturbs_nobody(
    small: Patient, point: str, stream: bool
) -> None:
    leave_at(small, POINTS[point], stream)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_leaving_while_swapped_out_frees_the_host_pool_too(swapping: Patient, stream: bool) -> None:
    leave_at(swapping, has(RequestStatus.SWAPPED), stream)
    blocks = swapping.llm._machine.cache._blocks
    assert blocks.num_free_host == blocks.num_host_blocks


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_leaving_when_the_last_token_is_made_but_not_delivered(
    small: Patient, stream: bool
) -> None:
    leave_at(small, lambda request: request.is_finished, stream)


CLIENT = """
import socket, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
body = b'{"prompt": "hello", "max_tokens": 203, "ignore_eos": true, "stream": %s}'
body = body % sys.argv[2].encode()
head = "POST /v1/completions HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json\\r\\n"
connection.sendall(head.encode() + b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
time.sleep(1000)
"""


@pytest.mark.parametrize("stream", ["false", "true"])
def test_client_process_that_is_killed_counts_as_gone(small: Patient, stream: str) -> None:
    watch = small.watch

    def is_decoding_for_it() -> bool:
        return any(request.max_tokens == MARK and is_decoding(request) for request in watch.live())

    watch.hold()
    with small.company() as company:
        arguments = [sys.executable, "-c", CLIENT, str(port_of(small.url)), stream]
        client = subprocess.Popen(arguments)
        within(20, lambda: small.engine.num_streams == company.size + 1)
        watch.run_until(is_decoding_for_it)
        client.kill()
        client.wait(10)
        watch.release()
        within(SOON, lambda: all(request.max_tokens != MARK for request in watch.live()))
