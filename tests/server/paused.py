"""An engine that stands still before a step, so that what is told of it can be looked at."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from tests.server.conftest import LiveServer
from tests.server.test_metrics import ask


@contextmanager
def paused_before(number: int, server: LiveServer, **asked: Any) -> Iterator[None]:
    """While the engine waits before its step of this number, for a request with these fields. The
    request has ended when the block has."""
    step, gate, paused, steps = server.llm.step, threading.Event(), threading.Event(), count(1)

    def counted() -> Any:
        if next(steps) == number:
            paused.set()
            gate.wait(20)
        return step()

    server.llm.step = counted
    asking = threading.Thread(target=ask, args=(server,), kwargs=asked)
    asking.start()
    try:
        assert paused.wait(20)
        yield
    finally:
        gate.set()
        asking.join(20)
