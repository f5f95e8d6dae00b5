"""Servers on a free port, in a thread: one on a tiny random model, and fresh ones on a fake engine."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.models.tiny import tiny_model
from tests.server.fake_engine import FakeEngine
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.background.engine_thread import EngineThread
from yaie.parts import load_parts
from yaie.server.app import create_app
from yaie.server.listen import listen, url_of
from yaie.server.run import run_server
from yaie.server.settings import ServerSettings

PATIENCE = 120.0
"""Seconds that a client waits: beside busy programs an answer as long as the context takes over 30."""


@dataclass
class LiveServer:
    """A server that is up. `http` speaks to it; `engine` is what it runs on."""

    url: str
    engine: AsyncEngine
    http: httpx.Client

    @property
    def llm(self) -> Any:
        """The engine itself, which runs on a thread here."""
        driver: Any = self.engine._driver
        return driver.engine

    def openai(self) -> OpenAI:
        """A client that checks every answer against OpenAI's schema."""
        return OpenAI(
            base_url=f"{self.url}/v1",
            api_key="none",
            max_retries=0,
            timeout=PATIENCE,
            _strict_response_validation=True,
        )


@contextmanager
def serving(
    load: Callable[[], Any],
    *,
    wait: bool = True,
    api: Any = None,
    make_driver: Any = EngineThread,
    **app_options: Any,
) -> Iterator[LiveServer]:
    """Serve until the block ends. `wait`: for the engine to be ready. `api`: not the reference part.
    `make_driver`: what runs the engine. `app_options`: fields of ServerSettings."""
    settings = ServerSettings(**{"drain_seconds": 0.0, **app_options})
    engine = AsyncEngine(load, make_driver=make_driver, **settings.engine_limits)
    listener = listen("127.0.0.1", 0)
    url = url_of(listener)
    app = create_app(engine, api or load_parts("none")["api_server"], settings)
    loop, ready = asyncio.new_event_loop(), threading.Event()
    run = run_server(engine, app, listener, settings, on_ready=ready.set)
    thread = threading.Thread(target=loop.run_until_complete, args=(run,), daemon=True)
    thread.start()
    assert not wait or ready.wait(60)
    try:
        with httpx.Client(base_url=url, timeout=PATIENCE) as http:
            yield LiveServer(url, engine, http)
    finally:
        if thread.is_alive():
            asyncio.run_coroutine_threadsafe(engine.shutdown(), loop).result(10)
        thread.join(10)
        loop.close()


def patiently(server: LiveServer, step: Any) -> Any:
    """A `step` that waits until the readers of all streams wait: then no outputs are merged."""

    async def all_wait() -> None:
        streams = server.engine._streams._streams
        # What came during the step is admitted behind it: its reader waits for just that.
        while not all(stream._is_awaited for stream in streams.values() if stream.admitted.done()):
            await asyncio.sleep(0)

    def patient_step() -> Any:
        # On the loop, behind the outputs of the step before.
        asyncio.run_coroutine_threadsafe(all_wait(), server.engine._loop).result(20)
        return step()

    return patient_step


def posted(server: LiveServer, path: str, body: object) -> socket.socket:
    """Send a request and leave its connection open: closing it is a client that leaves."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
    connection = socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])))
    connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + content)
    return connection


def within(seconds: float, condition: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The real engine on a tiny random Llama."""
    from yaie.engine.llm_engine import LLMEngine

    folder: Path = tiny_model("llama", tmp_path_factory.mktemp("server") / "tiny-llama")
    with serving(lambda: LLMEngine(model=str(folder), num_blocks=1024, threads=1)) as server:
        yield server


@pytest.fixture(scope="session")
def strict_live(live: LiveServer) -> Iterator[LiveServer]:
    """The same with `--strict`."""
    from yaie.engine.llm_engine import LLMEngine

    folder = live.llm.config.model
    with serving(
        lambda: LLMEngine(model=folder, num_blocks=1024, threads=1), strict=True
    ) as server:
        yield server


@pytest.fixture
def client(live: LiveServer) -> OpenAI:
    return live.openai()


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def fake_live(fake: FakeEngine) -> Iterator[LiveServer]:
    """A fresh server on an engine that does what it is told."""
    with serving(lambda: fake) as server:
        yield server
        fake.gate.set()
