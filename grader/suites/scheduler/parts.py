"""Grades each task of the lab by itself, although the methods of six live in one class.

A test first runs on a mix: the learner's methods of its task, the reference's of the others. So a
mistake shows where it was made, and a task can be graded before the next one is written. If the test
fails on the mix and passes on the learner's own part, the learner has divided the work in another way,
which is as good. A class without the stub's methods is only graded as it is.
"""

import inspect
import traceback
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any, NoReturn

import solutions.scheduler as reference
from grader.kit import Mismatch, start_script, task
from grader.kit.script import Script, current_script, resume_script
from grader.kit.session import SESSION
from grader.kit.toy_checks import FILED, FILED_AGAIN
from grader.submission import told
from grader.suites.scheduler.asked import ASKED, SAME_PLAN, STRANGER

METHODS = {
    "6.4": ("schedule", "_continue_running", "_put"),
    "6.5": ("_try_admit",),
    "6.6": ("_admit_waiting",),
    "6.7": ("_make_room", "_preempt_last"),
    "6.8": ("advance", "update"),
    "6.9": ("finish",),
}
CALLS = {
    **dict.fromkeys(("6.4", "6.5", "6.6", "6.7"), ("schedule",)),
    "6.8": ("advance", "update"),
    "6.9": ("finish",),
}
"""What the learner's methods of a task are called from: the engine's calls."""
QUEUE_METHODS = ("rank", "push", "push_front", "peek", "remove", "__len__")

Test = Callable[[Any], None]


def graded(id: str) -> Callable[[Test], Test]:
    """Like `task`; the test is handed a package whose other tasks are the reference's."""

    def mark(test: Test) -> Test:
        @wraps(test)
        def on_the_mix_or_the_whole(part: Any) -> None:
            mixed = _mix(part, id)
            if mixed is None:
                test(_whole(part))
                return
            try:
                test(mixed)
            except Exception as error:  # noqa: BLE001, a part may raise anything
                script = current_script()
                script.settle()
                asked, kept = ASKED.told(*CALLS.get(id, ())), _kept(id)
                if isinstance(error, Mismatch) and error.why in (FILED, FILED_AGAIN):
                    error.why = f"{_when_filed()}{error.why}"
                if not _passes(test, _whole(part)):
                    resume_script(script)
                    _tell_asked(script, asked)
                    _raise_told(error, kept)

        return task(id)(on_the_mix_or_the_whole)

    return mark


def _kept(id: str) -> str:
    """What a call of this engine has been found to keep of an earlier one, in a sentence."""
    if id not in CALLS:
        return ""
    if ASKED.stranger:
        call, name = ASKED.stranger
        return STRANGER.format(call=call, name=name)
    return SAME_PLAN if ASKED.is_old_plan else ""


def _when_filed() -> str:
    """Whether `update` called `commit`, and which other call did."""
    made = ASKED.made("cache.commit")
    if made is None or "update" in made:
        return ""
    others = [f"`{name}`" for name in made]
    instead = f": {' and '.join(others)} did, before this result was there" if others else ""
    return f"`update` did not call `commit`{instead}. "


def _tell_asked(script: Script, asked: str) -> None:
    """Below the state after the last call; a state that did not change is shown once all the same."""
    if asked:
        script.before = script.before if script.before != script.after else ""
        script.after = f"{script.after}\n{asked}".strip()


def _raise_told(error: Exception, kept: str) -> NoReturn:
    """The error, in words if only lines of the reference led to it: those mean nothing to a learner.
    kept: explains it, whatever a check says of it."""
    if kept and not isinstance(error, NotImplementedError):
        if not isinstance(error, Mismatch):
            raise Mismatch(told(error), why=kept) from error
        error.why = kept
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [str(frame.f_globals.get("__name__")) for frame in frames]
    theirs = [
        frame.f_code.co_name
        for frame, name in zip(frames, names, strict=True)
        if name.startswith("solutions.scheduler.")
    ]
    is_own = any(name.startswith("labs.") for name in names)
    if isinstance(error, Mismatch | NotImplementedError) or is_own or not theirs:
        raise error
    raise Mismatch(
        f"`{theirs[-1]}` of the reference, which stands in for your own here, raises "
        f"{type(error).__name__}: {error}",
        why="The methods of other tasks are the reference's in this test. It fails on what a method of "
        "this task has left behind in an earlier call: compare the state with the docstrings.",
    ) from error


def _passes(test: Test, part: Any) -> bool:
    """Whether a test passes, without the search for a short counterexample."""
    shrink, SESSION.shrink = SESSION.shrink, False
    start_script()
    try:
        test(part)
    except Exception:  # noqa: BLE001, a part may raise anything
        return False
    finally:
        SESSION.shrink = shrink
    return True


def _whole(part: Any) -> Any:
    """The part as it is. Its scheduler is given the reference's queues, and is graded on those."""
    kind = part.Scheduler
    return SimpleNamespace(
        __file__=part.__file__,
        Scheduler=kind,
        StaticScheduler=_static_on(part, kind),
        POLICIES=part.POLICIES,
    )


def _mix(part: Any, id: str) -> Any:
    """The part with the reference's code for every task but one; None if they do not fit together."""
    mixed = _whole(part)
    if id == "6.3":
        kind = _mixed_longest_prefix(part.POLICIES)
        mixed.POLICIES = {**part.POLICIES, "lpm": kind}
    else:
        kind = mixed.Scheduler = _mixed_scheduler(part.Scheduler, id)
        mixed.StaticScheduler = _static_on(part, kind)
    return mixed if kind is not None else None


def _mixed_scheduler(own: type, id: str) -> type | None:
    if not _has_stub_methods(own):
        return None
    others = [name for task_id, names in METHODS.items() if task_id != id for name in names]

    def __init__(self: Any, cache: Any, policy: Any, **settings: Any) -> None:
        own.__init__(self, cache, policy, **settings)  # type: ignore[misc]
        ASKED.listen(self, cache, policy)

    lent = {name: vars(reference.Scheduler)[name] for name in others}
    return type("Scheduler", (own,), {**lent, "__init__": __init__})


def _static_on(part: Any, kind: type | None) -> type | None:
    """The part's StaticScheduler on that scheduler; None if it does not build on the stub's methods."""
    own = getattr(part, "StaticScheduler", None)
    if own is None or kind is None or not _has_stub_methods(part.Scheduler):
        return None
    return own if kind is part.Scheduler else type("StaticScheduler", (own, kind), {})


def _has_stub_methods(own: type) -> bool:
    names = [name for names in METHODS.values() for name in names]
    return all(_same_shape(own, reference.Scheduler, name) for name in names)


def _mixed_longest_prefix(policies: Any) -> type | None:
    """Its `super()` leads to the reference's queue instead of the learner's."""
    own, base = policies["lpm"], policies["fcfs"]
    fcfs: Any = reference.POLICIES["fcfs"]
    if not (isinstance(own, type) and isinstance(base, type) and issubclass(own, base)):
        return None
    if not all(_same_shape(base, fcfs, name) for name in QUEUE_METHODS):
        return None
    between = type("FCFS", (base,), {name: vars(fcfs)[name] for name in QUEUE_METHODS})
    return type("LongestPrefixMatch", (own, between), {})


def _same_shape(own: type, other: type, name: str) -> bool:
    """Whether a method has the stub's name and parameters."""
    mine, wanted = getattr(own, name, None), getattr(other, name)
    return callable(mine) and list(inspect.signature(mine).parameters) == list(
        inspect.signature(wanted).parameters
    )
