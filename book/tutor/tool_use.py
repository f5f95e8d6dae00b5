"""Conversations in which the request offers tools: when to call one, with what, and when not to.

Names, arguments and values are drawn anew each time, so that the tutor can only copy them: the name from
the system turn, the values from the question.
"""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from book.tutor.glossary import load_phrasings
from book.tutor.questions import OPENERS, slip
from book.tutor.templates import sample
from book.tutor.tool_made import as_schema_wants, composed, lookup, named_arguments
from book.tutor.tool_names import invented_name, plain_name, tool_name
from book.tutor.tool_schema import Arguments, Tool
from book.tutor.tool_values import Value, said_as, value_of

MAX_OFFERED = 6
_SHARES = (65, 16, 13, 6)
"""Of tools with plain names, of other written ones, of composed ones, and of lookups of a fact."""
_PLAIN = 0.66
"""Share of the tools of one group that have plain names."""
_TOUCHED = 0.2
"""Share of a plain tool's arguments that have another name than people expect."""
_ALIKE = 0.55
"""Share of sets in which several tools are of one group, or do something with one thing."""
_CHOSEN = re.compile(r"\{(\d)=([^}]*)\}")
_SHOWN = re.compile(r"\{(\d)\}")
_CAPITAL = frozenset(
    ("city", "place", "person", "country", "title", "language", "firm", "venue", "sign")
)
"""Kinds whose values a hurried person writes in small letters."""

_QUESTION = re.compile(
    r"(what|why|how|which|where|who|is|are|can|could|does|do|would|when|will|may|has|did|any|whose)\b"
)


@lru_cache(maxsize=1)
def reserved_names() -> frozenset[str]:
    """Tools of the unseen questions: training offers none of that name."""
    return frozenset(load_phrasings("unseen")["tools"])


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[str, Any], ...]:
    # The first file holds what is most often asked of assistants.
    names = ("tools", "tools", "tools_more", "tools_wide")
    return tuple(table for name in names for table in load_phrasings(name)["tool"])


@lru_cache(maxsize=1)
def _plain_tables() -> tuple[dict[str, Any], ...]:
    names = ("tools_everyday", "tools_everyday", "tools")
    return tuple(table for name in names for table in load_phrasings(name)["tool"])


