"""Foreign text is never markup: every terminal view prints on `yaie.system.terminal.Terminal`.

The first half reads the source of the house and finds what would bring rich's markup back. The second
prints names that hold `[/x]`, styles, emoji codes and codes for the terminal.
"""

import ast
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

from tests.test_house import ROOT, sources
from yaie.system.terminal import Terminal, printable

HOME = "yaie/system/terminal.py"
HOUSES = ("yaie", "solutions", "grader", "book", "tests/mutants")
MARKUP = {
    "from_markup", "render_markup", "rich.markup", "rich.print", "rich.get_console",
    "rich.progress.track", "rich.panel", "rich.prompt", "rich.pretty", "rich.inspect",
}  # fmt: skip
"""Names of rich that read markup in a string, whatever the console."""
MAY_CONCERN = re.compile(r"\brich\b|Console|markup|emoji|\.status\(|Spinner|TextColumn")


def faults(tree: ast.AST) -> Iterator[str]:
    """What in this source would take a text for markup, as line and reason."""
    for node in ast.walk(tree):
        for name in _imported(node):
            if name in MARKUP or name.rpartition(".")[0] in MARKUP:
                yield f"{node.lineno}: {name} reads markup"
        if isinstance(node, ast.Attribute) and node.attr in MARKUP:
            yield f"{node.lineno}: {node.attr} reads markup"
        if isinstance(node, ast.Call):
            yield from _of_call(node)


def _of_call(call: ast.Call) -> Iterator[str]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    options = {word.arg: getattr(word.value, "value", None) for word in call.keywords}
    if name == "Console":
        yield f"{call.lineno}: a Console takes brackets for markup; use Terminal"
    if name == "TextColumn" and options.get("markup") is not False:
        yield f"{call.lineno}: a TextColumn reads markup without markup=False"
    if name == "SpinnerColumn" or (name in ("status", "Spinner") and _is_text(call.args)):
        yield f"{call.lineno}: a spinner reads markup in a string; hand it a Text"
    if name == "Progress" and "console" in options and not call.args:
        yield f"{call.lineno}: the usual columns of a Progress read markup; name them"
    if options.get("markup") is True or options.get("emoji") is True:
        yield f"{call.lineno}: markup is switched on"


def _is_text(args: list[ast.expr]) -> bool:
    return any(isinstance(each, ast.JoinedStr | ast.Constant | ast.Name) for each in args)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def test_no_module_takes_a_text_for_markup() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sources(*HOUSES)}
    found = {
        f"{path}:{fault}"
        for path, text in texts.items()
        if path != HOME and MAY_CONCERN.search(text)
        for fault in faults(ast.parse(text))
    }
    assert found == set()


@pytest.mark.parametrize(
    "source",
    [
        "Console(highlight=False)",
        "rich.console.Console()",
        "from rich.markup import escape",
        "from rich.progress import track",
        "Text.from_markup(name)",
        "TextColumn('{task.description}')",
        "Progress(console=err)",
        "err.status(f'compiling {name}')",
        "out.print(name, markup=True)",
    ],
)
def test_the_reading_finds_each_of_these(source: str) -> None:
    assert len(list(faults(ast.parse(source)))) == 1


PLAIN_WRITES = {
    "yaie/cli/chat.py": "what a model says goes through `printable`",
    "yaie/cli/generate.py": "answers, through `printable` on a terminal; exact in a pipe",
    "yaie/cli/main.py": "the version",
    "yaie/cli/set_up.py": "runs before rich is installed",
}
"""Where the command line writes without the console, and why that is right."""


def test_the_command_line_writes_on_its_console_alone() -> None:
    found = set()
    for path in sources("yaie/cli"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in (
                "print",
                "typer.echo",
                "typer.secho",
                "sys.stdout.write",
                "sys.stderr.write",
            ):
                found.add(str(path.relative_to(ROOT)))
    assert found == set(PLAIN_WRITES)


HOSTILE = [
    "[/x]",
    "[red]red[/]",
    "[/]",
    ":boom:",
    "[link=https://example.org]x[/link]",
    "a[0]/b[1]",
]


def printed(*what: object, width: int = 80, **options: object) -> str:
    file = io.StringIO()
    Terminal(file=file, width=width, force_terminal=True, color_system=None).print(*what, **options)
    return file.getvalue()


@pytest.mark.parametrize("text", HOSTILE)
def test_brackets_and_colons_are_printed_as_they_are(text: str) -> None:
    assert printed(text) == f"{text}\n"
    assert printed(text, style="dim", soft_wrap=True) == f"{text}\n"
    table = Table(text, title=text, box=None, pad_edge=False)
    table.add_row(text)
    assert [line.strip() for line in printed(table).splitlines()] == [text] * 3


CODES = {
    "\x1b[2J": r"\x1b[2J",
    "\x1b]0;title\x07": r"\x1b]0;title\x07",
    "\x9b31m": r"\x9b31m",
    "\b": r"\x08",
    "\r": r"\r",
    "\x00": r"\x00",
    "\x7f": r"\x7f",
}


@pytest.mark.parametrize(("code", "told"), CODES.items())
def test_no_code_for_the_terminal_is_printed(code: str, told: str) -> None:
    assert printed(f"a{code}b") == f"a{told}b\n"
    assert printed(f"a{code}b", soft_wrap=True) == f"a{told}b\n"
    table = Table("name", box=None, pad_edge=False, show_header=False)
    table.add_row(f"a{code}b")
    assert printed(table).strip() == f"a{told}b"
    for text in (Text(f"a{code}b"), Text.assemble(("a", "bold"), f"{code}b")):
        shown = printed(text)
        assert printable(shown) == shown


def test_a_bar_shows_the_name_as_it_is() -> None:
    file = io.StringIO()
    console = Terminal(file=file, width=80, force_terminal=True, color_system=None)
    with Progress(TextColumn("{task.description}", markup=False), console=console) as bar:
        bar.add_task("Loading [/x] \x1b]0;title\x07 :boom:", total=1)
    assert "Loading [/x]" in file.getvalue()
    assert ":boom:" in file.getvalue()
    assert "\x1b]0" not in file.getvalue()


def test_the_houses_are_there() -> None:
    assert all(Path(ROOT / house).is_dir() for house in HOUSES)
    assert (ROOT / HOME).is_file()
