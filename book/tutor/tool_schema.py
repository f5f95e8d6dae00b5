"""A tool as a request offers it, and how offers and calls are written."""

import json
from dataclasses import dataclass
from typing import Any

from book.tutor.tool_values import Value, type_of

Arguments = dict[str, Value]


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
    sort: str
    """Tools of one sort do the same: no two of them are offered together."""
    group: str = ""
    """Tools of one group are often offered together."""
    gives: tuple[str, ...] = ()
    """What a result holds, each as "key=kind"; without any, results are made up."""

    def line(self) -> str:
        """As the chat template lists it: `name(argument:type,optional?:type): what it does`."""
        listed = ",".join(
            f"{argument.name}{'?' if argument.optional else ''}:{type_of(argument.kind)}"
            for argument in self.arguments
        )
        return f"{self.name}({listed})" + (f": {self.about}" if self.about else "")


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
