"""What a streamed token costs the server's event loop, for "What HTTP costs" of the performance page.

    python -m yaie.bench.evidence.stream_cost

A server of the reference in this process, on an engine that gives each stream one token a step, at a
steady pace, and does nothing else. A round's figure is the processor time of the loop's thread in the
measured steps over their tokens. Two ways take turns: plain pieces through ASGI, with a turn of a task
each, and plain pieces written to their connections at once. Under both lies what the system takes: the
same packets over as many connections, from a thread that does nothing but send them. The client is
another process, which reads now and then.
"""

import asyncio
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from multiprocessing.connection import Connection
from statistics import median
from typing import Any
from unittest import mock

from yaie.bench.evidence import EVIDENCE
from yaie.bench.evidence.stream_client import read_rounds
from yaie.bench.report import save
from yaie.core.output import RequestOutput, Submitted
from yaie.core.request import FinishReason
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.background.messages import (
    Admit,
    Command,
    Ended,
    Ready,
    Replied,
    Stepped,
    Stop,
    Tell,
)
from yaie.engine.background.telemetry import Telemetry
from yaie.engine.info import EngineInfo
from yaie.engine.llm_engine import LLMEngine
from yaie.models.tokenizer import Tokenizer
from yaie.parts import load_parts
from yaie.server.app import create_app
from yaie.server.direct import PieceWriter
from yaie.server.listen import listen, url_of
from yaie.server.run import run_server
from yaie.server.settings import ServerSettings

OUT = EVIDENCE / "stream_cost.json"
ROUNDS = 5
TRIES = 8
CASES = ((64, 0.016, 60), (256, 0.05, 24))
"""Streams, seconds between two steps, steps that are measured."""
AROUND = 5
"""Steps before the measured ones, in which streams begin, and after them, in which they end."""
WORD = " token"
WAYS = ("asgi", "direct", "system")


class Metronome:
    """A `Driver` whose engine gives each stream a token a step. The steps begin once all have come.

    clock: of the thread whose time is measured. is_idle: whether what came before has been sent. done:
    set after the last step. seconds: what the measured steps cost that thread.
    """

    def __init__(self, info: EngineInfo, tokenizer: Tokenizer) -> None:
        self.telemetry = Telemetry()
        self.is_alive = False
        self.clock = 0
        self.is_idle: Callable[[], bool] = lambda: True
        self.done = threading.Event()
        self.seconds = 0.0
        self._info, self._tokenizer = info, tokenizer
        self._numbers = count()
        self._ids: list[str] = []
        self._streams, self._pause, self._steps = 0, 0.0, 0

    def set_up(self, streams: int, pause: float, steps: int) -> None:
        """Say what the next round is."""
        self._streams, self._pause, self._steps = streams, pause, steps
        self._ids = []
        self.done.clear()

    def start(self, tell: Tell) -> None:
        self._tell = tell
        tell(Ready(self._info))

    def send(self, command: Command) -> None:
        match command:
            case Admit(number, prompts, params):
                assert params is not None
                self._ids.append(str(next(self._numbers)))
                self._tell(Replied(number, [Submitted(self._ids[-1], prompts[0], params)]))
                if len(self._ids) == self._streams:
                    threading.Thread(target=self._run, daemon=True).start()
            case Stop():
                self._tell(Ended())

    def tokenizer(self, info: EngineInfo) -> Tokenizer:
        return self._tokenizer

    def close(self) -> None:
        pass

    def _run(self) -> None:
        last = 2 * AROUND + self._steps
        # Made before: the loop gives up the GIL with each packet, and would wait for this thread.
        steps = [
            Stepped([self._output(name, 1 + n, last) for name in self._ids]) for n in range(last)
        ]
        for number, step in enumerate(steps):
            time.sleep(self._pause)
            while not self.is_idle():
                time.sleep(0.001)
            if number == AROUND:
                self.seconds = -time.clock_gettime(self.clock)
            if number == AROUND + self._steps:
                self.seconds += time.clock_gettime(self.clock)
            self._tell(step)
        self.done.set()

    @staticmethod
    def _output(request_id: str, count: int, last: int) -> RequestOutput:
        reason = FinishReason.LENGTH if count == last else None
        return RequestOutput(request_id, WORD, [7], reason, num_output_tokens=count)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    client = context.Process(target=read_rounds, args=(theirs,), daemon=True)
    client.start()
    figures: dict[str, dict[str, list[float]]] = {}
    with serving() as (url, metronome):
        for streams, pause, steps in CASES:
            rounds: dict[str, list[float]] = {way: [] for way in WAYS}
            size = 0
            for number in range(-1, ROUNDS):  # the one before warms up
                for way in WAYS:
                    if way == "system":
                        cost = of_system(ours, streams, pause, steps, size)
                    else:
                        case, direct = (streams, pause, steps), way == "direct"
                        cost, size = of_server(ours, url, metronome, case, direct=direct)
                    print(number, streams, way, f"{cost:.1f}", flush=True)
                    if number >= 0:
                        rounds[way].append(cost)
            figures[str(streams)] = rounds
    ours.send(None)
    client.join()
    cases = ", ".join(f"{steps} steps of {streams} streams" for streams, _, steps in CASES)
    save(
        str(OUT),
        {
            "command": "python -m yaie.bench.evidence.stream_cost",
            "workload": f"{cases}; {ROUNDS} rounds in turn",
            "microseconds": figures,
            "median": {
                streams: {way: median(values) for way, values in rounds.items()}
                for streams, rounds in figures.items()
            },
        },
    )


