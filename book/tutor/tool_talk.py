"""Turns of a conversation in which tools are offered: a call, what it gave, and what no tool can do."""

import random
import re
from functools import lru_cache

from book.tutor.off_subject import ask_off_subject
from book.tutor.tool_made import COMPOSED, composed
from book.tutor.tool_results import result_of
from book.tutor.tool_schema import Arguments, Tool, call_text
from book.tutor.tool_use import as_asked, ask_tool, draw_of_group, draw_tool
from book.tutor.tool_values import said_as, value_of

Message = dict[str, str]

_PARALLEL = 0.05
_ANSWERED = 0.55
"""Share of calls whose result is there, so that the tutor passes it on."""
_AGAIN = 0.15
"""Share of results after which the same is asked for another value."""
_SIBLING = 0.25
"""Share of requests without a tool that want another thing done to what some tool is for."""
_AND = (
    "And {v}?", "What about {v}?", "And for {v}?", "How about {v}?", "The same for {v}", "Now {v}",
    "And with {v}", "Do the same for {v}", "{v} too, please", "Also {v}", "And now {v}", "{v}?",
)  # fmt: skip
_WIDE = (
    "topic", "item", "word", "quote", "title", "subject", "newsy", "errand", "occasion", "phrase"
)  # fmt: skip
"""Kinds of arguments that fit nearly anything: a search may be about every subject."""
_CLEAR_GROUPS = (
    "house",
    "cart",
    "list",
    "lists",
    "contact",
    "files",
    "code",
    "engine",
    "text",
    "money",
)
"""Groups in which no question for one tool could be meant for another."""
_COMMON = frozenset(
    "about after again another anything before could every everything first have know like long look "
    "make many more much need next other please right show some tell that there these they thing this "
    "those today want what when where which with would your give find from does mine mean people best "
    "name number time will should start list take good called".split()
)


def call_turns(tools: list[Tool], rng: random.Random) -> list[Message]:
    """A question that one of the tools answers, the call and, more often than not, its result."""
    tool = rng.choice(tools)
    question, arguments = ask_tool(tool, rng)
    calls = [call_text(tool.name, arguments)]
    if rng.random() < _PARALLEL:
        other = rng.choice(tools)
        more, arguments = ask_tool(other, rng, plain=True)
        joint = rng.choice(("and", "and also", "and then"))
        question = f"{question.rstrip('?.! ')} {joint} {more[0].lower()}{more[1:]}"
        calls.append(call_text(other.name, arguments))
    turns = _asked(question, "\n".join(calls))
    if len(calls) == 1 and rng.random() < _ANSWERED:
        turns += _result_turns(rng, arguments, tool.gives)
        if rng.random() < _AGAIN and (again := ask_again(tool, arguments, rng)):
            turns += _asked(again[0], call_text(tool.name, again[1]))
            if rng.random() < _ANSWERED:
                turns += _result_turns(rng, again[1], tool.gives)
    return turns


def _asked(question: str, reply: str) -> list[Message]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]


def _result_turns(
    rng: random.Random, arguments: Arguments, gives: tuple[str, ...]
) -> list[Message]:
    result, reply = result_of(rng, arguments, gives)
    return [{"role": "tool", "content": result}, {"role": "assistant", "content": reply}]


def ask_again(tool: Tool, arguments: Arguments, rng: random.Random) -> tuple[str, Arguments] | None:
    """A short question for the same with another value, if there is no doubt which value it changes."""
    given = [a for a in tool.arguments if a.name in arguments and a.kind.isalpha()]
    if len(given) != 1 or len(arguments) > 2:
        return None
    kind = given[0].kind
    value = value_of(kind, rng)
    question = as_asked(rng.choice(_AND), rng).replace("{v}", said_as(value, kind, rng))
    return question, {**arguments, given[0].name: value}


@lru_cache(maxsize=4096)
def _words(text: str) -> frozenset[str]:
    """Words that tell what a text is about, without a plural's ending."""
    found = re.findall(r"[a-z]{4,}", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())
    return frozenset(word.rstrip("s") for word in found if word not in _COMMON)


def may_cover(tools: list[Tool], question: str) -> bool:
    """Whether a question could mean a tool: words in common, or numbers beside a tool for numbers."""
    asked = _words(question)
    numbers = bool(re.search(r"\d", question))
    for tool in tools:
        if any(asked & _words(text) for text in (tool.name, tool.about, *tool.asks)):
            return True
        kinds = [argument.kind for argument in tool.arguments]
        if any(kind in _WIDE for kind in kinds):
            return True
        if numbers and any(
            kind.startswith(("int", "number", "expression", "sum")) for kind in kinds
        ):
            return True
    return False


def ask_missing_tool(tools: list[Tool], rng: random.Random) -> str:
    """A question for a tool that is not offered, often one for another verb and the same thing."""
    made = [tool.sort for tool in tools if tool.sort.startswith(COMPOSED)]
    if made and rng.random() < _SIBLING:
        avoid = frozenset(made)
        return ask_tool(composed(rng, rng.choice(made).rpartition(" ")[2], avoid), rng)[0]
    offered = {tool.sort for tool in tools}
    groups = [tool.group for tool in tools if tool.group in _CLEAR_GROUPS]
    if groups and rng.random() < _SIBLING:
        tool = draw_of_group(rng.choice(groups), rng)
        if tool.sort not in offered:
            return ask_tool(tool, rng)[0]
    for _ in range(30):
        tool = draw_tool(rng)
        question = ask_tool(tool, rng)[0]
        if tool.sort not in offered and not may_cover(tools, question):
            return question
    return ask_beside_tools(tools, rng)


def ask_beside_tools(tools: list[Tool], rng: random.Random) -> str:
    """A prompt off the subject that none of the tools is for."""
    for _ in range(8):
        question = ask_off_subject(rng)
        if not may_cover(tools, question):
            return question
    # Nouns in sentences of the subject: no tool is asked like that.
    return ask_off_subject(rng, ("borrowed", "exchanged"))
