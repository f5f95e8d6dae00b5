"""The house stands as the architecture chapter draws it: who may import whom, and what text may hold.

Imports are read from the source, not run, wherever they stand: in a function or under TYPE_CHECKING
they are knowledge of another floor as well.
"""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("yaie", "solutions", "labs", "grader", "book")
MOST_LINES = 500

FLOORS = (
    ("yaie.core",),
    ("yaie.system",),
    ("yaie.cuda", "yaie.curriculum"),
    # On these stand solutions and labs, which import yaie.core, yaie.system and yaie.cuda alone.
    ("yaie.parts",),
    ("yaie.models", "yaie.backends"),
    ("yaie.worker",),
    ("yaie.engine",),
    ("yaie.server",),
    ("yaie.cluster",),
    ("yaie.bench", "yaie.cli", "yaie.demos", "yaie.explore"),
)
"""The rooms of the engine, from the ground up. Each imports from the floors below its own."""
DOORS = {
    "yaie.bench": ("yaie.cli.console", "yaie.explore"),
    "yaie.cli": ("yaie.bench", "yaie.demos"),
    "yaie.demos": ("yaie.explore",),
}
"""Between neighbours: `yaie bench` runs the bench, which prints as the command line does, and measures
what the notebooks look at. `yaie lab demo` runs the demos, which use the notebooks' tools."""
REFERENCES = "yaie.bench.evidence"
"""Measures `solutions` as they are, their naive siblings and tiles too: no switch, and no contract."""


def sources(*packages: str) -> list[Path]:
    """The Python files of these packages, by path from the root ('yaie/engine', 'solutions')."""
    found = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    assert found, f"no Python file in {packages}"
    return found


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path) -> list[str]:
    """Dotted names of ours that a file imports; `from a import b` gives `a.b`. Read once."""
    return list(imported(path, ast.parse(path.read_text("utf-8"))))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements, wherever they stand. Expressions, which are most of a tree, hold none."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield node
            yield from statements(node)


def imported(path: Path, tree: ast.AST) -> Iterator[str]:
    """The same, of a part of the file."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *([node.module] if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def outsiders(paths: list[Path], *allowed: str) -> list[str]:
    """'file imports name' for each import of ours that is not within `allowed`."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in paths
        for name in imports(path)
        if within(name, *OURS) and not within(name, *allowed)
    ]


def references(path: Path) -> tuple[str, ...]:
    """What a file may import by name besides: the references, if it measures those."""
    return ("solutions",) if within(module_name(path), REFERENCES) else ()


def room_sources(room: str) -> list[Path]:
    path = ROOT / room.replace(".", "/")
    return [path.with_suffix(".py")] if path.with_suffix(".py").exists() else sources(str(path))


def test_every_room_has_its_floor():
    """But for the front door: `yaie/__init__.py`, which names what is upstairs, and `__main__.py`."""
    inside = [path for path in (ROOT / "yaie").iterdir() if any(path.rglob("*.py")) or path.suffix]
    rooms = {f"yaie.{path.stem}" for path in inside if not path.stem.startswith("__")}
    assert rooms == {room for floor in FLOORS for room in floor}


@pytest.mark.parametrize("room", [room for floor in FLOORS for room in floor])
def test_imports_point_down(room):
    height = next(i for i, floor in enumerate(FLOORS) if room in floor)
    below = [other for floor in FLOORS[:height] for other in floor]
    allowed = (room, *below, *DOORS.get(room, ()), "yaie.__version__")
    assert [
        found
        for path in room_sources(room)
        for found in outsiders([path], *allowed, *references(path))
    ] == []


def test_the_ground_floor_loads_no_model_library_and_no_web_framework():
    heavy = ("fastapi", "starlette", "uvicorn", "transformers", "typer")
    found = [(path.name, name) for path in sources("yaie/core") for name in imports(path)]
    assert [pair for pair in found if within(pair[1], *heavy)] == []


def test_a_worker_gets_steps_as_data_and_no_request():
    requests = (
        "yaie.core.request.Request",
        "yaie.core.batch.ScheduledRequest",
        "yaie.core.batch.StepPlan",
    )
    seam = [*sources("yaie/worker"), ROOT / "yaie/core/step.py"]
    found = [(path.name, name) for path in seam for name in imports(path)]
    assert [pair for pair in found if pair[1] in requests] == []


