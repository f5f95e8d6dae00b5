"""The client of `stream_cost`: a process of its own, which imports next to nothing."""

import asyncio
import selectors
import socket
import time
from multiprocessing.connection import Connection
from typing import Any

from yaie.bench.http_client import Answer, ask

SIP = 0.02
"""Seconds between two looks at what has come."""


def read_rounds(orders: Connection) -> None:
    """Obey orders until None comes, and answer each.

    ("ask", address of a server, streams, tokens): the bytes of a token's packet, or what went wrong.
    ("listen", a port, connections, 0): None once all of them are closed.
    """
    while (order := orders.recv()) is not None:
        what, where, streams, tokens = order
        if what == "listen":
            _listen(where, streams)
            orders.send(None)
        else:
            try:
                orders.send(asyncio.run(_ask(where, streams, tokens)))
            except Exception as error:  # noqa: BLE001, the other process raises it
                orders.send(error)


def _listen(port: int, streams: int) -> None:
    selector = selectors.DefaultSelector()
    for _ in range(streams):
        selector.register(socket.create_connection(("127.0.0.1", port)), selectors.EVENT_READ)
    while selector.get_map():
        for key, _ in selector.select():
            connection: Any = key.fileobj
            if not connection.recv(1 << 16):
                selector.unregister(connection)
                connection.close()
        time.sleep(SIP)


async def _ask(url: str, streams: int, tokens: int) -> int:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": tokens, "stream": True}
    asking = asyncio.gather(*(ask(url, "/v1/chat/completions", body) for _ in range(streams)))
    await asyncio.sleep(SIP)
    while not asking.done():
        time.sleep(SIP)  # blocks on purpose: many packets are read at once
        await asyncio.sleep(0)
    sizes = [_packet(answer, tokens) for answer in await asking]
    return max(sizes)


def _packet(answer: Answer, tokens: int) -> int:
    """The bytes of a token's packet, on average. Raises ValueError unless each token had its own."""
    pieces = [event for event in answer.events() if event["choices"][0]["delta"].get("content")]
    if len(pieces) != tokens:
        raise ValueError(f"{tokens} tokens came in {len(pieces)} pieces")
    return len(answer.raw.partition(b"\r\n\r\n")[2]) // tokens
