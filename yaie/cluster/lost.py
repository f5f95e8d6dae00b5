"""How the stream of a replica that has died ends: with an error event, as a failing engine's does.

The replica can say nothing more, so its last words are made here, in the form of its endpoint.
"""

import json
from typing import Any

from yaie.core.errors import EngineDeadError
from yaie.server.dialects.messages_errors import PATH as MESSAGES
from yaie.server.dialects.messages_errors import error_in_stream

MESSAGE = "The replica that computed this answer has died; try again."
EVENT_END = b"\n\n"


def last_events(path: str, error: dict[str, Any], num_events: int) -> bytes:
    """The rest of a stream of server-sent events.

    path: of the request. error: the error object of OpenAI's API. num_events: that the client has.
    """
    if path.startswith(MESSAGES):
        return _event(error_in_stream(error), named=True)
    if path == "/v1/responses":
        return _event({**error, "type": "error", "sequence_number": num_events}, named=True)
    return _event({"error": error}) + b"data: [DONE]\n\n"


def died() -> EngineDeadError:
    """What has happened, as an error of ours."""
    return EngineDeadError(MESSAGE)


def _event(body: dict[str, Any], named: bool = False) -> bytes:
    name = f"event: {body['type']}\n" if named else ""
    return f"{name}data: {json.dumps(body)}\n\n".encode()
