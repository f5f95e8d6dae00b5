"""What `Direct` writes, and what it leaves to the reply."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaie.core.output import RequestOutput, Submitted
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason
from yaie.parts import load_parts
from yaie.server.direct import Direct, PieceWriter
from yaie.server.extras.reader import ChatReader
from yaie.server.extras.reasoning import FORMATS
from yaie.server.extras.reply import ExtendedReply

API = load_parts("none")["api_server"]
REPLIES = (API.ChatReply, API.TextReply)
WEIRD = ("m", "\0", '"\0"', 'a"content":"\0"')


class Wire:
    """Stands for a `PieceWriter`. last: what went through ASGI. refuses: as for a client that lags."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.last = b""
        self.refuses = False

    def follows(self, piece: bytes) -> bool:
        return self.last.endswith(piece)

    def write(self, piece: bytes) -> bool:
        self.written += [piece] * (not self.refuses)
        return not self.refuses


def output(text: str, count: int = 1, request_id: str = "a", **more: Any) -> RequestOutput:
    return RequestOutput(request_id, text, [7], num_output_tokens=count, **more)


class Streamed:
    """A streamed reply with its wire, and a twin that takes everything the usual way."""

    def __init__(
        self, make: Any = API.ChatReply, model: str = "m", extend: Any = None, **options: Any
    ) -> None:
        requests = [Submitted(name, [1, 2, 3], SamplingParams(n=2)) for name in "ab"]
        self.wire: Any = Wire()
        self.plain, self.twin = (make(model, requests, **options) for _ in range(2))
        self.twin.id, self.twin._created = self.plain.id, self.plain._created
        if extend is not None:
            self.plain, self.twin = extend(self.plain), extend(self.twin)
        self.reply = Direct(self.plain, API.event, cast("PieceWriter", self.wire))

    def send(self, given: RequestOutput) -> bytes:
        """What goes through ASGI, which is what the twin says."""
        self.wire.last = b"".join(map(API.event, self.reply.chunks(given)))
        assert self.wire.last == self.usual(given)
        return bytes(self.wire.last)

    def usual(self, given: RequestOutput) -> bytes:
        return b"".join(map(API.event, self.twin.chunks(given)))


@pytest.mark.parametrize("make", REPLIES)
@pytest.mark.parametrize("include_usage", [False, True])
@given(model=st.sampled_from(WEIRD) | st.text(), texts=st.lists(st.text(), min_size=1))
def test_any_text_is_written_as_the_reply_would_have_it(
    make: Any, include_usage: bool, model: str, texts: list[str]
) -> None:
    streamed = Streamed(make, model, include_usage=include_usage)
    streamed.send(output("first"))
    for text in [*texts, "\ud800", "\0"]:  # half a character too
        assert streamed.reply.take(output(text))
        assert streamed.wire.written[-1:] == [streamed.usual(output(text))] if text else True
    assert len(streamed.wire.written) == 2 + sum(map(bool, texts))


THOUGHTS = ("<think>", "</think>", "</th", "a", " b", "\n\n", "")


class Ascii:
    """A tokenizer whose tokens are pieces of text, by number."""

    def decode_all(self, ids: Sequence[int]) -> str:
        return ""

    def token_bytes(self, token_id: int) -> bytes:
        return THOUGHTS[token_id].encode()


@pytest.mark.parametrize("fields", [{}, {"include_reasoning": False}, {"stream_reasoning": False}])
@given(ids=st.lists(st.sampled_from(range(len(THOUGHTS))), min_size=1), late=st.integers(0, 2))
def test_behind_reasoning_too_the_bytes_are_the_same_and_the_counts(
    fields: dict[str, Any], ids: list[int], late: int
) -> None:
    """late: by how many tokens the text lags behind."""
    streamed = Streamed(extend=lambda reply: with_reasoning(reply, fields))
    ids = [0, 3, 1, 4, *ids, 4, 4]  # at the end content is plain, whatever came before
    told, expected = b"", b""
    for count in range(1, len(ids) + 1):
        text = THOUGHTS[ids[count - 1 - late]] if count > late else ""
        given_ids = ids[count - 1 : count]
        expected += streamed.usual(RequestOutput("a", text, given_ids, num_output_tokens=count))
        given = RequestOutput("a", text, given_ids, num_output_tokens=count)
        if streamed.reply.take(given):
            told += b"".join(streamed.wire.written)
            streamed.wire.written.clear()
        else:
            streamed.wire.last = b"".join(map(API.event, streamed.reply.chunks(given)))
            told += streamed.wire.last
        assert streamed.reply.usage() == streamed.twin.usage()
    assert told == expected
    assert streamed.reply._frames or late


def with_reasoning(reply: Any, fields: dict[str, Any]) -> ExtendedReply:
    body = SimpleNamespace(**{"include_reasoning": None, "stream_reasoning": None, **fields})
    thinks = FORMATS["think"]
    reader = ChatReader(reply.requests, body, Ascii(), tools=None, reasoning=thinks)
    return ExtendedReply(reply, reader)


def test_each_choice_is_learned_for_itself() -> None:
    streamed = Streamed()
    streamed.send(output("x"))
    assert not streamed.reply.take(output("y", request_id="b"))
    streamed.send(output("y", request_id="b"))
    for name in "ba":
        assert streamed.reply.take(output("z", request_id=name))
        assert streamed.wire.written[-1] == streamed.usual(output("z", request_id=name))


def test_an_output_without_text_shows_nothing_and_writes_nothing() -> None:
    streamed = Streamed()
    streamed.send(output(""))  # its role alone
    assert not streamed.reply.take(output("x"))
    streamed.send(output("x"))
    assert streamed.reply.take(output("", count=9))
    assert streamed.wire.written == []
    assert streamed.reply.usage()["completion_tokens"] == 9


def test_the_end_and_what_is_refused_go_the_usual_way() -> None:
    streamed = Streamed()
    streamed.send(output("x"))
    assert not streamed.reply.take(output("y", finish_reason=FinishReason.STOP))
    assert not streamed.reply.take(output("", finish_reason=FinishReason.ERROR))
    streamed.wire.refuses = True
    assert not streamed.reply.take(output("y"))
    streamed.send(output("y"))
    streamed.wire.refuses = False
    assert streamed.reply.take(output("z"))
    streamed.send(output("", finish_reason=FinishReason.STOP))


def test_nothing_is_written_before_what_was_learned_from_has_gone_out() -> None:
    streamed = Streamed()
    for _ in streamed.reply.chunks(output("x")):
        pass
    assert not streamed.reply.take(output("y"))
    streamed.wire.last = b"something else"
    assert not streamed.reply.take(output("y"))
    streamed.usual(output("x"))
    streamed.send(output("y"))
    assert streamed.reply.take(output("z"))
    streamed.wire.last = b"of another choice"
    assert streamed.reply.take(output("z"))


def test_usage_counts_what_was_written() -> None:
    streamed = Streamed(include_usage=True)
    for name in "ab":
        streamed.send(output("x", request_id=name))
    assert streamed.reply.take(output("y", count=5))
    assert streamed.reply.take(output("y", count=6, request_id="b"))
    assert streamed.reply.usage()["completion_tokens"] == 11
    assert streamed.reply.take(output("y", count=7))
    assert streamed.reply.usage_chunk()["usage"]["completion_tokens"] == 13
    assert streamed.reply.take(output("y", count=8))
    streamed.send(output("z", count=9))
    assert streamed.reply.usage()["completion_tokens"] == 15