@lru_cache(maxsize=1)
def _groups() -> dict[str, list[dict[str, Any]]]:
    """The tables of each group, every one once."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for table in (*_tables(), *_plain_tables()):
        tables = groups.setdefault(table.get("group", ""), [])
        if table not in tables:
            tables.append(table)
    del groups[""]
    return groups


def _written(rng: random.Random, table: dict[str, Any] | None = None) -> Tool:
    table = table or rng.choice(_tables())
    rows = [
        (names.removeprefix("?"), as_schema_wants(kind, rng, whole=True), names.startswith("?"))
        for names, kind in table["args"]
    ]
    name = tool_name(sample(table["name"], rng), rng)
    about = sample(table["about"], rng)
    sort, group = table.get("sort", table["name"]), table.get("group", "")
    return Tool(name, about, named_arguments(rows, rng), tuple(table["ask"]), sort, group)


def _plain(rng: random.Random, table: dict[str, Any] | None = None) -> Tool:
    """A tool that many assistants have, under names that say what they mean, with a description."""
    table = table or rng.choice(_plain_tables())
    rows = [(names.removeprefix("?"), kind, names.startswith("?")) for names, kind in table["args"]]
    arguments = named_arguments(rows, rng, rng.random() < _TOUCHED)
    while (name := plain_name(sample(table["name"], rng), rng)).lower() in reserved_names():
        if rng.random() < 0.02:  # Every name of this table may be reserved.
            name = tool_name(name, rng)
            break
    sort, group = table.get("sort", table["name"]), table.get("group", "")
    about, gives = sample(table["about"], rng), tuple(table.get("gives", ()))
    return Tool(name, about, arguments, tuple(table["ask"]), sort, group, gives)


def draw_tool(rng: random.Random) -> Tool:
    """A tool: two in three are what assistants often have, the others have names of their own."""
    kind = rng.choices(range(4), _SHARES)[0]
    if kind == 0:
        return _free(_plain(rng), rng)
    makers: tuple[Callable[[random.Random], Tool], ...] = (_written, composed, lookup)
    return _with_free_name(makers[kind - 1](rng), rng)


def _free(tool: Tool, rng: random.Random) -> Tool:
    """The tool, under another name if its own is reserved."""
    name = tool.name
    while name in reserved_names() or name.lower() in reserved_names():
        name = invented_name(rng)
    return replace(tool, name=name)


def _with_free_name(tool: Tool, rng: random.Random) -> Tool:
    """The tool under a name that is not reserved: some mean nothing, some have no description."""
    kind = rng.random()
    name, about = tool.name, tool.about
    if kind < 0.08:
        name = invented_name(rng)
    elif kind < 0.18:
        about = ""
    if about and rng.random() < 0.12:
        about = f"{about.rstrip('.')}. {rng.choice(_asking()['remarks'])}"
    while name.lower() in reserved_names() or name in reserved_names():
        name = f"{name}_{invented_name(rng)}" if about == "" else invented_name(rng)
    return replace(tool, name=name, about=about)


def draw_tools(rng: random.Random) -> list[Tool]:
    """One to six tools, no two of the same sort; in some sets several do something with one thing."""
    count = rng.choices(range(1, MAX_OFFERED + 1), (30, 17, 20, 15, 10, 8))[0]
    tools = [draw_tool(rng)]
    if count > 1 and rng.random() < _ALIKE:
        tools = _alike(rng.randint(2, count), rng)
    while len(tools) < count:
        tool = draw_tool(rng)
        if all(tool.name != other.name and tool.sort != other.sort for other in tools):
            tools.append(tool)
    rng.shuffle(tools)
    return tools


def draw_of_group(group: str, rng: random.Random) -> Tool:
    """A written tool of that group."""
    return _of_table(rng.choice(_groups()[group]), rng)


def _of_table(table: dict[str, Any], rng: random.Random) -> Tool:
    """The tool of that table, in two cases of three under plain names."""
    if rng.random() < _PLAIN:
        return _free(_plain(rng, table), rng)
    return _with_free_name(_written(rng, table), rng)


def _alike(count: int, rng: random.Random) -> list[Tool]:
    """Tools of one group, or, less often, tools for different verbs and one thing."""
    if rng.random() < 0.6:
        tables = rng.choice(list(_groups().values()))
        return _distinct(
            [_of_table(table, rng) for table in rng.sample(tables, min(count, len(tables)))]
        )
    tools = [composed(rng)]
    noun = tools[0].sort.rpartition(" ")[2]
    while len(tools) < min(count, 4):
        tool = composed(rng, noun, frozenset(tool.sort for tool in tools))
        tools.append(tool)
    return _distinct([_with_free_name(tool, rng) for tool in tools])


def _distinct(tools: list[Tool]) -> list[Tool]:
    """Without those that have the name, or do the same, as an earlier one."""
    kept: list[Tool] = []
    for tool in tools:
        if all(tool.name != other.name and tool.sort != other.sort for other in kept):
            kept.append(tool)
    return kept


def _asking() -> dict[str, list[str]]:
    table: dict[str, list[str]] = load_phrasings("tool_asking")["asking"]
    return table


def as_asked(text: str, rng: random.Random) -> str:
    """Vary what does not change a request: politeness, a reason in front, final mark, case, a slip."""
    asking = _asking()
    bare = text.rstrip("?.! ")
    if bare.partition(" ")[0] in asking["imperatives"] and rng.random() < 0.2:
        bare = rng.choice(asking["polite"]).replace("{do}", bare[0].lower() + bare[1:])
    front = ""
    kind = rng.random()
    if kind < 0.08:
        front = rng.choice(asking["openers"])
    elif kind < 0.12:
        front = rng.choice(OPENERS)
    elif kind < 0.19:
        front = rng.choice(asking["reasons"]) + rng.choice((".", ",", ":", " -", ", so"))
    if front:
        bare = f"{front} {bare[0].lower()}{bare[1:]}" if bare[1:2].islower() else f"{front} {bare}"
    if rng.random() < 0.08:
        bare += rng.choice((" ", ", ")) + rng.choice(asking["closers"])
    if rng.random() < 0.04:
        bare = slip(bare, rng)
    usual = "?" if text.endswith("?") or _QUESTION.match(text.lower()) else "."
    mark = rng.choices((usual, "", "?", "!"), (58, 36, 3, 3))[0]
    case = rng.random()
    if case < 0.28:
        bare = bare.lower()
    elif case < 0.85:
        bare = bare[:1].upper() + bare[1:]
    return bare + mark


def ask_tool(tool: Tool, rng: random.Random, plain: bool = False) -> tuple[str, Arguments]:
    """A question that the tool answers, and the call's arguments, in the order of the schema."""
    template = sample(rng.choice(tool.asks), rng)
    values: dict[int, Value] = {}
    for match in _CHOSEN.finditer(template):
        index, text = int(match.group(1)), match.group(2)
        values[index] = {"true": True, "false": False}.get(text, text)
    text = _CHOSEN.sub("", template)
    # Values are put in after the sentence was varied: a slip in a value would teach to correct it.
    text = text if plain else as_asked(text, rng)
    small = not plain and text == text.lower() and rng.random() < 0.3
    for index in sorted({int(match) for match in _SHOWN.findall(template)} - values.keys()):
        kind = tool.arguments[index].kind
        value = value_of(kind, rng)
        if small and kind in _CAPITAL and isinstance(value, str):
            value = value.lower()
        values[index] = value
        text = text.replace(f"{{{index}}}", said_as(value, kind, rng))
    return text, {
        argument.name: values[index]
        for index, argument in enumerate(tool.arguments)
        if index in values
    }
