"""A learner's part of one task in the reference sampler.

Each task of this lab is a few functions with names and parameters that the stub gives. To grade one
task, the reference's sampler runs with the learner's functions of that task, and these run on the
reference's helpers of every other: a mistake shows in its own task alone. A design without those
functions is graded as a whole.
"""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

from grader.suites.triton_sampling.stuck import WatchedJudge
from solutions import triton_sampling as reference
from solutions.triton_sampling import draw, noise, race, rounds, top_k

TASKS: dict[str, dict[str, Any]] = {
    "12.1": {"race_time": noise.race_time},
    "12.2": {
        "absorb": race.absorb,
        "take_lead": race.take_lead,
        "finish_race": race.finish_race,
    },
    "12.3": {"race_above": rounds.race_above, "judge": draw.judge},
    "12.4": {"narrow": top_k.narrow, "least_exponent": rounds.least_exponent},
}
"""The functions of each task that others call."""

NO_TOKEN = 2**31 - 1


def _parameters(function: Any) -> list[str] | None:
    function = getattr(function, "fn", function)
    return list(inspect.signature(function).parameters) if callable(function) else None


def _modules(package: ModuleType) -> list[ModuleType]:
    found = [m for m in vars(package).values() if isinstance(m, ModuleType)]
    return [m for m in found if m.__name__.startswith(package.__name__)]


def theirs_of(part: ModuleType, task: str) -> dict[str, Any] | None:
    """The learner's functions of a task by name; None if the design has others."""
    found = {}
    for name, ours in TASKS[task].items():
        for module in _modules(part):
            if _parameters(vars(module).get(name)) == _parameters(ours):
                found[name] = vars(module)[name]
    return found if len(found) == len(TASKS[task]) else None


@contextmanager
def sampler_of(part: ModuleType, task: str) -> Iterator[Any]:
    """A Sampler in which `task` is the learner's and the rest, where it can be, the reference's."""
    with ExitStack() as stack:

        def plug(package: ModuleType, functions: dict[str, Any]) -> None:
            for module in _modules(package):
                for name, function in functions.items():
                    # Not patch.dict: the interpreter adds names of its own to a module, for good.
                    if _parameters(vars(module).get(name)) == _parameters(function):
                        stack.enter_context(patch.object(module, name, function))

        for other in TASKS:
            if other != task and theirs_of(part, other) is not None:
                plug(part, TASKS[other])
        theirs = theirs_of(part, task) if task in TASKS else None
        if theirs is not None:
            if "judge" in theirs:
                theirs = {**theirs, "judge": WatchedJudge(theirs["judge"], theirs["race_above"])}
            plug(reference, theirs)
        yield (reference if theirs is not None else part).Sampler()
