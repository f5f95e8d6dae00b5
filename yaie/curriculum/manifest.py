"""The labs and their tasks, read from `labs/curriculum.toml`.

The one reader of the manifest, for the engine (which parts exist), the grader, the command line and the
book. It lives on the ground floor because all of them need it.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from yaie.core.compat import tomllib
from yaie.core.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent.parent
MANIFEST = Path("labs/curriculum.toml")
VERIFIERS = ("cpu", "triton-interpreter", "cuda-on-cpu", "gpu")
FULL_POINTS = 100


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to write, passed or not as a whole. id: "4.2" is the second task of lab 4. since: the
    edition of its lab that added it."""

    id: str
    title: str
    points: int
    since: int = 1


@dataclass(frozen=True, slots=True)
class Lab:
    """A package of `labs` and `solutions`; see the comment at the top of the manifest.

    edition: of its contract; see `yaie.curriculum.editions`. suite: the version of its grader; a pass of
    an older one is to be graded again.
    """

    number: int
    key: str
    title: str
    part: str
    chapter: str
    minutes: int
    after: tuple[str, ...]
    verify: tuple[str, ...]
    plugged_in: str
    tasks: tuple[Task, ...]
    edition: int = 1
    suite: int = 1

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)

    @property
    def subject(self) -> str:
        """Its chapter's title without what follows the colon: "Speculative decoding"."""
        return self.chapter.partition(":")[0]

    @property
    def is_kernel(self) -> bool:
        """Whether it is written in Triton or CUDA C++, for the backends of these names alone."""
        return "cpu" not in self.verify

    def task(self, name: str) -> Task:
        """A task by its id ("4.2") or its number in the lab ("2"). Raises ConfigError."""
        for task in self.tasks:
            if name in (task.id, task.id.partition(".")[2]):
                return task
        known = ", ".join(task.id for task in self.tasks)
        raise ConfigError(f"lab {self.key} has no task {name!r}; it has {known}", param="task")


class Curriculum:
    """All labs, in the order of the path through them."""

    def __init__(self, labs: list[Lab]) -> None:
        self.labs = tuple(labs)
        self._by_key = {lab.key: lab for lab in labs}

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._by_key)

    def __getitem__(self, key: str) -> Lab:
        """Raises ConfigError for a lab that does not exist."""
        if key not in self._by_key:
            raise ConfigError(
                f"there is no lab {key!r}; choose from {', '.join(self.keys)}", param="lab"
            )
        return self._by_key[key]


@cache
def load_curriculum(root: Path = ROOT) -> Curriculum:
    """The curriculum of a checkout. Raises ConfigError for a manifest that does not make sense."""
    table = tomllib.loads((root / MANIFEST).read_text("utf-8"))
    labs = [_lab(entry) for entry in table["lab"]]
    seen: set[str] = set()
    last = 0
    for lab in labs:
        # A number may be left out: labs come out in another order than the path has them.
        _require(lab.number > last, lab.key, f"is number {lab.number}, but stands behind {last}")
        last = lab.number
        _require(set(lab.after) <= seen, lab.key, f"builds on {lab.after}, which come later")
        seen.add(lab.key)
    return Curriculum(labs)


def _lab(entry: dict[str, Any]) -> Lab:
    key = str(entry.get("key"))
    fields = set(Lab.__dataclass_fields__)
    missing, unknown = (
        sorted(fields - {"edition", "suite"} - entry.keys()),
        sorted(entry.keys() - fields),
    )
    _require(not missing, key, f"lacks {', '.join(missing)}")
    _require(not unknown, key, f"has unknown fields {', '.join(unknown)}")
    tasks = tuple(Task(**task) for task in entry["tasks"])
    values = {**entry, "after": tuple(entry["after"]), "verify": tuple(entry["verify"])}
    lab = Lab(**{**values, "tasks": tasks})
    ids = [f"{lab.number}.{index}" for index in range(1, len(tasks) + 1)]
    _require([task.id for task in tasks] == ids, key, f"must number its tasks {', '.join(ids)}")
    _require(lab.points == FULL_POINTS, key, f"has {lab.points} points, not {FULL_POINTS}")
    for name in ("edition", "suite"):
        number = getattr(lab, name)
        _require(isinstance(number, int) and number > 0, key, f"{name}: {number}")
    sinces = {task.since for task in tasks}
    _require(sinces <= set(range(1, lab.edition + 1)), key, f"adds tasks in editions {sinces}")
    _require(bool(lab.verify) and set(lab.verify) <= set(VERIFIERS), key, f"verify: {lab.verify}")
    return lab


def _require(condition: bool, key: str, message: str) -> None:
    if not condition:
        raise ConfigError(f"{MANIFEST}: lab {key} {message}")
