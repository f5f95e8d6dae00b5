"""Servers on the real engine that tests may mistreat: shared, watched, and healthy after each test."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.models.tiny import tiny_model
from tests.server.conftest import LiveServer, serving, within
from tests.server.faults.clients import OTHERS, Company, text_of
from tests.server.faults.watch import Watch, assert_healthy, is_empty
from yaie.server.listen import listen


@dataclass
class Patient(LiveServer):
    """A live server that is watched; `expected` are the texts of OTHERS, each of them asked alone."""

    watch: Watch
    expected: list[str]

    def company(self) -> Company:
        return Company(self, self.expected)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("llama", tmp_path_factory.mktemp("faults") / "tiny-llama")


def _listen(host: str, port: int) -> socket.socket:
    """As the server listens; the kernel keeps little of what a client does not read."""
    listener = listen(host, port)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    return listener


@contextmanager
def patient(folder: Path, **settings: Any) -> Iterator[Patient]:
    from yaie.engine.llm_engine import LLMEngine

    load: Callable[[], Any] = lambda: LLMEngine(  # noqa: E731
        model=str(folder), dtype="float32", device="cpu", threads=1, mine="none", **settings
    )
    with patch("tests.server.conftest.listen", _listen), serving(load) as server:
        expected = [text_of(server, body) for body in OTHERS]
        within(10, lambda: is_empty(server))
        server.llm.reset_prefix_cache()  # the first test finds what the others do
        watch = Watch(server)
        yield Patient(server.url, server.engine, server.http, watch, expected)
        watch.release()


SMALL = {"num_blocks": 24, "token_budget": 32, "max_num_seqs": 8, "watermark": 0.0}
"""Prompts come in chunks, and requests must give up their blocks when they grow."""


@pytest.fixture(scope="session")
def _small(folder: Path) -> Iterator[Patient]:
    with patient(folder, **SMALL) as server:
        yield server


@pytest.fixture(scope="session")
def _swapping(folder: Path) -> Iterator[Patient]:
    with patient(folder, **SMALL, preemption="swap", swap_space=0.01) as server:
        yield server


@pytest.fixture(scope="session")
def _roomy(folder: Path) -> Iterator[Patient]:
    with patient(folder, num_blocks=1024) as server:
        yield server


def _healthy_after(server: Patient) -> Iterator[Patient]:
    yield server
    server.watch.release()
    assert_healthy(server, server.watch)


@pytest.fixture
def small(_small: Patient) -> Iterator[Patient]:
    yield from _healthy_after(_small)


@pytest.fixture
def swapping(_swapping: Patient) -> Iterator[Patient]:
    yield from _healthy_after(_swapping)


@pytest.fixture
def roomy(_roomy: Patient) -> Iterator[Patient]:
    yield from _healthy_after(_roomy)
