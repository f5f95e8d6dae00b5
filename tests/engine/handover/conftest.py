"""Two engines in one process: one computes prompts on a thread, the test steps the other one."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.mixed import add_all, run
from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.config import EngineConfig
from yaie.core.request import Request
from yaie.engine.background.engine_thread import EngineThread
from yaie.engine.background.messages import Command, Event, Stop
from yaie.engine.handover.address import Address, UnixAddress
from yaie.engine.handover.engine import DisaggregatedEngine
from yaie.engine.handover.role import Role

SECONDS = 60.0
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture
def path() -> Iterator[Path]:
    """Of a socket: pytest's own folders may have names that are too long for one."""
    with tempfile.TemporaryDirectory(prefix="yaie-") as short:
        yield Path(short) / "blocks"


@pytest.fixture
def address(path: Path) -> Address:
    """Where the servers meet."""
    return UnixAddress(path)


def make(folder: str, role: Role | None = None, **settings: Any) -> LLMEngine:
    defaults: dict[str, Any] = {"num_blocks": 300, "mine": "none", "device": "cpu", "threads": 1}
    config = EngineConfig(model=folder, **(defaults | settings))
    return LLMEngine(config) if role is None else DisaggregatedEngine(config, role)


@pytest.fixture(scope="module")
def alone(folder: str) -> list[Request]:
    """What one engine gives."""
    engine = make(folder)
    requests = add_all(engine)
    run(engine)
    return requests


def ask(engine: LLMEngine, prompt: list[int]) -> Request:
    (request,) = engine.add_request(prompt, GREEDY)
    run(engine)
    return request


class PrefillServer:
    """An engine of role prefill, on its thread."""

    def __init__(
        self, folder: str, address: Address, secret: bytes | None, **settings: Any
    ) -> None:
        role = Role("prefill", address, 1, secret)
        self._thread = EngineThread(lambda: make(folder, role, **settings))
        self._told = threading.Event()
        self.events: list[Event] = []
        self._thread.start(self._tell)
        assert self._told.wait(SECONDS)

    def _tell(self, event: Event) -> None:
        self.events.append(event)
        self._told.set()

    @property
    def engine(self) -> LLMEngine:
        assert self._thread.engine is not None
        return self._thread.engine

    def send(self, command: Command) -> None:
        self._thread.send(command)

    def stop(self) -> None:
        self._thread.send(Stop())
        self._thread.thread.join(SECONDS)


@pytest.fixture
def prefill(folder: str, address: Address) -> Iterator[Callable[..., PrefillServer]]:
    """Start a prefill server with these settings."""
    made: list[PrefillServer] = []

    def start(secret: bytes | None = None, **settings: Any) -> PrefillServer:
        made.append(PrefillServer(folder, address, secret, **settings))
        return made[-1]

    yield start
    for server in made:
        server.stop()


@pytest.fixture
def decode(folder: str, address: Address) -> Iterator[Callable[..., LLMEngine]]:
    """An engine of role decode, whose prefill server has been started."""
    made: list[LLMEngine] = []

    def start(least_tokens: int = 1, secret: bytes | None = None, **settings: Any) -> LLMEngine:
        made.append(make(folder, Role("decode", address, least_tokens, secret), **settings))
        return made[-1]

    yield start
    for engine in made:
        engine.close()


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < end
        time.sleep(0.002)
