"""The file that runs a report's failure again: .yaie/scratch/<lab>_<task>.py, written by `make grade`.

The calls in a report are an account: they leave out what a test does around them. The file makes the
test itself fail again (`replay.py`), on the part as it is then.
"""

import sys
import textwrap
from dataclasses import replace
from pathlib import Path

from grader.report.lines import clean
from grader.runner import has_suite
from grader.submission import Submission
from grader.verdict import Again, Explanation, LabResult, TestResult
from yaie.curriculum.manifest import ROOT
from yaie.curriculum.progress import CUDA_SOURCES, source_files
from yaie.system.files import reason, write_whole

FOLDER = Path(".yaie/scratch")
MARGIN = 96

TEMPLATE = '''\
"""Lab {number}, task {task}. `make grade` wrote this file, and writes it anew when the task fails again.

{account}

    {command}          status 0 once this holds, 1 while it does not
    {command} --pdb    {stops}

With --pdb no time runs out, so a breakpoint() of your own serves as well.
"""

import sys

sys.path.insert(0, {root!r})

from grader.replay import Failure, run_file
from grader.verdict import Again

FAILURE = Failure(
    lab={lab!r},
    test={test!r},
    folder={folder!r},
    seed={seed!r},
    again={again!r},
    digest={digest!r},
)

if __name__ == "__main__":
    run_file(FAILURE)
'''


def with_replay(
    result: LabResult, submission: Submission, seed: int, root: Path = ROOT
) -> LabResult:
    """The result with `replay` filled in: the file that runs its first failure again is written, and
    what a report says of it."""
    failed = result.first_failed
    if failed is None or result.problem is not None or not has_suite(result.lab.key):
        return result
    file = root / FOLDER / f"{result.lab.key}_{failed.task.replace('.', '_')}.py"
    python, shown = _below(Path(sys.executable), root), _below(file, root)
    command = f"{python} {shown}"
    stops = stops_where(submission, failed.again)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, _program(result, failed, submission, seed, command, stops))
    except OSError as error:
        sentence = f"{shown} could not be written ({reason(error)}): no file runs this again."
        return replace(result, no_replay=sentence)
    lines = (f"{command}", f"  --pdb {stops}")
    return replace(result, replay=lines)


def stops_where(submission: Submission, again: Again | None) -> str:
    """What the debugger does with a failure."""
    if any(file.suffix in CUDA_SOURCES for file in source_files(submission.folder)):
        return "stops in Python at the failure; kernels run compiled"
    if again is not None and again.call:
        return "stops where the last call enters your code"
    return "stops where it failed"


def _program(
    result: LabResult,
    failed: TestResult,
    submission: Submission,
    seed: int,
    command: str,
    stops: str,
) -> str:
    return TEMPLATE.format(
        number=result.lab.number,
        task=failed.task,
        account=_account(failed.explanation or Explanation("", "It failed.")),
        command=command,
        stops=stops,
        root=str(ROOT),
        lab=result.lab.key,
        test=failed.name,
        folder=str(_below(submission.folder, ROOT)),
        seed=seed,
        again=failed.again,
        digest=result.digest,
    )


def _account(why: Explanation) -> str:
    """What failed, as a docstring may hold it."""
    told = [*textwrap.wrap(clean(why.claim), MARGIN), *textwrap.wrap(clean(why.problem), MARGIN)]
    text = "\n".join(told)
    return text.replace("\\", "\\\\").replace('"""', "'''").rstrip('"')


def _below(path: Path, root: Path) -> Path:
    """As it is called from the root, if it lies there."""
    return path.relative_to(root) if path.is_relative_to(root) else path
