"""Which package serves each part: the learner's or the reference. The only switch there is.

A lab's package is imported by name from `labs` or from `solutions`; nothing else differs.
"""

import re
import traceback
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from yaie.core.errors import ConfigError, PartError

LABS = (
    "sampler",
    "transformer_ops",
    "paged_cache",
    "radix_tree",
    "radix_attention",
    "scheduler",
    "engine",
)
_STUB = re.compile(r"""raise NotImplementedError\(\s*(["'])(?P<message>.+?)\1""", re.S)


@dataclass(frozen=True, slots=True)
class Part:
    """One lab's package in use. owner: "yours" or "reference". module: its name."""

    lab: str
    owner: str
    package: ModuleType

    @property
    def module(self) -> str:
        return self.package.__name__


class Parts:
    """The package in use for each lab, in the order of the curriculum."""

    def __init__(self, parts: list[Part]) -> None:
        self._parts = {part.lab: part for part in parts}

    def __getitem__(self, lab: str) -> ModuleType:
        return self._parts[lab].package

    def table(self) -> list[Part]:
        """Every part, for the start-up table and `/health`."""
        return list(self._parts.values())


def load_parts(mine: str) -> Parts:
    """Import every part. mine: "auto", "all", "none", or lab names joined by commas.

    "auto" takes a learner's part once its grader has passed on exactly that source; no grader exists
    yet, so today it takes the reference.

    Raises ConfigError for a lab that does not exist and PartError for a forced part that is unfinished
    or cannot be imported.
    """
    forced = _forced_labs(mine)
    return Parts([_load(lab, lab in forced) for lab in LABS])


def _forced_labs(mine: str) -> frozenset[str]:
    if mine in ("auto", "none"):
        return frozenset()
    if mine == "all":
        return frozenset(LABS)
    labs = frozenset(name.strip() for name in mine.split(","))
    if unknown := sorted(labs - set(LABS)):
        raise ConfigError(
            f"mine names the lab {unknown[0]!r}, which does not exist; "
            f"choose from {', '.join(LABS)}, or auto, all, none",
            param="mine",
        )
    return labs


def _load(lab: str, forced: bool) -> Part:
    if not forced:
        return Part(lab, "reference", import_module(f"solutions.{lab}"))
    _refuse_unfinished(lab)
    try:
        return Part(lab, "yours", import_module(f"labs.{lab}"))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise PartError(
            f"your part {lab} cannot be imported: {type(error).__name__}: {error} "
            f"({Path(where.filename).name}, line {where.lineno})"
        ) from error


def _refuse_unfinished(lab: str) -> None:
    """Raise PartError naming the first task of a lab that is still a stub."""
    try:
        spec = find_spec(f"labs.{lab}")
    except ModuleNotFoundError:  # not even the package around it
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise PartError(f"labs/{lab} is missing; `make stubs` writes it")
    for file in sorted(Path(spec.submodule_search_locations[0]).glob("**/*.py")):
        if stub := _STUB.search(file.read_text(encoding="utf-8")):
            raise PartError(f"your part {lab} is unfinished: {stub['message']}")
