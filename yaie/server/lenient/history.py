"""Brings the messages of a chat to what templates can carry: an agent sends back whatever it was told.

What an answer was cut off in stays in the history of its conversation. If that were refused, so would
every later turn.
"""

import json
from typing import Any

from yaie.server.lenient.notes import ignored, refuses

THOUGHTS = ("reasoning", "thinking")
"""What vLLM and Ollama call `reasoning_content`."""
UNREAD = ("annotations", "audio", "refusal")
"""What an answer of another server may have beside its content."""


def mended(messages: Any) -> None:
    """Change messages in place: the model's thoughts under one name, and the arguments of calls as a
    JSON object in a string. Validation handles any other form."""
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict):
            continue
        for name in THOUGHTS:
            if isinstance(thought := message.get(name), str):
                del message[name]
                message.setdefault("reasoning_content", thought)
        for name in UNREAD:
            if message.get(name) and not refuses():
                del message[name]
                ignored(f"messages[].{name}")
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and "arguments" in function:
                function["arguments"] = _as_object(function["arguments"])


def _as_object(arguments: Any) -> Any:
    """Arguments as they were, or those of a call without any in the place of half a call."""
    if isinstance(arguments, dict):  # Ollama's clients send it so
        return json.dumps(arguments)
    if not isinstance(arguments, str) or refuses():
        return arguments
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        is_object = False
    if is_object:
        return arguments
    ignored("messages[].tool_calls[].function.arguments")
    return "{}"
