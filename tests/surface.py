"""What users and clients see of the engine, a line each: to compare two commits.

    python -m tests.surface > before    # in one checkout
    python -m tests.surface > after     # in the other; then `diff before after`

Flags with their defaults and help, settings, routes and the fields of what they take and answer, the
names and help of `/metrics`, and the text of every refusal: what a `raise` of the engine or of a lab's
package says, with {} for what is only known then.
"""

import ast
import dataclasses
from collections.abc import Iterator
from typing import Any

import typer

from tests.way import ROOT
from yaie.cli.main import app
from yaie.core.config import EngineConfig
from yaie.core.params import SamplingParams
from yaie.server.settings import ServerSettings

SETTINGS = (EngineConfig, ServerSettings, SamplingParams)
CODE = ("yaie", "solutions")


def flags(command: Any, name: str = "yaie") -> Iterator[str]:
    """Of a command and those below it."""
    for parameter in command.params:
        spelled = "/".join([*parameter.opts, *parameter.secondary_opts])
        told = getattr(parameter, "help", None)
        yield f"flag {name} {spelled} = {parameter.default!r}: {told}"
    for below, one in sorted(getattr(command, "commands", {}).items()):
        yield from flags(one, f"{name} {below}")


def settings() -> Iterator[str]:
    for owner in SETTINGS:
        for field in dataclasses.fields(owner):
            yield f"setting {owner.__name__}.{field.name}: {field.type} = {field.default!r}"


def leaves(value: Any, path: str) -> Iterator[str]:
    """A document of JSON, a line for each leaf."""
    if isinstance(value, dict) and value:
        for key, below in sorted(value.items()):
            yield from leaves(below, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for place, below in enumerate(value):
            yield from leaves(below, f"{path}[{place}]")
    else:
        yield f"{path}: {value!r}"


def routes_and_metrics() -> Iterator[str]:
    """What a server says that runs the tutor."""
    from tests.server.conftest import serving
    from yaie import LLMEngine

    with serving(lambda: LLMEngine(model="tutor", mine="none", num_blocks=64)) as server:
        document, metrics = (
            server.http.get("/openapi.json").json(),
            server.http.get("/metrics").text,
        )
    yield from leaves(document, "openapi")
    yield from (f"metric {line}" for line in metrics.splitlines() if line.startswith("# "))


def refusals() -> Iterator[str]:
    """What is raised, as it stands in the code."""
    for path in sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                said = "".join(map(text_of, node.exc.args))
                if said.strip("{} "):
                    yield f"refusal {ast.unparse(node.exc.func)}: {said}"


def text_of(node: ast.expr) -> str:
    """Of a string, with {} for what it is filled with."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    return "{}"


def main() -> None:
    command = typer.main.get_command(app)
    for found in (flags(command), settings(), routes_and_metrics(), refusals()):
        print(*sorted(" ".join(line.split()) for line in found), sep="\n")


if __name__ == "__main__":
    main()
