"""Lab 8: an answer as a whole, and as a stream; and what a broken request gets."""

import json
from typing import Any

from yaie.demos.shown import Shown, row, same
from yaie.demos.subject import Subject
from yaie.explore.wire import Answer, Client

PATH = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "model": "tutor",
    "messages": [{"role": "user", "content": "What is a KV cache?"}],
    "temperature": 0,
    "max_tokens": 24,
}


def show(subject: Subject) -> Shown:
    """The same question to the HTTP API, without a socket."""
    with subject.engine() as engine:
        client = Client(subject.package, engine)
        client.start()
        try:
            whole = client.post(PATH, BODY)
            stream = client.post(PATH, {**BODY, "stream": True})
            broken = client.post(PATH, b"{")
        finally:
            client.stop()
    text = str(json.loads(whole.body)["choices"][0]["message"]["content"])
    pieces = _texts(stream)
    joined = "".join(pieces)
    first = next((piece for piece in pieces if piece), "")
    error = json.loads(broken.body).get("error", {})
    fields = ", ".join(sorted(error))
    return Shown(
        f"{BODY['messages'][0]['content']!r}, sent to {PATH}.",
        ("whole", "stream"),
        (
            row("bytes", len(whole.body), len(stream.body)),
            row("events", "", len(stream.events())),
            row("characters in the first with text", len(text), len(first)),
            row("the text, joined", "", same(joined, text)),
        ),
        f"The first {len(first)} of {len(text)} characters leave before the rest is generated, for "
        f"{len(stream.body):,} bytes instead of {len(whole.body):,}; a body that is no JSON gets "
        f"status {broken.status}, with {fields}.",
        tuple(_cut(line) for _, line in stream.events()[:2] + stream.events()[-1:]),
    )


def _texts(stream: Answer) -> list[str]:
    """The text of each event."""
    events = [json.loads(line) for _, line in stream.events() if line != "[DONE]"]
    choices = [choice for event in events for choice in event["choices"]]
    return [choice["delta"].get("content") or "" for choice in choices]


def _cut(line: str) -> str:
    """What of an event is not the same in all of them."""
    if line == "[DONE]":
        return f"data: {line}"
    (choice,) = json.loads(line)["choices"]
    return f'data: {{... "delta": {json.dumps(choice["delta"])} ...}}'[:80]
