"""When pieces are written to connections, and when they are not."""

import asyncio
from types import SimpleNamespace
from typing import cast

from yaie.server.direct import Outbox, PieceWriter, Wire


class Line:
    """Stands for a connection's transport: what it was given."""

    def __init__(self, sent: list[bytes]) -> None:
        self.write = sent.append


def test_a_writer_writes_only_into_an_open_response_of_a_client_that_keeps_up() -> None:
    sent: list[bytes] = []
    cycle = SimpleNamespace(
        flow=SimpleNamespace(write_paused=False),
        transport=Line(sent),
        disconnected=False,
        response_started=True,
        response_complete=False,
    )
    wire = SimpleNamespace(is_chunked=True)
    writer = PieceWriter(cycle, cast("Wire", wire), Outbox())
    assert not writer.follows(b"one")
    writer.saw({"type": "http.response.body", "body": b"zero one"})
    assert writer.follows(b"one")
    for holder, name in (
        (cycle, "response_started"),
        (cycle, "response_complete"),
        (wire, "is_chunked"),
    ):
        setattr(holder, name, not getattr(holder, name))
        assert not writer.follows(b"one")
        setattr(holder, name, not getattr(holder, name))

    async def write() -> None:
        assert writer.write(b"0123456789abcdef")
        for holder, name in ((cycle.flow, "write_paused"), (cycle, "disconnected")):
            setattr(holder, name, True)
            assert not writer.write(b"more")
            setattr(holder, name, False)

    asyncio.run(write())
    assert sent == [b"10\r\n0123456789abcdef\r\n"]


def test_what_a_turn_writes_to_a_connection_is_one_packet_sent_behind_all_of_the_turn() -> None:
    sent: dict[str, list[bytes]] = {"a": [], "b": []}
    lines = {name: cast("asyncio.Transport", Line(packets)) for name, packets in sent.items()}
    outbox = Outbox()

    async def two_turns() -> None:
        for name, data in (("a", b"1"), ("b", b"2"), ("a", b"3")):
            outbox.put(lines[name], data)
        assert sent == {"a": [], "b": []}
        await asyncio.sleep(0)
        assert sent == {"a": [b"13"], "b": [b"2"]}
        outbox.put(lines["b"], b"4")
        await asyncio.sleep(0)

    asyncio.run(two_turns())
    assert sent == {"a": [b"13"], "b": [b"2", b"4"]}


def test_what_asgi_sends_next_finds_nothing_left_to_send_before_it() -> None:
    sent: dict[str, list[bytes]] = {"a": [], "b": []}
    lines = {name: cast("asyncio.Transport", Line(packets)) for name, packets in sent.items()}
    outbox = Outbox()

    async def one_turn() -> None:
        outbox.put(lines["a"], b"1")
        outbox.put(lines["b"], b"2")
        outbox.hurry(lines["b"])
        outbox.hurry(lines["b"])
        assert sent == {"a": [], "b": [b"2"]}
        outbox.put(lines["b"], b"3")

    asyncio.run(one_turn())
    assert sent == {"a": [b"1"], "b": [b"2", b"3"]}
