"""In which form a chat template takes the contents of messages.

A content is a text to most templates, `message.content`. Others go through its parts, each
{"type": "text", "text": ...}, and make nothing at all of a text: the prompt comes out empty, without an
error. Which of the two a template is shows when it is tried.
"""

from collections.abc import Callable, Sequence
from typing import Any

Json = dict[str, Any]
Rendered = Callable[..., str]

_TALKS = (("system", "user", "assistant", "user"), ("user", "assistant", "user"), ("user",))
"""Conversations that a template is tried with, until it takes one."""
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks up.",
        "parameters": {"type": "object", "properties": {}},
    },
}


def takes_parts(template: str, rendered: Rendered) -> bool:
    """Whether a template goes through the parts of a content, and does not take a text. rendered: writes
    messages by a template (`ChatTemplates.rendered`)."""
    for tools in (None, [_TOOL]):
        for roles in _TALKS:
            texts = _shown(template, rendered, roles, tools, as_parts=False)
            if texts == len(roles):
                return False
            parts = _shown(template, rendered, roles, tools, as_parts=True)
            if texts or parts:
                return parts > texts
    return False


def _shown(
    template: str,
    rendered: Rendered,
    roles: Sequence[str],
    tools: list[Json] | None,
    *,
    as_parts: bool,
) -> int:
    """How many contents a template writes; 0 if it refuses the conversation."""
    marks = [f"yaie{index}content" for index in range(len(roles))]
    talk = [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)]
    try:
        told = rendered(
            template,
            in_parts(talk) if as_parts else talk,
            tools=tools,
            add_generation_prompt=True,
        )
    except Exception:  # noqa: BLE001 (a template is a program: what it raises is up to its author)
        return 0
    # A template for texts prints a list as Python or as JSON writes it, with quotes.
    quoted = ("'{}'", '"{}"') if as_parts else ()
    return sum(
        mark in told and not any(form.format(mark) in told for form in quoted) for mark in marks
    )


def in_parts(messages: Sequence[Json]) -> list[Json]:
    """The messages, their contents as lists of parts."""
    return [
        {**message, "content": _parts(message)} if "content" in message else message
        for message in messages
    ]


def _parts(message: Json) -> Any:
    content = message["content"]
    if not isinstance(content, str):
        return content
    if not content and message.get("tool_calls"):
        return []
    return [{"type": "text", "text": content}]
