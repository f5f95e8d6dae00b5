"""Which package serves each part: the learner's or the reference. The only switch there is.

A lab's package is imported by name from `labs` or from `solutions`, here and nowhere else in the engine.
Some code asks whose a part is (`is_yours`): faster code stands in for the reference alone, and a failure
in a learner's part is reported as one.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from yaie.core.errors import ConfigError, PartError
from yaie.curriculum.blame import line_in, summarize
from yaie.curriculum.editions import edition_of, how_to_upgrade, serves, tasks_of
from yaie.curriculum.manifest import Lab, load_curriculum
from yaie.curriculum.progress import Progress, part_digest, source_files

LABS = load_curriculum().keys
PLAIN_LABS = tuple(lab.key for lab in load_curriculum().labs if not lab.is_kernel)
YOURS, REFERENCE = "yours", "reference"
_STUB = re.compile(
    r"""(?:raise NotImplementedError|\bNOT_IMPLEMENTED)\(\s*(["'])(?P<message>.+?)\1""", re.S
)
"""As `grader.stubs` writes it, in Python and in CUDA C++."""
_TASK = re.compile(r"\btask (\d+\.\d+)\b")


@dataclass(frozen=True, slots=True)
class Part:
    """One lab's package in use. owner: "yours" or "reference". module: the package's name.
    reason: why this one, for the table."""

    lab: str
    owner: str
    module: str
    reason: str

    @property
    def is_yours(self) -> bool:
        return self.owner == YOURS

    @property
    def package(self) -> ModuleType:
        """The package, imported when it is first asked for: not every command needs every part."""
        return import_module(self.module)

    @property
    def folder(self) -> Path:
        """Where its source lies."""
        return Path(str(self.package.__file__)).parent


class Parts:
    """The package in use for each lab, in the order of the curriculum."""

    def __init__(self, parts: list[Part]) -> None:
        self._parts = {part.lab: part for part in parts}

    def __getitem__(self, lab: str) -> ModuleType:
        return self._parts[lab].package

    @property
    def labs(self) -> tuple[str, ...]:
        """Which labs there are parts of."""
        return tuple(self._parts)

    def is_yours(self, lab: str) -> bool:
        """Whether the learner's package serves this lab."""
        return self._parts[lab].is_yours

    def table(self) -> list[Part]:
        """Every part, for the start-up table and `/health`."""
        return list(self._parts.values())


Choice = Callable[[str], tuple[str, str]]
"""(owner, reason) of a lab."""


def load_parts(mine: str, progress: Progress | None = None, *, labs: Sequence[str] = LABS) -> Parts:
    """Choose every part, and import the learner's.

    mine: "auto", "all", "none", or lab names joined by commas. "auto" takes a learner's part once every
    task of its lab has passed on exactly the source that would be imported. If tasks were added to the
    lab since then, and nothing else has changed, the part goes on to serve. progress: of the checkout
    that `labs` lies in, if not given. labs: those that are wanted (an engine runs on one backend's).

    Raises ConfigError for a lab that does not exist and PartError for a learner's part that is
    unfinished or cannot be imported: what was chosen is never replaced in silence.
    """
    choose = _choice(mine, progress)
    return Parts([_load(lab, *choose(lab)) for lab in labs])


def load_part(lab: str, mine: str) -> Part:
    """Choose one part as `load_parts` would, without looking at the others."""
    return _load(lab, *_choice(mine, None)(lab))


def is_reference(package: object) -> bool:
    """Whether a part's package is the reference, and not a learner's."""
    return getattr(package, "__name__", "").startswith("solutions.")


def forget_part(lab: str) -> None:
    """Have the next load read a learner's part from its files again, for a notebook that goes on."""
    package = f"labs.{lab}"
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]


def open_tasks(lab: str) -> list[str]:
    """Ids of the tasks that a learner's part leaves as stubs, in order."""
    folder = find_mine(lab)
    files = source_files(folder) if folder else []
    found = [
        stub["message"]
        for file in files
        for stub in _STUB.finditer(file.read_text("utf-8", "replace"))
    ]
    return sorted({task[1] for message in found if (task := _TASK.search(message))})


def _choice(mine: str, progress: Progress | None) -> Choice:
    if mine == "auto":
        return lambda lab: by_progress(load_curriculum()[lab], progress)
    if mine == "none":
        return lambda lab: (REFERENCE, "chosen by --mine none")
    if mine == "all":
        return lambda lab: (YOURS, "forced by --mine all")
    named = named_labs(mine)
    return lambda lab: (YOURS, "forced by --mine") if lab in named else (REFERENCE, "not in --mine")


def whose(lab: str, mine: str) -> tuple[str, str]:
    """Owner and reason of a lab's part, without importing it."""
    return _choice(mine, None)(lab)


def idle_labs(parts: Sequence[Part]) -> dict[str, str]:
    """The labs that the learner has completed and that these parts leave out, with what an engine must
    be given to run on them."""
    used = {part.lab for part in parts}
    others = (lab for lab in load_curriculum().labs if lab.key not in used)
    return {lab.key: _use_of(lab) for lab in others if by_progress(lab)[0] == YOURS}


def _use_of(lab: Lab) -> str:
    if lab.key == "tensor_parallel":
        return "--tensor-parallel 2"
    if lab.key == "quantization":
        return "a quantized model"
    if lab.key == "state_cache":
        return "a hybrid model"
    if lab.is_kernel:
        return "--backend triton" if "triton-interpreter" in lab.verify else "--backend cuda"
    return "--backend torch"


def named_labs(mine: str) -> frozenset[str]:
    """The labs that `mine` names one by one. Raises ConfigError for one that does not exist."""
    if mine in ("auto", "all", "none"):
        return frozenset()
    labs = frozenset(name.strip() for name in mine.split(","))
    if unknown := sorted(labs - set(LABS)):
        raise ConfigError(
            f"mine names the lab {unknown[0]!r}, which does not exist; "
            f"choose from {', '.join(LABS)}, or auto, all, none",
            param="mine",
        )
    return labs


def by_progress(lab: Lab, progress: Progress | None = None) -> tuple[str, str]:
    """Whose part of a lab `auto` takes, and why."""
    folder = find_mine(lab.key)
    if folder is None:
        return REFERENCE, "not in labs/"
    edition = edition_of(folder)
    if not serves(lab, edition):
        return REFERENCE, f"of an older edition: yaie lab upgrade {lab.key}"
    progress = progress or Progress.load(folder.parent.parent)
    tasks, passed = tasks_of(lab, edition), progress.passed_tasks(lab, folder)
    if len(passed) == len(tasks):
        if len(tasks) < len(lab.tasks):
            return YOURS, f"all tasks of edition {edition} passed: yaie lab upgrade {lab.key}"
        is_outdated = progress.is_outdated(lab)
        return YOURS, "passed by an older suite: grade again" if is_outdated else "all tasks passed"
    if lab.key not in progress.records:
        return REFERENCE, "not graded yet"
    if progress.records[lab.key].digest != part_digest(folder):
        return REFERENCE, "changed since it was graded"
    return REFERENCE, f"{len(passed)} of {len(tasks)} tasks passed"


def find_mine(lab: str) -> Path | None:
    """The folder that `labs.<lab>` would be imported from."""
    try:
        spec = find_spec(f"labs.{lab}")
    except ModuleNotFoundError:  # not even the package around it
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def _load(lab: str, owner: str, reason: str) -> Part:
    if owner == REFERENCE:
        return Part(lab, owner, f"solutions.{lab}", reason)
    folder = find_mine(lab)
    if folder is None:
        raise PartError(f"labs/{lab} is missing; `make stubs` writes it")
    if not serves(load_curriculum()[lab], edition := edition_of(folder)):
        raise PartError(how_to_upgrade(load_curriculum()[lab], edition))
    _refuse_unfinished(lab, folder)
    part = Part(lab, owner, f"labs.{lab}", reason)
    try:
        import_module(part.module)
    except (Exception, SystemExit) as error:
        where = line_in(folder, error) or "no line of its own"
        raise PartError(
            f"your part {lab} cannot be imported: {summarize(error)} ({where}). "
            "Repair it, or run the reference with --mine none."
        ) from error
    return part


def _refuse_unfinished(lab: str, folder: Path) -> None:
    """Raise PartError naming the first task of a lab that is still a stub."""
    for file in source_files(folder):
        if stub := _STUB.search(file.read_text("utf-8", "replace")):
            raise PartError(f"your part {lab} is unfinished: {stub['message']}")