@pytest.mark.parametrize("message", ["step", "output"])
def test_what_crosses_a_thread_or_a_process_holds_no_tensor(message):
    assert not any(within(name, "torch") for name in imports(ROOT / f"yaie/core/{message}.py"))


@pytest.mark.parametrize("home", ["solutions", "labs"])
def test_a_lab_imports_the_ground_floor_and_itself(home):
    """`explore.py` is the source of the lab's notebook, which looks at it from above."""
    for lab in sorted(path for path in (ROOT / home).iterdir() if (path / "__init__.py").exists()):
        allowed = ("yaie.core", "yaie.system", "yaie.cuda", f"{home}.{lab.name}")
        files = [path for path in sources(f"{home}/{lab.name}") if path.name != "explore.py"]
        assert outsiders(files, *allowed) == []


def test_a_notebook_asks_for_its_parts():
    assert outsiders(sorted((ROOT / "solutions").glob("*/explore.py")), "yaie") == []


def test_only_parts_knows_that_there_are_two_of_everything():
    lab_name = re.compile(r"(labs|solutions)(\.\w+)*\.?")
    for path in sources("yaie"):
        if path in (ROOT / "yaie/parts.py", ROOT / "yaie/curriculum/progress.py"):
            continue  # the latter's file has a table of that name
        tree = ast.parse(path.read_text("utf-8"))
        strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        named = [text for text in strings if isinstance(text, str) and lab_name.fullmatch(text)]
        assert named == [], f"{path.relative_to(ROOT)} names {named}; ask yaie.parts"
        assert outsiders([path], "yaie", *references(path)) == []


def test_nothing_imports_the_grader_but_the_book_which_nothing_imports():
    assert outsiders(sources("yaie", "solutions", "labs"), "yaie", "solutions", "labs") == []
    assert outsiders(sources("grader"), "yaie", "solutions", "grader") == []


def test_no_import_runs_in_a_circle():
    """Among modules, with all imports counted but those that only a type checker follows."""
    modules = {module_name(path): path for path in sources("yaie", "solutions", "grader", "book")}
    graph = {}
    for name, path in modules.items():
        tree = ast.parse(path.read_text("utf-8"))
        for node in statements(tree):
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
                node.body = []
        graph[name] = {nearest(target, modules) for target in imported(path, tree)} - {None, name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


def nearest(name: str, modules: dict[str, Path]) -> str | None:
    """The module that an imported name belongs to: itself, or what it is an attribute of."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def test_no_file_is_too_long_to_read():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines())
        for path in sources("yaie", "solutions", "grader", "book", "tests")
    }
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def committed_texts() -> Iterator[tuple[str, str]]:
    """(path, text) of every text file that is, or would be, committed."""
    git = shutil.which("git")
    if not git or not (ROOT / ".git").exists():
        pytest.skip("needs git and a checkout, to know which files belong to the repository")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in (data := path.read_bytes())[:8192]:
            yield name, data.decode("utf-8", errors="replace")


# Each is put together here, so that this file does not hold it.
FORBIDDEN = {
    "another word for radix attention": "radi" + "al",
    "a path of someone's machine": r"/(work|root|home/\w+|Users/\w+)" + "/",
    "the host of a package registry": r"\b(" + r"|".join(
        [r"pypi\." + "org", r"python" + "hosted", r"npm" + r"js\.(org|com)", r"crates\." + "io",
         r"download\.py" + "torch", r"conda\." + "anaconda"]
    ) + ")",
}  # fmt: skip


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_repository_does_not_hold(what):
    pattern = re.compile(FORBIDDEN[what], re.IGNORECASE)
    found = [
        f"{name}:{text.count(chr(10), 0, hit.start()) + 1}: {hit.group()}"
        for name, text in committed_texts()
        for hit in pattern.finditer(text)
    ]
    assert found == []


def test_help_answers_without_importing_torch():
    program = (
        "import sys\n"
        "from yaie.cli.main import main\n"
        "sys.argv = ['yaie', '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "heavy = {'torch', 'transformers', 'fastapi', 'numpy'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert "serve" in run.stdout
