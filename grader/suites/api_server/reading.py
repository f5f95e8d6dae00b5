"""Server-sent events as a client reads them."""

import json
from typing import Any

from grader.kit import Mismatch, expect_equal

LINES = "Clients cut events at empty lines, and some cut lines wherever Unicode has a line break."
DONE = "Without [DONE] a client cannot distinguish a complete answer from a broken connection."


def events_of(body: bytes) -> list[Any]:
    """The data of the events before [DONE], which must be the last and only there."""
    *events, rest = body.split(b"\n\n")
    expect_equal(rest, b"", "what follows the last event's empty line", why=LINES)
    is_done = [event == b"data: [DONE]" for event in events]
    right = [False] * (len(events) - 1) + [True]
    expect_equal(is_done, right, "which of the events is data: [DONE]", why=DONE)
    return [data_of(event) for event in events[:-1]]


def data_of(event: bytes) -> Any:
    """The data of one event, without its empty line."""
    lines = event.decode().splitlines()
    if len(lines) != 1 or not lines[0].startswith("data: "):
        raise Mismatch(
            "an event is not one line that begins with `data: `", got=repr(lines), why=LINES
        )
    try:
        return json.loads(lines[0].removeprefix("data: "))
    except ValueError as error:
        raise Mismatch("an event's data is not JSON", got=f"{lines[0]!r}: {error}") from None


def told(events: list[Any]) -> list[Any]:
    """Events in short: a piece's text, "(reason)" for an end, usage, or an error's code."""
    found: list[Any] = []
    for event in events:
        if "error" in event:
            found.append({"error": event["error"]["code"]})
        elif not event["choices"]:
            found.append({"completion_tokens": event["usage"]["completion_tokens"]})
        else:
            (choice,) = event["choices"]
            reason = choice["finish_reason"]
            found.append(f"({reason})" if reason else choice["text"])
    return found