@contextmanager
def serving() -> Iterator[tuple[str, Metronome]]:
    """A server on a thread of its own: (address, what drives it)."""
    engine = LLMEngine(mine="none")
    metronome = Metronome(engine.info, engine.tokenizer)
    settings = ServerSettings(max_concurrent_requests=1024)
    background = AsyncEngine(lambda: engine, make_driver=lambda load, timeout: metronome)
    streams = background._streams._streams
    metronome.is_idle = lambda: all(stream._is_awaited for stream in list(streams.values()))
    app = create_app(background, load_parts("none")["api_server"], settings)
    listener = listen("127.0.0.1", 0)
    loop, ready = asyncio.new_event_loop(), threading.Event()
    run = run_server(background, app, listener, settings, on_ready=ready.set)
    thread = threading.Thread(target=loop.run_until_complete, args=(run,))
    thread.start()
    ready.wait()
    assert thread.ident is not None
    metronome.clock = time.pthread_getcpuclockid(thread.ident)
    try:
        yield url_of(listener), metronome
    finally:
        asyncio.run_coroutine_threadsafe(background.shutdown(), loop).result()
        thread.join()


def of_server(
    client: Connection,
    url: str,
    metronome: Metronome,
    case: tuple[int, float, int],
    *,
    direct: bool,
) -> tuple[float, int]:
    """Microseconds of the loop for a token, and the bytes of its packet. Where tokens were merged, since
    the loop came late to its turn, the round is done again."""
    streams, pause, steps = case
    tokens = 2 * AROUND + steps
    with nullcontext() if direct else mock.patch.object(PieceWriter, "of", return_value=None):
        for _ in range(TRIES):
            metronome.set_up(streams, pause, steps)
            client.send(("ask", url, streams, tokens))
            metronome.done.wait()
            size: Any = client.recv()
            if not isinstance(size, Exception):
                return 1e6 * metronome.seconds / (steps * streams), size
    raise size


def of_system(client: Connection, streams: int, pause: float, steps: int, size: int) -> float:
    """Microseconds of a thread that sends as many packets, and nothing else."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=streams)
    client.send(("listen", listener.getsockname()[1], streams, 0))
    connections = [listener.accept()[0] for _ in range(streams)]
    for connection in connections:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    packet = bytes(size)
    begin = 0.0
    for number in range(AROUND + steps):
        if number == AROUND:
            begin = time.thread_time()
        for connection in connections:
            connection.send(packet)
        time.sleep(pause)
    seconds = time.thread_time() - begin
    for connection in connections:
        connection.close()
    listener.close()
    client.recv()
    return 1e6 * seconds / (steps * streams)


if __name__ == "__main__":
    main()
