"""One replica: an engine and the whole application of `yaie serve` around it, asked over Ray.

An HTTP request comes as data (`Asked`), and the application answers it as if a web server had called it.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from prometheus_client import Metric
from starlette.types import Message

from yaie.cluster.exchange import Asked, ReplicaLostError
from yaie.core.config import EngineConfig
from yaie.engine.background.engine_life import EngineState
from yaie.engine.info import EngineInfo
from yaie.parts import load_part
from yaie.server.app import create_app
from yaie.server.engine import engine_for
from yaie.server.logs import log_activity, start_logging
from yaie.server.metrics import EngineCollector, process_registry
from yaie.server.request_head import RequestId
from yaie.server.service import Service
from yaie.server.settings import ServerSettings

logger = logging.getLogger(__name__)

LAST_WORDS_SECONDS = 1.0
"""For the streams of a dead engine to end with an error event."""
MOST_WAITING = 64
"""Pieces of an answer that wait to be fetched, at most; then the application waits, as it would for a
slow connection."""


class EngineReplica:
    """What Serve makes as many of as there are to be replicas. Public methods are called over Ray."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, config: EngineConfig, settings: ServerSettings
    ) -> None:
        """Returns when the model is loaded: Serve sends requests from then on. Raises what loading
        raises."""
        start_logging(settings.log_level, None, settings.log_json)
        # What came from outside was checked by the ingress, which alone is reachable.
        inside = replace(
            settings,
            api_key=(),
            allowed_origins=(),
            xray=settings.shows_xray,
            ssl_certfile=None,
            ssl_keyfile=None,
        )
        self._engine = engine_for(config, inside)
        api = load_part("api_server", config.mine).package
        self._app = RequestId(create_app(self._engine, api, inside, is_inner=True))
        self._registry = process_registry()
        self._registry.register(EngineCollector(Service(self._engine, settings.served_model_name)))
        self._tasks: list[asyncio.Task[None]] = []
        await self._engine.start()
        for beside in (log_activity(self._engine), self._end_when_dead()):
            self._tasks.append(asyncio.create_task(beside))

    async def check_health(self) -> None:
        """Called by Serve, which replaces a replica for which it raises."""
        if self._engine.state is EngineState.DEAD:
            raise self._lost(f"the engine has died: {self._engine.failure}")

    async def answer(self, asked: Asked) -> AsyncIterator[list[Message]]:
        """The answer in ASGI's messages, each time as many as are there. None of them is the last one:
        the caller says so at the end.

        Raises ReplicaLostError as long as nothing has begun and the engine is dead; then another replica
        can answer. If the caller goes away, so does the request.
        """
        pieces: asyncio.Queue[Message | None] = asyncio.Queue(MOST_WAITING)
        running = asyncio.create_task(self._run(asked, pieces))
        try:
            head = await pieces.get()
            if head is None or head["type"] != "http.response.start":
                raise self._lost("the application ended without an answer")
            if head["status"] >= 500 and self._engine.state is EngineState.DEAD:
                raise self._lost("the engine has died")
            there = [head, *await _all_there(pieces)]
            while there[-1] is not None:
                yield there
                there = await _all_there(pieces)
            yield there[:-1]
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await running

    async def once(self, asked: Asked) -> tuple[int, bytes]:
        """Status and body of a short answer. For `broadcast`, which takes no streams."""
        body, status = b"", 500
        async for messages in self.answer(asked):
            for message in messages:
                status = message.get("status", status)
                body += message.get("body", b"")
        return status, body

    async def metrics(self) -> tuple[str, list[Metric]]:
        """The number of this replica among the others, and its metrics."""
        return name_and_number()[1], list(self._registry.collect())

    async def info(self) -> EngineInfo:
        """The engine's constants."""
        return self._engine.info

    async def __del__(self) -> None:
        """Called by Serve once nothing runs here any more, or when `__init__` has raised."""
        for task in getattr(self, "_tasks", ()):
            task.cancel()
        if engine := getattr(self, "_engine", None):
            await engine.shutdown()

    def _lost(self, why: str) -> ReplicaLostError:
        return ReplicaLostError(why, name_and_number()[0])

    async def _end_when_dead(self) -> None:
        """An engine that has died does not come back, and Serve starts another replica only when it sees
        that this one is gone."""
        await self._engine.wait_ended()
        if self._engine.failure is not None:
            await asyncio.sleep(LAST_WORDS_SECONDS)
            end_process()

    async def _run(self, asked: Asked, pieces: "asyncio.Queue[Message | None]") -> None:
        """Call the application; what it sends goes into `pieces`, and None at its end."""
        waiting: list[Message] = [{"type": "http.request", "body": asked.body, "more_body": False}]

        async def receive() -> Message:
            if waiting:
                return waiting.pop()
            await asyncio.Event().wait()  # a client that leaves cancels all of this
            raise AssertionError("never reached")

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": message.get("body", b""), "more_body": True}
            await pieces.put(message)

        try:
            await self._app(dict(asked.scope), receive, send)
        except Exception:
            # The application has said so to the client, if it could.
            logger.exception("Answering %s failed", asked.scope["path"])
        await pieces.put(None)


def name_and_number() -> tuple[str, str]:
    """Of this process among the replicas: the name is never given again, the number is."""
    from ray import serve

    context = serve.get_replica_context()
    return context.replica_tag, str(context.rank.rank)


def end_process() -> None:
    """At once: a thread may be stuck in a step."""
    os._exit(1)


async def _all_there(pieces: asyncio.Queue[Any]) -> list[Any]:
    """What waits there, at least one piece."""
    there = [await pieces.get()]
    while not pieces.empty():
        there.append(pieces.get_nowait())
    return there
