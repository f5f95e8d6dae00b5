"""What a grading changes in the learner's progress: passes are noted, or withdrawn."""

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from grader.verdict import LabResult, Verdict
from yaie.core.errors import ConfigError
from yaie.curriculum.editions import edition_of, is_older
from yaie.curriculum.manifest import ROOT
from yaie.curriculum.progress import PROGRESS, LabRecord, Progress
from yaie.system.files import reason


def _refuse(sentence: str) -> None:
    raise ConfigError(sentence)


def record(
    result: LabResult, root: Path = ROOT, complain: Callable[[str], None] = _refuse
) -> tuple[str, ...]:
    """Write down what passed; returns the tasks that had passed and now fail.

    complain: is told in a sentence if it cannot be written. The grading itself is still valid.

    A package of an older edition was not graded: what had passed on it stays written down, and is graded
    again once it is carried over. A task that was not asked for, or could not be verified here, keeps
    its pass if the source is the same; if not, the pass is withdrawn without being called a regression.
    """
    if is_older(result.lab, edition_of(root / "labs" / result.lab.key)):
        return ()
    with Progress.changing(root) as progress:
        before = progress.records.get(result.lab.key)
        had = set(before.passed) if before else set()
        is_broken = result.problem is not None
        unverified = (Verdict.PASSED, Verdict.NOT_VERIFIED)
        failed = {t.task.id for t in result.tasks if is_broken or t.verdict not in unverified}
        passed, suite = set(result.passed), result.lab.suite
        earlier = set(before.earlier) if before else set()
        if before and before.digest == result.digest:
            if had - failed - passed:
                suite = before.suite
            passed |= had - failed
        else:
            earlier |= had
        points = {task.id: task.points for task in result.lab.tasks}
        progress.records[result.lab.key] = LabRecord(
            digest=result.digest,
            passed=tuple(sorted(passed)),
            points=sum(points.get(task, 0) for task in passed),
            graded_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            suite=suite,
            earlier=tuple(sorted(earlier - failed - passed)),
        )
        try:
            progress.save()
        except OSError as error:
            complain(f"Progress could not be kept: cannot write {PROGRESS} ({reason(error)}).")
    return tuple(sorted(had & failed))
