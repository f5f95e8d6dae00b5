"""The learner's file of attacks: its functions, and what they may not use.

An attack asks what the contract promises. By source or private names any two files differ, which teaches
nothing, so an attack that reads these is refused by its text. This stops slips, not cheats: a script
that is meant to cheat will find a way, and harms its author alone.
"""

import ast
import hashlib
from dataclasses import dataclass
from pathlib import Path

from yaie.core.errors import ConfigError
from yaie.system.files import reason

PREFIX = "attack_"
IMPORTS = frozenset(
    ("asyncio", "collections", "contextlib", "copy", "dataclasses", "functools", "heapq", "itertools",
     "json", "math", "numpy", "random", "re", "solutions", "statistics", "string", "struct",
     "threading", "torch", "types", "typing", "yaie")
)  # fmt: skip
NOT_OF_YAIE = ("yaie.parts", "yaie.curriculum", "yaie.cli", "yaie.system")
"""They lead to files: to the reference, among others."""
NAMES = frozenset(
    ("breakpoint", "compile", "delattr", "dir", "eval", "exec", "getattr", "globals", "hasattr",
     "input", "locals", "memoryview", "open", "setattr", "vars")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Attack:
    """name: of the function. key: of all that its outcome depends on in the file. refused: a sentence,
    if it does not count as it is."""

    name: str
    key: str
    refused: str = ""


def read_attacks(path: Path, lab: str, shown: str) -> tuple[Attack, ...]:
    """In their order in the file. lab: that they are about. shown: what the file is called.

    Raises ConfigError if it cannot be read, or uses outside of all attacks what none may.
    """
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except SyntaxError as error:
        raise ConfigError(f"{shown}, line {error.lineno}: {error.msg}", param="file") from None
    except OSError as error:
        raise ConfigError(f"{shown} cannot be read: {reason(error)}", param="file") from None
    except ValueError:
        raise ConfigError(f"{shown} is no text", param="file") from None
    attacks = [node for node in tree.body if _is_attack(node)]
    rest = [node for node in tree.body if not _is_attack(node)]
    for node in rest:
        if why := _forbidden(node, lab):
            raise ConfigError(f"{shown}, {why}", param="file")
    shared = "\n".join(map(ast.dump, rest))
    found: dict[str, Attack] = {}
    for node in attacks:
        assert isinstance(node, ast.FunctionDef)
        key = hashlib.sha256(f"{shared}\n{ast.dump(node)}".encode()).hexdigest()[:24]
        why = _forbidden(node, lab)
        if node.name in found:
            why = f"line {node.lineno}: another attack has this name already"
        found[node.name] = Attack(node.name, key, f"It is refused: {why}." if why else "")
    return tuple(found.values())


def _is_attack(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith(PREFIX)


def _forbidden(root: ast.AST, lab: str) -> str:
    """Where it reads what the contract does not promise; "" if nowhere."""
    for node in ast.walk(root):
        if why := _why(node, lab):
            return f"line {getattr(node, 'lineno', '?')}: {why}"
    return ""


def _why(node: ast.AST, lab: str) -> str:
    match node:
        case ast.Import(names=names):
            return next((why for name in names if (why := _import(name.name, lab))), "")
        case ast.ImportFrom(module=module, names=names, level=level):
            if level:
                return "an attack imports nothing from beside it"
            inner = (f"{module}.{name.name}" for name in names)
            return next((why for name in inner if (why := _import(name, lab))), "")
        case ast.Attribute(attr=attr) if attr.startswith("_"):
            return f".{attr} is private, and no contract promises it"
        case ast.Name(id=name) if name in NAMES:
            return f"{name} reaches what no contract promises"
        case ast.Name(id=name) if name.startswith("__"):
            return f"{name} reads the file, not what the part does"
    return ""


def _import(name: str, lab: str) -> str:
    parts = name.split(".")
    if parts[0] not in IMPORTS or any(part.startswith("_") for part in parts):
        return f"an attack does not import {name}; it may import {', '.join(sorted(IMPORTS))}"
    if any(name == one or name.startswith(f"{one}.") for one in NOT_OF_YAIE):
        return f"an attack does not import {name}, which leads to files"
    if name == "solutions" or f"{name}.".startswith(f"solutions.{lab}."):
        return "an attack uses the references of other labs alone"
    return ""
