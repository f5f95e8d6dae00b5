"""Conversations in which the request offers tools: when to call one, with what, and when not to.

Names, arguments and values are drawn anew each time, so that the tutor can only copy them: the name from
the system turn, the values from the question.
"""

import json
import random
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from yaie.tutor import strange
from yaie.tutor.glossary import load_phrasings
from yaie.tutor.questions import as_typed
from yaie.tutor.templates import sample
from yaie.tutor.tool_values import invented_name, type_of, value_of

MAX_OFFERED = 6
_CHOSEN = re.compile(r"\{(\d)=([^}]*)\}")
_SHOWN = re.compile(r"\{(\d)\}")

Arguments = dict[str, str | int | bool]


@dataclass(frozen=True)
class Argument:
    """One argument of an offered tool; `kind` as in `tools.toml`."""

    name: str
    kind: str
    optional: bool


@dataclass(frozen=True)
class Tool:
    """A tool as a request offers it."""

    name: str
    about: str
    arguments: tuple[Argument, ...]
    asks: tuple[str, ...]

    def line(self) -> str:
        """As the chat template lists it: `name(argument:type,optional?:type): what it does`."""
        listed = ",".join(
            f"{argument.name}{'?' if argument.optional else ''}:{type_of(argument.kind)}"
            for argument in self.arguments
        )
        return f"{self.name}({listed})" + (f": {self.about}" if self.about else "")


@lru_cache(maxsize=1)
def reserved_names() -> frozenset[str]:
    """Tools of the unseen questions: training offers none of that name."""
    return frozenset(load_phrasings("unseen")["tools"])


def tools_turn(lines: list[str], system: str = "") -> str:
    """Content of the system turn that lists the tools, as the chat template renders it."""
    head = f"{system}\n" if system else ""
    return head + "<tools>\n" + "".join(f"{line}\n" for line in lines) + "</tools>"


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """A call as the tutor writes it, in the form of Hermes and Qwen."""
    call = (
        f'{{"name": {json.dumps(name)}, "arguments": {json.dumps(arguments, ensure_ascii=False)}}}'
    )
    return f"<tool_call>\n{call}\n</tool_call>"


def _styled(name: str, rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.62:
        return name
    if kind < 0.82:
        head, *rest = name.split("_")
        return head + "".join(part.capitalize() for part in rest)
    if kind < 0.88:
        return name.replace("_", "-")
    suffix = sample("[_v2|_tool|_api|_fn|2|_now|_by_name|_service]", rng)
    return name + suffix if kind < 0.96 else f"{strange.invented_word(rng).lower()}_{name}"


def draw_tool(rng: random.Random) -> Tool:
    """A tool with names of its own; one in eight has a name that means nothing."""
    table = rng.choice(load_phrasings("tools")["tool"])
    about = sample(table["about"], rng)
    name = next(iter(reserved_names()))
    while name in reserved_names():
        if rng.random() < 0.88:
            name = _styled(sample(table["name"], rng), rng)
            about = about if rng.random() < 0.85 else ""
        else:
            name = invented_name(rng)
    arguments: list[Argument] = []
    for written, kind in table["args"]:
        word = sample(written.removeprefix("?"), rng)
        if rng.random() < 0.06 or word in {argument.name for argument in arguments}:
            word = strange.invented_word(rng).lower() + str(len(arguments))
        arguments.append(Argument(word, kind, written.startswith("?")))
    return Tool(name, about, tuple(arguments), tuple(table["ask"]))


def draw_tools(rng: random.Random) -> list[Tool]:
    """One to six tools, no two of the same sort."""
    tools: dict[tuple[str, ...], Tool] = {}
    for _ in range(rng.choices((1, 2, 3, 4, MAX_OFFERED), (36, 27, 18, 11, 8))[0]):
        tool = draw_tool(rng)
        if tool.name not in {other.name for other in tools.values()}:
            tools[tool.asks] = tool
    return list(tools.values())


def ask_tool(tool: Tool, rng: random.Random, plain: bool = False) -> tuple[str, Arguments]:
    """A question that the tool answers, and the call's arguments, in the order of the schema."""
    template = sample(rng.choice(tool.asks), rng)
    values: dict[int, str | int | bool] = {}
    for match in _CHOSEN.finditer(template):
        text = match.group(2)
        values[int(match.group(1))] = {"true": True, "false": False}.get(text, text)
    text = _CHOSEN.sub("", template)
    for match in _SHOWN.finditer(template):
        index = int(match.group(1))
        if index not in values:
            values[index] = value_of(tool.arguments[index].kind, rng)
    # Values are put in after the sentence was varied: a slip in a value would teach to correct it.
    text = text if plain else as_typed(text, rng)
    for index, value in values.items():
        text = text.replace(f"{{{index}}}", str(value))
    return text, {
        argument.name: values[index]
        for index, argument in enumerate(tool.arguments)
        if index in values
    }


def result_of(rng: random.Random) -> tuple[str, str]:
    """What a tool answers, and how the tutor passes it on."""
    kind = rng.random()
    if kind < 0.34:
        value = _scalar(rng)
        text = json.dumps(value, ensure_ascii=False) if rng.random() < 0.5 else str(value)
        return text, f"The result is {text}."
    if kind < 0.80:
        keys = [_key(rng) for _ in range(rng.randint(1, 4))]
        fields = {key: _scalar(rng) for key in keys}
        said = ", ".join(f"{key}: {value}" for key, value in fields.items())
        return json.dumps(fields, ensure_ascii=False), f"The tool says {said}."
    if kind < 0.92:
        items = [str(_scalar(rng)) for _ in range(rng.randint(1, 5))]
        return json.dumps(items, ensure_ascii=False), f"The tool lists {', '.join(items)}."
    why = sample("[not found|timeout|permission denied|no such entry|unknown|rate limit]", rng)
    return json.dumps({"error": why}), f"The tool reports an error: {why}."


def _key(rng: random.Random) -> str:
    written = (
        "temperature price status name total time count state city unit score currency title "
        "result amount wind humidity date size email owner message id rate speed distance level "
        "text value ok"
    ).split()  # fmt: skip
    return rng.choice(written) if rng.random() < 0.85 else strange.invented_word(rng).lower()


def _scalar(rng: random.Random) -> str | int | float:
    kind = rng.random()
    if kind < 0.45:
        return rng.randint(0, rng.choice((10, 100, 1000, 100_000)))
    if kind < 0.6:
        return round(rng.random() * rng.choice((1, 10, 100, 1000)), rng.randint(1, 2))
    pools = ("place", "person", "topic", "item", "date", "time", "code", "word", "file")
    return str(value_of(rng.choice(pools), rng))
