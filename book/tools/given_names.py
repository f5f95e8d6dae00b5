"""Which calls and fields the reference of each lab uses: python -m book.tools.given_names

Reads the solution regions and asks jedi where each name in them comes from. What the learner writes (a
class with a task in it included), Python's own functions and types, and attributes that a stub shows in
its `__init__` are left out. The rest goes to `book/given/names.json`, from which `{{#given LAB}}` makes
a table in the lab's chapter.
`--check` writes nothing, and fails if a reference has changed since; it does not need jedi.
"""

import argparse
import ast
import builtins
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from book.tools.given_cuda import cuda_names
from book.tools.mdbook import ROOT
from grader.regions import Region, find_regions
from yaie.curriculum.manifest import Lab, load_curriculum
from yaie.curriculum.progress import CUDA_SOURCES, source_files
from yaie.system.files import write_whole
from yaie.system.streams import sound_streams

RECORD = ROOT / "book/given/names.json"
# Where jedi finds a name, and what people call it.
RENAMED = {
    "torch._C._VariableFunctions.": "torch.",
    "torch._C.TensorBase.": "Tensor.",
    "torch._tensor.Tensor.": "Tensor.",
    "torch._C._nn.": "torch.nn.functional.",
    "torch._C.": "torch.",
    "triton.language.core.tensor.": "tl.tensor.",
    "triton.language.core.": "tl.",
    "triton.language.standard.": "tl.",
    "triton.language.math.": "tl.",
    "asyncio.tasks.": "asyncio.",
    "numpy._core.multiarray.": "numpy.",
    "numpy._core.numeric.": "numpy.",
    "numpy._core.fromnumeric.": "numpy.",
    "numpy.random._generator.": "numpy.random.",
    "numpy._ArrayOrScalarCommon.": "numpy.ndarray.",
    "_heapq.": "heapq.",
    "_bisect.": "bisect.",
}
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DROPPED = ("builtins.", "typing.", "types.", "dataclasses.", "enum.", "torch.return_types.")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m book.tools.given_names", description=__doc__)
    parser.add_argument("labs", nargs="*", help="labs to read; those that changed if left out")
    parser.add_argument("--check", action="store_true", help="write nothing, say what is stale")
    options = parser.parse_args(arguments)
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.is_file() else {}
    stale = [
        lab
        for lab in load_curriculum().labs
        if record.get(lab.key, {}).get("sources") != digest(lab)
    ]
    if options.check:
        for lab in stale:
            print(f"book/given/names.json: solutions/{lab.key} has changed since: make given")
        return 1 if stale else 0
    chosen = [lab for lab in load_curriculum().labs if lab.key in options.labs] or stale
    for lab in chosen:
        print(f"{lab.key} ...", file=sys.stderr, flush=True)
        record[lab.key] = {"sources": digest(lab), "names": sorted(set(names_of(lab)))}
    ordered = {lab.key: record[lab.key] for lab in load_curriculum().labs if lab.key in record}
    write_whole(RECORD, json.dumps(ordered, indent=1) + "\n")
    return 0


def reference(lab: Lab) -> Path:
    return ROOT / "solutions" / lab.key


def digest(lab: Lab) -> str:
    """Of every source of a lab's reference."""
    whole = hashlib.sha256()
    for path in source_files(reference(lab)):
        whole.update(f"{path.name}\n{path.read_text('utf-8')}\n".encode())
    return whole.hexdigest()[:16]


def names_of(lab: Lab) -> Iterator[str]:
    """Full names of what a lab's regions use and do not define."""
    for path in source_files(reference(lab)):
        text = path.read_text("utf-8")
        regions = find_regions(text.splitlines(), path)
        if regions and path.suffix in CUDA_SOURCES:
            yield from cuda_names(text, regions, reference(lab))
        elif regions:
            yield from _python_names(text, path, regions)


