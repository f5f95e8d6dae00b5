"""The text that a request's prompt begins with, as far as a router needs it: equal for equal prompts.

It is not the prompt: chat templates and tokenizers are the replica's. It only has to begin alike where
prompts do, so what comes first in a prompt comes first here: tools, instructions, then the messages.
"""

import json
from collections.abc import Iterator
from typing import Any

from yaie.cluster.prefixes import CHUNK, MOST_CHUNKS

MOST_BYTES = CHUNK * MOST_CHUNKS
FIRST = ("tools", "system", "instructions")
THEN = ("messages", "prompt", "input")
SEPARATOR = "\x00"
"""Between parts. A prompt may hold one; then two different prompts look alike, which costs nothing but a
worse choice."""


def prompt_start(body: bytes) -> bytes:
    """At most MOST_BYTES of it; empty if the body has no prompt, or is no JSON object at all.

    body: of any endpoint that generates: OpenAI's completions, chat completions and responses, and
    Anthropic's messages.
    """
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return b""  # the replica says what is wrong with it
    if not isinstance(asked, dict):
        return b""
    pieces, size = [], 0
    for piece in _pieces(asked):
        encoded = piece.encode("utf-8", "surrogatepass")
        pieces.append(encoded)
        size += len(encoded)
        if size >= MOST_BYTES:
            break
    return b"".join(pieces)[:MOST_BYTES]


def _pieces(asked: dict[str, Any]) -> Iterator[str]:
    prompts = [asked[name] for name in THEN if asked.get(name)]
    if not prompts:
        return
    for name in FIRST:
        if asked.get(name):
            yield f"{name}{SEPARATOR}{_text(asked[name])}{SEPARATOR}"
    for prompt in prompts:
        yield from _prompt(prompt)


def _prompt(prompt: Any) -> Iterator[str]:
    """Of a list of messages one after the other, of several prompts the first."""
    if not isinstance(prompt, list):
        yield _text(prompt)
    elif isinstance(prompt[0], dict):
        for message in prompt:
            yield _message(message)
    elif isinstance(prompt[0], int):  # tokens
        yield from (f"{token}," for token in prompt)
    else:
        yield from _prompt(prompt[0] or "")


def _message(message: Any) -> str:
    if not isinstance(message, dict):
        return _text(message)
    rest = {name: value for name, value in message.items() if name not in ("role", "content")}
    more = _text(rest) if rest else ""
    parts = (message.get("role", ""), message.get("content") or "", more)
    return "".join(f"{_text(part)}{SEPARATOR}" for part in parts)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
