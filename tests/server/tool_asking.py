"""Asking for calls of tools, and reading them out of answers of both kinds."""

from typing import Any

from tests.server.conftest import LiveServer

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "unit": {"enum": ["celsius", "kelvin"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["unit", "days"],
            "additionalProperties": False,
        },
    },
}
STOP_TOOL = {"type": "function", "function": {"name": "halt"}}
TOOLS = [WEATHER, STOP_TOOL]
USER = [{"role": "user", "content": "hi"}]


def ask(server: LiveServer, messages: Any = USER, **options: Any) -> Any:
    options = {"max_tokens": 190, "seed": 2, "tools": TOOLS, **options}
    name = server.llm.model_name
    return server.openai().chat.completions.create(model=name, messages=messages, **options)


def joined(chunks: Any) -> tuple[str, list[tuple[str, str]], str]:
    """Content, (name, arguments) of each call, and the reason, of the stream of one choice."""
    content, reason = "", ""
    calls: list[tuple[str, str]] = []
    for chunk in chunks:
        (choice,) = chunk.choices
        content += choice.delta.content or ""
        for delta in choice.delta.tool_calls or []:
            if delta.index == len(calls):
                assert delta.id
                assert delta.type == "function"
                calls.append((delta.function.name, ""))
            else:
                assert (delta.id, delta.type, delta.function.name) == (None, None, None)
            name, arguments = calls[delta.index]
            calls[delta.index] = (name, arguments + (delta.function.arguments or ""))
        reason = choice.finish_reason or reason
    return content, calls, reason


def of_answer(answer: Any) -> tuple[str, list[tuple[str, str]], str]:
    (choice,) = answer.choices
    calls = choice.message.tool_calls or []
    return (
        choice.message.content or "",
        [(call.function.name, call.function.arguments) for call in calls],
        choice.finish_reason,
    )
