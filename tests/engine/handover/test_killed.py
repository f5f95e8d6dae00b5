"""One side is a process that gets SIGKILL while keys and values are on the way, over TCP.

A relay stands between the two, as a network does. It reads the messages, stops in the midst of the first
blocks, and has the process killed there.
"""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.handover.conftest import GREEDY, PrefillServer, ask, make, until
from tests.engine.handover.side import MODEL, PROMPT
from tests.engine.mixed import run
from tests.judges.programs import free_port
from yaie import LLMEngine
from yaie.engine.handover.address import Address, TcpAddress
from yaie.engine.handover.role import Role

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
ROOT = Path(__file__).parents[3]
HEAD = struct.Struct("!IQ")  # as in yaie.engine.handover.wire
BUFFER = 1 << 16
"""Bytes that the relay's sockets hold, so that a sender of some megabytes has to wait."""


@pytest.fixture(scope="module")
def folder() -> str:
    return MODEL


@pytest.fixture
def address() -> Address:
    return TcpAddress("127.0.0.1", free_port())


class Relay:
    """Between a decode server, which connects to `address`, and the prefill server. Calls `midway` on a
    thread when a quarter of the first blocks is through, and passes no more of them on.

    midway: ends the process of one side. drains: whether the rest is read then, up to the end of the
    prefill side; else that side cannot send more, as to a host that takes nothing.
    """

    def __init__(self, prefill: TcpAddress, midway: Callable[[], None], drains: bool) -> None:
        self._prefill, self._midway, self._drains = prefill, midway, drains
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = TcpAddress("127.0.0.1", self._listener.getsockname()[1])
        self.was_midway, self._is_alone = threading.Event(), threading.Event()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._is_alone.set()
        for one in (self._listener, *self._sockets):
            _end(one)
            one.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            here, _ = self._listener.accept()
            self._listener.close()  # the decode side finds nobody again
            there = socket.socket()
            self._sockets += [here, there]
            there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            there.connect((self._prefill.host, self._prefill.port))
            threading.Thread(target=self._asked, args=(here, there), daemon=True).start()
            self._answered(there, here)

    def _asked(self, here: socket.socket, there: socket.socket) -> None:
        """The decode side's messages, until it is gone: then the prefill side hears of it."""
        with contextlib.suppress(OSError):
            while data := here.recv(BUFFER):
                there.sendall(data)
        self._is_alone.set()
        _end(there)

    def _answered(self, there: socket.socket, here: socket.socket) -> None:
        """The prefill side's messages, until it is gone."""
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = _exactly(there, HEAD.size)
                length, num_bytes = HEAD.unpack(head)
                here.sendall(head + _exactly(there, length))
                if num_bytes:
                    here.sendall(_exactly(there, num_bytes // 4))
                    self.was_midway.set()
                    self._midway()
                    if not self._drains:
                        self._is_alone.wait()
                    _exactly(there, num_bytes)  # more than there is: until its end
        _end(here)


def _end(connection: socket.socket) -> None:
    """Both ways. Threads that wait for it wake up."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


@contextlib.contextmanager
def side(role: str, address: Address) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.handover.side", role, str(address)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def is_killed(process: "subprocess.Popen[str]") -> bool:
    return process.poll() == -signal.SIGKILL


def test_a_prefill_process_killed_in_the_midst_of_blocks_costs_no_request(
    address: TcpAddress,
) -> None:
    prompts = [PROMPT, PROMPT[1:400]]
    with side("prefill", address) as process, contextlib.ExitStack() as ends:
        relay = Relay(address, process.kill, drains=True)
        ends.callback(relay.close)
        one_engine = make(MODEL)
        expected = [ask(one_engine, prompt).token_ids for prompt in prompts]
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        engine = make(MODEL, Role("decode", relay.address, 1))
        ends.callback(engine.close)
        requests = [engine.add_request(prompt, GREEDY)[0] for prompt in prompts]
        run(engine)
        assert relay.was_midway.is_set()
        until(lambda: is_killed(process))
        assert [request.token_ids for request in requests] == expected
        stats = engine.stats()
        assert (stats["handovers"], stats["handover_failures"]) == (0, len(prompts))
        until(lambda: engine.stats()["handover_linked"] == 0)
        engine.check()


def test_a_decode_process_killed_in_the_midst_of_blocks_leaves_the_prefill_side_whole(
    prefill: Callable[..., PrefillServer], decode: Callable[..., LLMEngine], address: TcpAddress
) -> None:
    server = prefill()
    killed: list[subprocess.Popen[str]] = []
    relay = Relay(address, lambda: killed[0].kill(), drains=False)
    with side("decode", relay.address) as process, contextlib.closing(relay):
        killed.append(process)
        assert relay.was_midway.wait(60)
        until(lambda: is_killed(process))
        connections = server.engine.side._connections  # type: ignore[attr-defined]
        until(lambda: not connections)
        until(lambda: server.engine.stats()["used_blocks"] == 0)
        server.engine.check()
    other = decode()
    ask(other, PROMPT[5:400])
    assert other.stats()["handovers"] == 1
