"""AsyncEngines on a fake engine in a process of its own, which is told by calls what it is to do."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import psutil

from tests.server.fake_engine import FakeEngine
from yaie.core.errors import InvalidRequestError, ModelError
from yaie.core.params import SamplingParams
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.background.engine_process import EngineProcess


class Scripted(FakeEngine):
    """What a `call` may make of it."""

    def close_gate(self) -> None:
        self.gate.clear()

    def break_down(self) -> None:
        self.fault = RuntimeError("boom")

    def refuse(self) -> None:
        raise InvalidRequestError("not this one", param="messages[0].role")

    def divide(self) -> float:
        return 1 / 0

    def check_params(self, params: SamplingParams) -> None:
        raise InvalidRequestError("the grammar has no start", param="response_format")


def scripted(**values: Any) -> Scripted:
    engine = Scripted()
    for name, value in values.items():
        setattr(engine, name, value)
    return engine


def refuse_to_load() -> Any:
    raise ModelError("no such model", param="model")


def break_while_loading() -> Any:
    raise ZeroDivisionError("in the loader")


def log_to(path: str) -> None:
    logging.basicConfig(filename=path, format="%(levelname)s %(message)s", level="INFO", force=True)


def make(
    load: Callable[[], Any], step_timeout: float = 0.0, prepare: Callable[[], None] | None = None
) -> AsyncEngine:
    driver = partial(EngineProcess, prepare=prepare)
    return AsyncEngine(load, make_driver=driver, step_timeout=step_timeout)


def child_of(engine: AsyncEngine) -> psutil.Process:
    driver = engine._driver
    assert isinstance(driver, EngineProcess)
    return psutil.Process(driver.process.pid)


@asynccontextmanager
async def started(*args: Any, **options: Any) -> AsyncIterator[AsyncEngine]:
    engine = make(*args, **options)
    await engine.start()
    child = child_of(engine)
    yield engine
    await engine.shutdown()
    assert not engine.is_stuck
    assert not child.is_running()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))
