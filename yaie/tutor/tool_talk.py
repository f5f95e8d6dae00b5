"""Turns of a conversation in which tools are offered: a call, what it gave, and what no tool can do."""

import random

from yaie.tutor.tool_use import Tool, ask_tool, call_text, draw_tool, result_of

Message = dict[str, str]

_PARALLEL = 0.05
_ANSWERED = 0.6
"""Share of calls whose result is there, so that the tutor passes it on."""


def call_turns(tools: list[Tool], rng: random.Random) -> list[Message]:
    """A question that one of the tools answers, the call and, more often than not, its result."""
    tool = rng.choice(tools)
    question, arguments = ask_tool(tool, rng)
    calls = [call_text(tool.name, arguments)]
    if rng.random() < _PARALLEL:
        other = rng.choice(tools)
        more, arguments = ask_tool(other, rng)
        question = f"{question.rstrip('?.! ')} {rng.choice(('and', 'and also', 'and then'))} {more}"
        calls.append(call_text(other.name, arguments))
    turns = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "\n".join(calls)},
    ]
    if len(calls) == 1 and rng.random() < _ANSWERED:
        result, reply = result_of(rng)
        turns += [{"role": "tool", "content": result}, {"role": "assistant", "content": reply}]
    return turns


def ask_missing_tool(tools: list[Tool], rng: random.Random) -> str:
    """A question for a tool that is not offered."""
    offered = {tool.asks for tool in tools}
    while (tool := draw_tool(rng)).asks in offered:
        pass
    return ask_tool(tool, rng)[0]
