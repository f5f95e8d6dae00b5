"""Hypothesis as the graders use it: seeded, without files, without deadlines, quick to shrink."""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar, cast

from hypothesis import HealthCheck, Phase, Verbosity, control, reject, seed, settings
from hypothesis.errors import DidNotReproduce
from hypothesis.internal.conjecture import engine
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from grader.kit.expect import expect_equal
from grader.kit.script import current_script, start_script
from grader.kit.session import SESSION

F = TypeVar("F", bound=Callable[..., Any])

FIRST_SHRINK_SECONDS = 3.0
LATER_SHRINK_SECONDS = 0.2


def allow_shrinking(seconds: float) -> None:
    """How long Hypothesis may look for a shorter counterexample. It has no setting for this."""
    engine.MAX_SHRINKING_SECONDS = seconds  # type: ignore[assignment]


allow_shrinking(FIRST_SHRINK_SECONDS)


def _settings(max_examples: int, steps: int = 50) -> settings:
    phases = [Phase.explicit, Phase.generate]
    if SESSION.shrink:
        phases.append(Phase.shrink)
    return settings(
        max_examples=max(1, int(max_examples * SESSION.effort)),
        stateful_step_count=steps,
        database=None,
        deadline=None,
        derandomize=False,
        print_blob=True,  # goes with the error as a note, for `grader/replay.py`
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )


def examples(max_examples: int) -> Callable[[F], F]:
    """Goes above `@given`: this many examples, drawn from the seed of the session."""

    def apply(test: F) -> F:
        inner = test.hypothesis.inner_test  # type: ignore[attr-defined]

        @wraps(inner)
        def with_own_script(*args: Any, **kwargs: Any) -> None:
            start_script(is_example=True)
            try:
                inner(*args, **kwargs)
            except Exception:
                current_script().settle()
                raise

        test.hypothesis.inner_test = with_own_script  # type: ignore[attr-defined]

        @wraps(test)
        def as_the_session_says(*args: Any, **kwargs: Any) -> None:
            # What @settings and @seed set, but when the test runs: the session may have changed since
            # the suite was imported.
            test._hypothesis_internal_use_settings = _settings(max_examples)  # type: ignore[attr-defined]
            test._hypothesis_internal_use_seed = SESSION.seed  # type: ignore[attr-defined]
            test._hypothesis_internal_use_reproduce_failure = SESSION.pinned  # type: ignore[attr-defined]
            _search(lambda: test(*args, **kwargs))

        return cast(F, as_the_session_says)

    return apply


def is_passing_by() -> bool:
    """Whether an example runs that no report will quote: the one that is reported is run once more, last
    of all. What a script tells of it need not be put into words."""
    context = control._current_build_context.value
    return SESSION.is_searching and context is not None and not context.is_final


def run_machine(machine: type["Machine"], part: Any, *, runs: int, steps: int) -> None:
    """Run a state machine on a part: `runs` scripts of at most `steps` calls."""

    def teardown(self: Machine) -> None:
        # After a failure too, and may go on calling: the state that failed is the one before that.
        if sys.exc_info()[0] is not None:
            current_script().settle()
        machine.teardown(self)

    given = {
        "part": part,
        "teardown": teardown,
        "_hypothesis_internal_use_reproduce_failure": SESSION.pinned,
    }
    seeded = seed(SESSION.seed)(type(machine.__name__, (machine,), given))
    _search(lambda: run_state_machine_as_test(seeded, settings=_settings(runs, steps)))


def _search(run: Callable[[], None]) -> None:
    """Look for a counterexample. In a replay: only where there was one, and for that one."""
    SESSION.searches += 1
    if SESSION.only not in (None, SESSION.searches):
        return
    SESSION.is_searching = True
    with suppress(DidNotReproduce):  # it holds now, or the calls go another way
        run()
    SESSION.is_searching = False


class Machine(RuleBasedStateMachine):
    """A state machine whose every run has a script of its own.

    part: the package under test. grades: the tasks whose claims this machine checks.
    """

    part: Any
    grades: frozenset[str] = frozenset()

    def __init__(self) -> None:
        super().__init__()
        start_script(is_example=True)

    def claim(self, task: str, got: Any, expected: Any, what: str, why: str = "") -> None:
        """`expect_equal` for a claim of `task`. A machine that does not grade it gives this run up
        instead: a mistake is reported where it belongs, and the other tasks are graded without it."""
        if got != expected and task not in self.grades:
            reject()
        expect_equal(got, expected, what, why=why)