def _python_names(text: str, path: Path, regions: list[Region]) -> Iterator[str]:
    import jedi

    script = jedi.Script(text, path=path, project=jedi.Project(ROOT))
    seen = set()
    tree = ast.parse(text)
    in_kernel, has_tensors = _kernel_lines(tree), _imports_torch(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        line = node.end_lineno or 0
        if not any(region.begin < line <= region.end for region in regions):
            continue
        column = (node.end_col_offset or 1) - 1
        found = script.goto(line, column, follow_imports=True)
        if found:
            name = _canonical(found[0], path)
        elif line in in_kernel or has_tensors:
            name = _guess(node, line in in_kernel)
        else:
            name = ""
        if name and name not in seen:
            seen.add(name)
            yield name


def _kernel_lines(tree: ast.Module) -> set[int]:
    """Lines of functions that Triton compiles."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            "jit" in ast.unparse(decorator) for decorator in node.decorator_list
        ):
            found |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def _imports_torch(tree: ast.Module) -> bool:
    modules = [
        alias.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    return any(module.partition(".")[0] == "torch" for module in modules)


def _guess(node: ast.Attribute | ast.Name, in_kernel: bool) -> str:
    """What jedi does not know is a method of a value that came out of compiled code: of a tensor."""
    import torch

    if not isinstance(node, ast.Attribute) or node.attr.startswith("_"):
        return ""
    if in_kernel:
        return f"tl.tensor.{node.attr}"
    if any(hasattr(kind, node.attr) for kind in (list, dict, str, int, set)):
        return ""
    return f"Tensor.{node.attr}" if hasattr(torch.Tensor, node.attr) else ""


def _canonical(found: Any, path: Path) -> str:
    """The name that people use, or "" for what needs no explanation."""
    name: str = found.full_name or ""
    if not name or found.type in ("param", "module") or name.startswith(DROPPED):
        return ""
    if name == "torch._tensor.Tensor":  # the type, in an annotation
        return ""
    if hasattr(builtins, name.rpartition(".")[2]) and not name.startswith(
        ("torch", "triton", "yaie")
    ):
        return ""
    for begin, better in RENAMED.items():
        if name.startswith(begin):
            return better + name.removeprefix(begin)
    if name.startswith("solutions."):
        return "" if _is_the_learners(found, path) else name
    return _without_method(found)


def _without_method(found: Any) -> str:
    """The full name; of an attribute, without the method that assigns it: Response.raw_headers."""
    name: str = found.full_name
    method = found.parent() if found.type in ("statement", "instance") else None
    if method is None or method.type != "function" or method.parent().type != "class":
        return name
    return f"{method.parent().full_name}.{name.rpartition('.')[2]}"


def _is_the_learners(found: Any, path: Path) -> bool:
    """Written in a region, or shown by the stub: a local, an attribute, a body to be filled in."""
    home = Path(found.module_path)
    own_private = home == path and found.type not in ("function", "class", "property")
    if own_private or ".__init__." in found.full_name:
        return True
    text = home.read_text("utf-8")
    regions = find_regions(text.splitlines(), home)
    if any(region.begin < found.line <= region.end for region in regions):
        return True
    tree = ast.parse(text)
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS) and node.lineno <= found.line <= (node.end_lineno or 0)
    ]
    if any(_holds(node, regions) for node in [*around, *_class_at(tree, found.line)]):
        return True
    is_local = found.type == "statement" and bool(around)
    return is_local or any(_is_filled_in(node, tree, home.parent) for node in around)


def _holds(node: ast.AST, regions: list[Region]) -> bool:
    """Whether a part of it is the learner's."""
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return any(first <= region.begin <= last for region in regions)


def _class_at(tree: ast.Module, line: int) -> list[ast.ClassDef]:
    """The class whose name is on this line, if there is one."""
    return [
        node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.lineno == line
    ]


def _is_filled_in(method: FunctionNode, tree: ast.Module, folder: Path) -> bool:
    """Whether it only says what a method is, and the learner writes one in a class of the same lab."""
    if not ast.unparse(method.body[-1]).startswith("raise NotImplementedError"):
        return False
    owners = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and method in node.body
    }
    for path in sorted(folder.glob("*.py")):
        text = path.read_text("utf-8")
        regions = find_regions(text.splitlines(), path)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and owners & {ast.unparse(it) for it in node.bases}:
                written = [it for it in node.body if isinstance(it, FUNCTIONS)]
                if any(it.name == method.name and _holds(it, regions) for it in written):
                    return True
    return False


if __name__ == "__main__":
    sys.exit(sound_streams(main)())
