"""A failure in words: what was checked, what happened, the calls before it, and where.

Runs where the suite runs; what a test has raised is still at hand, with the part it came through.
"""

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis.errors import Flaky

from grader.kit.expect import Fault, Mismatch
from grader.kit.script import current_script
from grader.kit.session import SESSION
from grader.kit.triton_frames import frames_of
from grader.kit.triton_frames import told as told_state
from grader.machine import TRITON
from grader.places import innermost, spans_in_python
from grader.submission import STUB, Submission, locate, locate_in_grader, place, told
from grader.triton_words import advice
from grader.verdict import Again, Explanation

PINNED = re.compile(r"@reproduce_failure\('([^']*)', b'([^']*)'\)")
"""What Hypothesis notes at an error that an example has raised."""


class TookTooLong(BaseException):
    """A test's time is over. Not an Exception, which more handlers would catch.

    why: what may be the matter.
    """

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


def how_to_fail_again(error: BaseException) -> Again:
    """Where the test is that has just failed; `explain` has settled the script."""
    script = current_script()
    again = Again(script=script.number, call=script.num_calls)
    if not SESSION.is_searching:
        return again
    notes = map(str, getattr(error, "__notes__", ()))
    found = next(filter(None, map(PINNED.search, notes)), None)
    version, example = found.groups() if found else ("", "")
    return replace(again, search=SESSION.searches, version=version, example=example)


def unwrapped(error: BaseException) -> BaseException:
    """Triton's interpreter wraps what a kernel raises, once for each call inside it."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


def _plain(error: BaseException, submission: Submission) -> BaseException:
    """A fault of a CUDA kernel as a failure with file and line; any other error as it is."""
    if type(error).__name__ != "KernelFault":
        return error
    from grader.kit.cuda_watch import KernelFault, as_fault

    if not isinstance(error, KernelFault):
        return error
    where = ""
    if error.file is not None and submission.owns(str(error.file)):
        where = place(submission, str(error.file), error.line, error.kernel)
    return as_fault(error, where)


def stub_in(error: BaseException | None) -> "re.Match[str] | None":
    """What a stub has raised, taken apart; None for anything else."""
    inner = None if error is None else unwrapped(error)
    return STUB.match(str(inner)) if isinstance(inner, NotImplementedError) else None


def explain(
    error: BaseException, claim: str, submission: Submission, seconds: float
) -> Explanation:
    """A failure in words: what was checked, what happened, the calls before it, and where."""
    error = _plain(unwrapped(error), submission)
    script = current_script()
    about = f"{error.problem} {error.expected} {error.got}" if isinstance(error, Mismatch) else ""
    common: dict[str, Any] = {
        "claim": claim,
        "script": script.quoted(about),
        "before": script.before,
        "after": script.after,
        "where": locate(error, submission),
    }
    match error:
        case Mismatch():
            common["where"] = _where_of(error, common["where"], submission)
            common["claim"] = error.claim or claim
            if isinstance(error, Fault) and error.state:
                common["before"] = common["after"] = error.state
            return Explanation(
                problem=error.problem,
                expected=error.expected,
                got=error.got,
                why=error.why,
                **common,
            )
        case TookTooLong():
            problem = f"It was still running after {seconds:g} seconds."
            if state := told_state(frames_of(error)):
                common["before"] = common["after"] = state
            return Explanation(problem=problem, why=error.why, **common)
        case MemoryError():
            return Explanation(problem="It ran out of memory.", **common)
        case RuntimeError() if "allocate memory" in told(error):
            return Explanation(problem="It ran out of memory.", **common)
        case RecursionError():
            return Explanation(problem="It called itself without end (RecursionError).", **common)
        case SystemExit():
            return Explanation(problem="It ended the program (sys.exit).", **common)
        case Flaky():
            problem = "The same calls, made again, had another outcome."
            why = "Something random, or state that is shared between objects, decides."
            return Explanation(problem=problem, why=why, **common)
    if common["where"]:
        why = advice(told(error)) if TRITON in submission.lab.verify else ""
        return Explanation(problem=told(error), why=why, **common)
    if isinstance(error, AttributeError) and (missing := missing_name(error, submission)):
        why = "yaie/core/contracts lists what a part must have."
        return Explanation(problem=missing, why=why, **common)
    if isinstance(error, ModuleNotFoundError) and _is_missing(error.name or "labs"):
        problem = f"The grader needs the package {error.name}, which is not installed here."
        why = "This is no mistake of your part. `make setup` installs what is missing."
        return Explanation(problem=problem, why=why, **common)
    # No line of the part is to blame: the grader stumbled over what a call gave, or left behind.
    common["where"] = locate_in_grader(error)
    problem = f"What it returned, or the state it left, cannot be used: {told(error)}"
    why = (
        "The line is the grader's: it looked there for something that must exist after the calls. "
        "The error is not in that line but in what your part returned or changed before it."
    )
    return Explanation(problem=problem, why=why * bool(common["where"]), **common)


def _is_missing(name: str) -> bool:
    """Whether a module that the grader asks for is no part of ours, and was not hidden by the part."""
    return name.partition(".")[0] not in ("labs", "grader", "solutions", "yaie", *sys.modules)


def _where_of(error: Mismatch, own: str, submission: Submission) -> str:
    """The line of the part that a failed check is about, if it is about a line: a fault in a kernel, or
    an error that the check tells of. A wrong value has no line."""
    if isinstance(error, Fault):
        mine = [frame for frame in error.frames if submission.owns(frame[0])]
        if not (error.line or mine):
            return error.where or own
        return _named(submission, *error.line) if error.line else place(submission, *mine[0])
    cause = error.__cause__ or error.__context__
    said = f"{error.problem} {error.got}"
    if cause is None or type(cause).__name__ not in said:
        return ""
    return locate(unwrapped(cause), submission)


def _named(submission: Submission, file: str, line: int) -> str:
    """A line of the part with the function that it is in, where it is one of Python."""
    try:
        source = Path(file).read_text("utf-8") if file.endswith(".py") else ""
    except (OSError, ValueError):
        source = ""
    return place(submission, file, line, innermost(spans_in_python(source), line))


def missing_name(error: AttributeError, submission: Submission) -> str:
    """What the grader wanted of the part, or of an object of its classes, in vain; "" if it did not."""
    owner = error.obj if isinstance(error.obj, ModuleType | type) else type(error.obj)
    home = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    if not error.name or not f"{home}.".startswith(f"labs.{submission.lab.key}."):
        return ""
    return f"{owner.__name__} has no {error.name}."
