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
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("yaie", "solutions", "labs", "grader")
MOST_LINES = 330
# Signatures and docstrings only: the table of contents of the parts, meant to be read as one file.
LONGER = {"yaie/core/contracts.py"}


def sources(*packages: str) -> list[Path]:
    """The Python files of these packages, by path from the root ('yaie/engine', 'solutions')."""
    found = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    assert found, f"no Python file in {packages}"
    return found


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, tree: ast.AST | None = None) -> Iterator[str]:
    """Dotted names of ours that a file imports; `from a import b` gives `a.b`."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree or ast.parse(path.read_text("utf-8"))):
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


def test_the_ground_floor_imports_nothing_of_ours():
    assert outsiders(sources("yaie/core"), "yaie.core") == []


def test_the_ground_floor_loads_no_model_library_and_no_web_framework():
    heavy = ("fastapi", "starlette", "uvicorn", "transformers", "typer")
    found = [(path.name, name) for path in sources("yaie/core") for name in imports(path)]
    assert [pair for pair in found if within(pair[1], *heavy)] == []


@pytest.mark.parametrize("home", ["solutions", "labs"])
def test_a_lab_imports_the_ground_floor_and_itself(home):
    """`explore.py` is the source of the lab's notebook, which looks at it from above."""
    for lab in sorted(path for path in (ROOT / home).iterdir() if (path / "__init__.py").exists()):
        allowed = ("yaie.core", f"{home}.{lab.name}")
        files = [path for path in sources(f"{home}/{lab.name}") if path.name != "explore.py"]
        assert outsiders(files, *allowed) == []


def test_a_notebook_asks_for_its_parts():
    assert outsiders(sorted((ROOT / "solutions").glob("*/explore.py")), "yaie") == []


def test_models_and_engine_do_not_know_the_floors_above():
    allowed = ("yaie.core", "yaie.parts", "yaie.models", "yaie.engine")
    assert outsiders(sources("yaie/models", "yaie/engine"), *allowed) == []


def test_only_parts_knows_that_there_are_two_of_everything():
    lab_name = re.compile(r"(labs|solutions)(\.\w+)*\.?")
    for path in sources("yaie"):
        if path in (ROOT / "yaie/parts.py", ROOT / "yaie/core/progress.py"):
            continue  # the latter's file has a table of that name
        tree = ast.parse(path.read_text("utf-8"))
        strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        named = [text for text in strings if isinstance(text, str) and lab_name.fullmatch(text)]
        assert named == [], f"{path.relative_to(ROOT)} names {named}; ask yaie.parts"
        assert outsiders([path], "yaie") == []


def test_nothing_imports_the_grader():
    assert outsiders(sources("yaie", "solutions", "labs"), "yaie", "solutions", "labs") == []


def test_no_import_runs_in_a_circle():
    """Among modules, with all imports counted but those that only a type checker follows."""
    modules = {module_name(path): path for path in sources("yaie", "solutions", "grader")}
    graph = {}
    for name, path in modules.items():
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = []
        graph[name] = {nearest(target, modules) for target in imports(path, tree)} - {None, name}
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
        for path in sources("yaie", "solutions", "grader")
    }
    long = {name: lines for name, lines in lengths.items() if lines > MOST_LINES}
    assert {name: lines for name, lines in long.items() if name not in LONGER} == {}


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
