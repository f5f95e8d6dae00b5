"""Every command that the book or the README names exists, also where it is not run.

Looked at are `make`, `yaie` and `python -m`, in console blocks and in `code` within a text: targets and
variables, commands and options, modules; labs where a lab is meant.
"""

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from book.tools.blocks import SOURCE, parse
from book.tools.fences import FENCE
from book.tools.mdbook import ROOT
from grader.cli import app as grader_app
from yaie.cli.main import app as yaie_app
from yaie.curriculum.manifest import load_curriculum

INLINE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")
APPS = {"yaie": yaie_app, "grader": grader_app}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(SOURCE.rglob("*.md"))]


def commands(text: str, name: str) -> Iterator[str]:
    """Simple commands of a page: those of its console blocks, and those in `code`."""
    blocks = [command.text for block in parse(text, name) for command in block.commands]
    inline = [" ".join(found[2].split()) for found in INLINE.finditer(FENCE.sub("", text))]
    for line in blocks + [
        code for code in inline if code.startswith(("make ", "yaie ", "python "))
    ]:
        line = re.sub(r"\\\n|\s#\s.*$", " ", line, flags=re.M)
        yield from re.split(r"\s*(?:\|\|?|&&|;|\s&)\s+", re.sub(r"\s+", " ", line).strip())


def fault(command: str) -> str | None:
    """What a command names that does not exist. Words in capitals or brackets are for the reader."""
    words = WORD.findall(command)
    while words and re.fullmatch(r"\w+=.*|time|nice|sudo|env", words[0]):
        words.pop(0)
    if not words:
        return None
    program, arguments = words[0].removeprefix(".venv/bin/"), words[1:]
    if program == "make":
        return make_fault(arguments)
    if program == "yaie":
        return app_fault("yaie", arguments)
    if re.fullmatch(r"python3?", program) and arguments[:1] == ["-m"] and len(arguments) > 1:
        return module_fault(arguments[1], arguments[2:])
    return None


def make_fault(arguments: list[str]) -> str | None:
    targets, variables = makefile()
    for word in arguments:
        variable, equals, value = word.partition("=")
        if equals and variable not in variables:
            return f"make has no variable {variable}"
        if equals and variable == "LAB" and is_literal(value):
            labs = {lab.key for lab in load_curriculum().labs}
            if value not in labs:
                return f"there is no lab {value}"
        if not equals and is_literal(word) and word not in targets:
            return f"make has no target {word}"
    return None


@cache
def makefile() -> tuple[set[str], set[str]]:
    """Its targets and the variables that may be set."""
    text = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"^([a-z][a-z-]*):", text, re.M)
    return set(targets), {*re.findall(r"^([A-Z_]+) *\?=", text, re.M), "CI"}


def app_fault(name: str, arguments: list[str]) -> str | None:
    """Walk down the commands of a typer application; then look at the options."""
    command: Any = typer.main.get_command(APPS[name])
    path = name
    while hasattr(command, "commands") and arguments and is_literal(arguments[0]):
        below = command.commands.get(arguments[0])
        if below is None:
            return f"{path} has no command {arguments[0]}"
        command, path, arguments = below, f"{path} {arguments[0]}", arguments[1:]
    known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
    known |= {"--help", "-h"}
    for word in arguments:
        option = re.match(r"--?[a-z][\w-]*", word)
        if option and option[0] not in known:
            return f"{path} has no option {option[0]}"
    return None


def module_fault(module: str, arguments: list[str]) -> str | None:
    if module in APPS:
        return app_fault(module, arguments)
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    return None if found else f"there is no module {module}"


def is_literal(word: str) -> bool:
    """A name as it is meant to be typed, not a placeholder, an option, or three dots."""
    return re.fullmatch(r"[a-z][\w-]*", word) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_its_commands_exist(page: Path):
    text = page.read_text("utf-8")
    faults = [
        f"`{command}`: {found}"
        for command in commands(text, page.name)
        if (found := fault(command)) is not None
    ]
    assert faults == []


def test_the_readme_names_commands_of_each_kind():
    text = (ROOT / "README.md").read_text("utf-8")
    programs = {command.split()[0] for command in commands(text, "README") if command}
    assert {"make", "yaie", "python"} <= programs


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("make grad LAB=sampler", "make has no target grad"),
        ("make grade LABS=sampler", "make has no variable LABS"),
        ("make grade LAB=samplers", "there is no lab samplers"),
        (".venv/bin/yaie talk", "yaie has no command talk"),
        ("OMP_NUM_THREADS=1 yaie bench speed", "yaie bench has no command speed"),
        ("yaie serve --prot 8000", "yaie serve has no option --prot"),
        ("python -m grader mark sampler", "grader has no command mark"),
        ("python -m book.tools.bild", "there is no module book.tools.bild"),
        ("python -m boook.tools", "there is no module boook.tools"),
    ],
)
def test_what_does_not_exist_is_named(command, said):
    assert fault(command) == said


@pytest.mark.parametrize(
    "command",
    [
        "make",
        "make grade LAB=radix_tree TASK=4.2 ARGS=--again",
        "make serve MODEL=...",
        "make hint LAB=LAB",
        "yaie serve [MODEL]",
        "yaie generate --temperature 0 'What is --this?'",
        "yaie bench ladder --help",
        "python -m grader grade --submissions DIR --csv FILE",
        "python -m book.tools.build",
        "curl --no-such-option",
    ],
)
def test_what_exists_passes(command):
    assert fault(command) is None


def test_commands_are_found_in_blocks_pipes_and_texts():
    text = (
        "Say `make docs` or\n`yaie\nchat`, not `other`.\n\n"
        "```console,unrun=long\n$ printf 'x\\n' | yaie chat   # talk\nout\n"
        "$ cd a && \\\n    make b\n```\n"
        "```text\n$ make gone\n```\n"
    )
    assert list(commands(text, "x")) == [
        "printf 'x\\n'", "yaie chat", "cd a", "make b", "make docs", "yaie chat",
    ]  # fmt: skip
