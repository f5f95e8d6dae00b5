"""The worst bodies of a size that each route can be sent, always the same ones.

Most are legal up to a bound and refused beyond it; what they have in common is that something in the
server would look at each of their parts.
"""

import json
from collections.abc import Iterator
from typing import Any

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
TOKENIZE, DETOKENIZE, EMBEDDINGS = "/tokenize", "/detokenize", "/v1/embeddings"
PATHS = (CHAT, TEXT, RESPONSES, MESSAGES, COUNT, TOKENIZE, DETOKENIZE, EMBEDDINGS)
Worst = tuple[str, str, bytes]
"""What it is, the path, the body."""

HI = {"role": "user", "content": "hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
STRINGS = {
    "ASCII": b"a",
    "words": b"word ",
    "emoji": "\U0001f600".encode(),
    "one emoji among ASCII": b"a",
    "escaped pairs": rb"\ud83d\ude00",
    "escapes": rb"\n",
    "backslashes": rb"\\",
    "quotes": rb"\"",
    "commas": b",",
    "brackets": b"[",
}


def worst(size: int) -> Iterator[Worst]:
    """Of about so many bytes, and never more."""
    for path, body in _texts():
        for name, unit in STRINGS.items():
            last = "\U0001f600".encode() if "one emoji" in name else b""
            yield f"a text of {name}", path, filled(body, unit, size, last=last)
    for name, path, body, unit in _lists():
        for last in ("", "[]"):  # the last element is wrong
            yield f"{name}{' and a wrong one' * bool(last)}", path, filled(
                body, _dumps(unit) + b",", size, last=last.encode() or _dumps(unit)
            )  # fmt: skip
    for path, body in _plain():
        fields = (f'"f{number}":0,' for number in range(size))
        yield (
            "unknown fields",
            path,
            _put(body, '"x":"PLACE"', _up_to(fields, size - 300) + b'"x":0'),
        )
        numbers = _up_to(("9" * 4000 + "," for _ in range(size)), size - 300)
        yield "long numbers", path, _put(body, '"PLACE"', b"[" + numbers + b"1]")
        nested = b"[" * 200 + b"]" * 200 + b","
        yield "nested lists", path, filled(body, nested, size, quoted=False)
        yield "UTF-16", path, filled(body, b"a", size // 2 - 10).decode().encode("utf-16-le")
        yield "no JSON", path, b"{" * size


def filled(
    body: Any, unit: bytes, size: int, *, last: bytes = b"", quoted: bool | None = None
) -> bytes:
    """The body with as many units at PLACE as there is room for. quoted: in a string or a list; None to
    go by the unit."""
    start, _, end = _dumps(body).partition(b'"PLACE"')
    if quoted is None:
        quoted = not unit.endswith(b",") or unit == b","
    opening, closing = (b'"', b'"') if quoted else (b"[", b"]")
    if not quoted and not last:
        last = b"0"
    room = size - len(start) - len(end) - len(last) - 2
    return start + opening + unit * (room // len(unit)) + last + closing + end


def _texts() -> Iterator[tuple[str, Any]]:
    user = {"role": "user", "content": "PLACE"}
    yield CHAT, {"messages": [user], "max_tokens": 1}
    yield CHAT, {"messages": [HI, {"role": "assistant", "content": "PLACE"}, HI], "max_tokens": 1}
    yield TEXT, {"prompt": "PLACE", "max_tokens": 1}
    yield TEXT, {"prompt": "PLACE", "max_tokens": 1, "truncate_prompt_tokens": 8, "echo": True}
    yield RESPONSES, {"input": "PLACE", "max_output_tokens": 1}
    yield RESPONSES, {"input": "hi", "instructions": "PLACE", "max_output_tokens": 1}
    yield RESPONSES, {"input": "hi", "metadata": {"a": "PLACE"}, "max_output_tokens": 1}
    yield MESSAGES, {"messages": [user], "max_tokens": 1}
    yield COUNT, {"messages": [user], "system": "PLACE"}
    yield TOKENIZE, {"prompt": "PLACE"}
    yield TOKENIZE, {"messages": [user]}
    yield EMBEDDINGS, {"input": "PLACE"}


def _lists() -> Iterator[tuple[str, str, Any, Any]]:
    """(what, path, body, element): the elements go where PLACE is."""
    block = {"type": "text", "text": "x"}
    use = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
    listed = {"messages": "PLACE", "max_tokens": 1}
    parts = {"messages": [{"role": "user", "content": "PLACE"}], "max_tokens": 1}
    for path in (CHAT, MESSAGES, COUNT, TOKENIZE):
        yield "messages", path, listed, HI
        yield "parts", path, parts, block
    yield "empty messages", CHAT, listed, {"role": "user"}
    yield "turns of one role", MESSAGES, listed, {"role": "assistant", "content": "x"}
    calling = {"role": "assistant", "content": [use]}
    yield "turns that call", MESSAGES, listed, calling
    yield "calls", CHAT, {"messages": [HI, {"role": "assistant", "tool_calls": "PLACE"}, HI]}, CALL
    yield "items", RESPONSES, {"input": "PLACE"}, HI
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    yield "items that call", RESPONSES, {"input": "PLACE"}, item
    yield "include", RESPONSES, {"input": "hi", "include": "PLACE"}, "message.output_text.logprobs"
    yield "parts", RESPONSES, {"input": [{"role": "user", "content": "PLACE"}]}, {
        "type": "input_text", "text": "x"
    }  # fmt: skip
    schema = {"type": "object", "properties": {"a": {"enum": "PLACE"}}}
    function = {"name": "f", "parameters": schema}
    asks = {"tool_choice": "required", "max_tokens": 1}
    yield "an enum", CHAT, {
        "messages": [HI], "tools": [{"type": "function", "function": function}], **asks
    }, 1  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    yield "an enum", CHAT, {"messages": [HI], "response_format": form, "max_tokens": 1}, "x"
    yield "an enum", RESPONSES, {"input": "hi", "tools": [{"type": "function", **function}]}, 1
    tool = {"name": "f", "input_schema": schema}
    yield "an enum", MESSAGES, {"messages": [HI], "tools": [tool], "max_tokens": 1}, 1
    tools = {"messages": [HI], "tools": "PLACE", "max_tokens": 1}
    yield "tools", CHAT, tools, {"type": "function", "function": {"name": "f"}}
    yield "tools", MESSAGES, tools, {"name": "f", "input_schema": {}}
    yield "token ids", TEXT, {"prompt": "PLACE", "max_tokens": 1}, 7
    yield "token ids", EMBEDDINGS, {"input": "PLACE"}, 7
    yield "token ids", DETOKENIZE, {"tokens": "PLACE"}, 7
    yield "prompts", TEXT, {"prompt": "PLACE", "max_tokens": 1}, "x"
    yield "prompts of ids", TEXT, {"prompt": "PLACE", "max_tokens": 1}, [7]
    yield "texts", EMBEDDINGS, {"input": "PLACE"}, "x"
    yield "stop strings", TEXT, {"prompt": "x", "stop": "PLACE", "max_tokens": 1}, "y"
    yield "stop tokens", TEXT, {"prompt": "x", "stop_token_ids": "PLACE", "max_tokens": 1}, 7


def _plain() -> Iterator[tuple[str, Any]]:
    """A place for anything in each route's body."""
    for path in (CHAT, MESSAGES):
        yield path, {"messages": [HI], "max_tokens": 1, "x": "PLACE"}
    yield CHAT, {"messages": [HI], "max_tokens": 1, "logit_bias": {"x": "PLACE"}}
    yield CHAT, {"messages": [HI], "max_tokens": 1, "chat_template_kwargs": {"x": "PLACE"}}
    yield COUNT, {"messages": [HI], "x": "PLACE"}
    yield TEXT, {"prompt": "x", "max_tokens": 1, "x": "PLACE"}
    yield TEXT, {"prompt": "x", "max_tokens": 1, "metadata": {"x": "PLACE"}}
    yield RESPONSES, {"input": "x", "x": "PLACE"}
    yield TOKENIZE, {"prompt": "x", "x": "PLACE"}
    yield DETOKENIZE, {"tokens": [7], "x": "PLACE"}
    yield EMBEDDINGS, {"input": "x", "x": "PLACE"}


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _put(body: Any, place: str, value: bytes) -> bytes:
    return _dumps(body).replace(place.encode(), value, 1)


def _up_to(pieces: Iterator[str], size: int) -> bytes:
    """As many of them as there is room for."""
    found = bytearray()
    for piece in pieces:
        if len(found) + len(piece) > size:
            break
        found += piece.encode()
    return bytes(found)
