"""The mutants of modules of the engine: all of them, or a sample, and those that are argued."""

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.selfcheck.killing import read_survivors
from grader.selfcheck.mutants import Site, sites_of_python

SURVIVORS = Path(__file__).with_name("survivors.toml")


@dataclass(frozen=True, slots=True)
class EngineMutant:
    """file: from the root. is_at_import: its line runs when the module is imported."""

    file: str
    site: Site
    is_at_import: bool

    @property
    def line(self) -> int:
        """Counted from 1."""
        return self.site.number + 1

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Names it as `Mutant.key` does: as long as its line stays what it is, wherever it moves."""
        return self.file, self.site.function, self.site.line, self.site.change

    @property
    def source(self) -> str:
        return self.site.source()


def modules(root: Path, chosen: Sequence[str]) -> list[str]:
    """The modules among and below these files and folders. Raises FileNotFoundError."""
    found: set[Path] = set()
    for name in chosen:
        place = root / name
        if not place.exists():
            raise FileNotFoundError(
                f"there is no {name}: name a module of yaie, or a folder of them"
            )
        found |= {place} if place.is_file() else set(place.rglob("*.py"))
    return sorted(path.relative_to(root).as_posix() for path in found)


def mutants_of(root: Path, file: str) -> Iterator[EngineMutant]:
    """Every mutant of a module, but for what only a type checker or `python -m` reads."""
    text = (root / file).read_text("utf-8")
    tree = ast.parse(text)
    numbers = set(range(len(text.splitlines()))) - _not_run(tree)
    inside = _in_functions(tree)
    for site in sites_of_python(text, numbers):
        yield EngineMutant(file, site, site.number not in inside)


def population(root: Path, files: Sequence[str], sample: int, seed: int) -> list[EngineMutant]:
    """The mutants of these modules in their order; with a sample, so many of them."""
    every = [mutant for file in files for mutant in mutants_of(root, file)]
    if not sample or sample >= len(every):
        return every
    chosen = sorted(random.Random(seed).sample(range(len(every)), sample))
    return [every[index] for index in chosen]


def argued(path: Path = SURVIVORS) -> dict[tuple[str, str, str, str], str]:
    """The mutants that may live, each with the reason."""
    return {key: reason for key, reason in read_survivors(path).items() if reason}


def _not_run(tree: ast.Module) -> set[int]:
    """Lines, from 0, of `if TYPE_CHECKING` and `if __name__ == "__main__"`."""
    blocks = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and ("TYPE_CHECKING" in (test := ast.unparse(node.test)) or "__main__" in test)
    )
    return {line for node in blocks for line in range(node.lineno - 1, node.end_lineno or 0)}


def _in_functions(tree: ast.Module) -> set[int]:
    """Lines, from 0, of the bodies of functions: their heads run when they are defined."""
    functions = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {
        line
        for node in functions
        for line in range(node.body[0].lineno - 1, node.end_lineno or node.lineno)
    }
