"""The life of a server: it answers from the start (503 while the model loads), serves, drains, ends.

The first SIGINT or SIGTERM starts to drain: no new request is admitted, `/health` says so, those that
run may finish within a limit. A second one ends the process at once, and so does a SIGINT while the
model loads: there is no answer to wait for.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from yaie.core.errors import EngineUnavailableError
from yaie.engine.background.async_engine import AsyncEngine
from yaie.server.cautions import cautions
from yaie.server.connections import MAX_HEAD_BYTES, connection_class
from yaie.server.direct import Pieces
from yaie.server.logs import log_activity
from yaie.server.request_head import RequestId
from yaie.server.settings import ServerSettings
from yaie.system.descriptors import allowed_connections
from yaie.system.interrupt import end_interrupted

logger = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection is kept. Longer than clients and load balancers keep theirs (5 to 60), so
that none of them sends a request into a connection that is just being closed."""
FLUSH_SECONDS = 5
"""How long clients have to read the end of their answers once the engine has stopped."""


class _Server(uvicorn.Server):
    """Leaves what a signal means to us. Uvicorn would stop listening at once, and raise the signal
    again at the end: the process would not exit with 0."""

    def __init__(self, config: uvicorn.Config, on_signal: Callable[[int], None]) -> None:
        super().__init__(config)
        self._on_signal = on_signal
        self._signalled = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._signalled:
            os._exit(128 + sig)  # whatever is running: a forward pass cannot be interrupted
        self._signalled = True
        self._on_signal(sig)


async def run_server(
    engine: AsyncEngine,
    app: ASGIApp,
    listener: socket.socket,
    settings: ServerSettings,
    *,
    on_ready: Callable[[], None],
) -> None:
    """Serve until a signal comes or the engine dies or hangs (see `engine.failure`).

    Raises what loading the model raised.
    """
    loop = asyncio.get_running_loop()
    leave = asyncio.Event()
    config = uvicorn.Config(
        Pieces(RequestId(app)),
        http=connection_class(
            allowed_connections(settings.max_connections),
            settings.receive_timeout,
            engine.rejections,
        ),
        ws="none",
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=FLUSH_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
    )

    def on_signal(number: int) -> None:
        if number == signal.SIGINT and not loading.done():
            end_interrupted()
        loop.call_soon_threadsafe(leave.set)

    server = _Server(config, on_signal)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    loading = asyncio.create_task(engine.start())
    leaving = asyncio.create_task(leave.wait())
    ended = asyncio.create_task(engine.wait_ended())
    logging_activity = asyncio.create_task(log_activity(engine))
    try:
        await asyncio.wait({loading, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if loading.done() and loading.exception() is None:
            on_ready()
            with suppress(EngineUnavailableError):  # it was shut down as it loaded
                for caution in cautions(engine.tokenizer, settings):
                    logger.warning("%s", caution)
        await asyncio.wait({ended, leaving}, return_when=asyncio.FIRST_COMPLETED)
        await engine.shutdown(settings.drain_seconds)
        server.should_exit = True
        await serving
        if loading.done() and not loading.cancelled():
            await loading
    finally:
        for task in (serving, loading, leaving, ended, logging_activity):
            task.cancel()
