"""A learner's path through a lab, walked by machine.

The reference is typed in task by task, in the manifest's order, with the stub everywhere else. After
each task that task passes, none before it is lost, and the report sends the learner to the next one.
A task that cannot pass without a later one stands in the wrong place, or is two.
"""

from dataclasses import dataclass
from pathlib import Path

from grader.places import open_places
from grader.report.next import next_step
from grader.selfcheck.farm import Farm, Job, Outcome
from grader.selfcheck.killing import ELSEWHERE_EFFORT, Advance
from grader.selfcheck.labcheck import LabCheck
from grader.selfcheck.variants import write_stub
from grader.submission import Submission
from grader.verdict import LabResult, TaskResult, Verdict
from yaie.curriculum.manifest import Lab

WIDTH = 100


@dataclass(frozen=True, slots=True)
class Step:
    """A lab with its first tasks done. after: the task that was done last, "" for the bare stub."""

    lab: Lab
    done: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"path/{self.done[-1] if self.done else 'stub'}"

    @property
    def job_stages(self) -> list[tuple[list[str], float]]:
        """The last task in full, then the others on few examples: those before it have passed."""
        last = list(self.done[-1:])
        others = [task.id for task in self.lab.tasks if task.id not in last]
        return [(last, 1.0), (others, ELSEWHERE_EFFORT)] if last else [(others, ELSEWHERE_EFFORT)]


def steps(lab: Lab) -> list[Step]:
    """From the stub to the whole lab."""
    ids = tuple(task.id for task in lab.tasks)
    return [Step(lab, ids[:count]) for count in range(len(ids) + 1)]


def walk(check: LabCheck, farm: Farm, scratch: Path, advance: Advance) -> None:
    """Grade every step; what goes wrong is a problem of the lab."""
    lab = check.lab
    found: dict[str, Outcome] = {}
    folders = {step.name: write_stub(lab, scratch / step.name, step.done) for step in steps(lab)}
    jobs = [Job(step.name, str(folders[step.name]), step.job_stages) for step in steps(lab)]
    for outcome in farm.run(jobs):
        advance(1)
        found[outcome.id] = outcome
    for step in steps(lab):
        if problem := judge(step, found[step.name], folders[step.name]):
            check.problems.append(f"{step.name}: {problem}")
        elif step.done:
            check.walked += 1


def judge(step: Step, outcome: Outcome, folder: Path) -> str:
    """What is wrong after a step; "" if nothing is."""
    if outcome.problem:
        return outcome.problem
    lab = step.lab
    tasks = tuple(
        TaskResult(task, tuple(test for test in outcome.tests if test.task == task.id))
        for task in lab.tasks
    )
    for task in tasks:
        if task.task.id in step.done and task.verdict is not Verdict.PASSED:
            return f"task {task.task.id} is written and does not pass: {_reason(task)}"
    result = LabResult(
        lab, tasks, digest="known", open_places=open_places(Submission(lab, folder, folder))
    )
    said = next_step(result, WIDTH)[0].plain
    following = next((task for task in lab.tasks if task.id not in step.done), None)
    if following is None:
        return (
            "" if said.startswith("Complete.") else f"the lab is done, and the report says {said!r}"
        )
    expected = f"Next: task {following.id}, {following.title}."
    return "" if said == expected else f"the report says {said!r}, not {expected!r}"


def _reason(task: TaskResult) -> str:
    if task.waits_for:
        return f"it waits for task {task.waits_for}"
    worst = task.worst
    why = worst.explanation if worst else None
    told = why.problem if why else task.verdict.value
    return f"{worst.name.split('::')[-1]}: {told}" if worst else told
