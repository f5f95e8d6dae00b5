"""A part may do what it likes in one test: its task gets a verdict that says so, others theirs."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

from grader.runner import Limits, grade_labs
from grader.submission import Submission
from grader.verdict import Verdict
from tests.grader.hostile import (
    IMPATIENT,
    LATER_TASK,
    RADIX_TREE,
    TASK,
    grade_quickly,
    part_with,
    verdicts,
    why,
)
from tests.marks import nightly_but
from yaie.curriculum.manifest import ROOT

TOP = "import torch"  # not in the test, whose time it would take
FAILED, PASSED = Verdict.FAILED, Verdict.PASSED
ONLY_THIS_TASK = {TASK: FAILED, LATER_TASK: PASSED}
ALL_WELL = {TASK: PASSED, LATER_TASK: PASSED}
STILL_RUNNING = "It was still running after 2 seconds."

# deed -> what the report says, the line that it names.
IN_PROCESS = {
    "sys.exit": ("import sys\nsys.exit(3)", "It ended the program (sys.exit).", "sys.exit(3)"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt", "raise KeyboardInterrupt"),
    "a BaseException": (
        "class Odd(BaseException): pass\nraise Odd('so')", "Odd: so", "raise Odd('so')",
    ),
    "recursion": ("def f(): f()\nf()", "It called itself without end", "def f(): f()"),
    "one big tensor": (
        "kept = torch.zeros(2**40)", "It ran out of memory.", "torch.zeros",
    ),
    "many objects": (
        "kept = []\nwhile True:\n    kept.append(bytearray(2**22))", "memory", "kept.append",
    ),
    "an unreadable error": (
        "class Sly(Exception):\n    def __str__(self): raise ValueError\nraise Sly",
        "Sly: (its message cannot be read)", "raise Sly",
    ),
}  # fmt: skip

DEADLY = {
    "os._exit": ("import os\nos._exit(0)", "It ended the whole process (exit status 0).", ""),
    "segfault": (
        "import ctypes\nctypes.string_at(0)",
        "It crashed the interpreter (SIGSEGV).", "ctypes.string_at(0)",
    ),
    "abort": ("import os\nos.abort()", "It crashed the interpreter (SIGABRT).", "os.abort()"),
    "kill": (
        "import os\nos.kill(os.getpid(), 9)",
        "Someone killed it (SIGKILL), most likely the system for want of memory.", "",
    ),
    "closed descriptors": (
        "import os\nos.closerange(3, 256)", "It closed file descriptors that are not its own.", "",
    ),
    "many processes": (
        "import os, time\nfor _ in range(40):\n    if os.fork() == 0: time.sleep(60)\ntime.sleep(60)",
        "It started more than 32 processes.", "time.sleep(60)",
    ),
}  # fmt: skip

ENDLESS = {
    "a loop": ("while True: pass", "while True: pass"),
    "a sleep": ("import time\ntime.sleep(1e6)", "time.sleep"),
    "a loop in C": ("sum(range(10**14))", "sum(range(10**14))"),
    "a loop in C that another thread is asked about": (  # as when the main one has a signal to take
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\nsum(range(10**14))",
        "sum(range(10**14))",
    ),
    "a loop that swallows the alarm": (
        "while True:\n    try:\n        while True: pass\n    except:\n        pass",
        "while True: pass",
    ),
}

HARMLESS = {
    "deletes its temporary folder": (
        "import shutil, tempfile\nshutil.rmtree(tempfile.gettempdir())\n"
        "import os\nassert not os.path.exists(tempfile.gettempdir())"
    ),
    "changes folder and environment": "import os\nos.chdir('/')\nos.environ.clear()",
    "closes stdout": "import sys\nsys.stdout.close()\nsys.stderr = None",
    "closes the descriptors of stdout": "import os\nos.close(1)\nos.close(2)",
    "changes torch's settings": (
        "torch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)"
    ),
    "silences the garbage collector and lowers the stack": (
        "import gc, sys\ngc.disable()\nsys.setrecursionlimit(400)"
    ),
    "prints 200 megabytes": "for _ in range(200): print('x' * 10**6)",
    "leaves a thread behind": (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=False).start()"
    ),
    "forks, and the copy goes on": "import os\nos.fork()",
}


NIGHTLY = {
    "KeyboardInterrupt", "recursion", "abort", "kill", "a loop", "a sleep",
    "changes folder and environment", "leaves a thread behind", "many objects",
    "changes torch's settings", "one big tensor", "a loop that swallows the alarm", "os._exit",
    "prints 200 megabytes", "closes stdout", "silences the garbage collector and lowers the stack",
    "sys.exit", "a loop in C", "deletes its temporary folder", "closed descriptors",
    "an unreadable error", "closes the descriptors of stdout",
}  # fmt: skip
"""Each has a harder relation above, which CI tries as well."""


def cases(deeds: dict[str, Any]) -> list[Any]:
    return nightly_but(deeds.keys() - NIGHTLY, deeds)


@pytest.mark.parametrize("deed", cases(IN_PROCESS))
def test_what_a_part_raises_is_the_verdict_of_its_task_alone(tmp_path, deed):
    code, problem, line = IN_PROCESS[deed]
    result = grade_quickly(part_with(tmp_path, code, top=TOP if "torch" in code else ""))
    assert verdicts(result) == ONLY_THIS_TASK
    assert problem in why(result).problem
    assert why(result).where.startswith("radix_tree/radix_tree.py, line ")
    assert line in why(result).where


@pytest.mark.slow
@pytest.mark.parametrize("deed", cases(DEADLY))
def test_the_death_of_a_worker_is_the_verdict_of_its_task_alone(tmp_path, deed):
    code, problem, line = DEADLY[deed]
    result = grade_quickly(part_with(tmp_path, code))
    assert verdicts(result) == ONLY_THIS_TASK
    assert why(result).problem == problem
    assert why(result).claim
    assert line in why(result).where


@pytest.mark.slow
@pytest.mark.parametrize("deed", cases(ENDLESS))
def test_what_never_ends_is_ended_and_the_line_is_named(tmp_path, deed):
    code, line = ENDLESS[deed]
    result = grade_quickly(part_with(tmp_path, code), IMPATIENT)
    assert verdicts(result) == ONLY_THIS_TASK
    assert why(result).problem == STILL_RUNNING
    sleeps = "It computed for 0."
    told = ("A loop that never ends", "It got the processor for")  # the latter on a busy machine
    assert why(result).why.startswith((sleeps, *told) if "sleep" in deed else told)
    assert line in why(result).where


@pytest.mark.parametrize("deed", cases(HARMLESS))
def test_what_harms_nobody_changes_no_verdict(tmp_path, deed):
    code = HARMLESS[deed]
    result = grade_quickly(part_with(tmp_path, code, top=TOP if "torch" in code else ""))
    assert verdicts(result) == ALL_WELL


@pytest.mark.nightly
def test_only_the_end_of_what_is_printed_is_kept(tmp_path):
    deed = "for number in range(100_000): print('line', number)\nraise ValueError('here')"
    result = grade_quickly(part_with(tmp_path, deed))
    assert len(result.output) <= 16_384
    assert result.output.rstrip().endswith("line 99999")
    assert why(result).problem == "ValueError: here"


@pytest.mark.nightly
@pytest.mark.slow
def test_what_was_printed_before_a_crash_is_kept(tmp_path):
    deed = "print('before the crash')\nimport ctypes\nctypes.string_at(0)"
    assert "before the crash" in grade_quickly(part_with(tmp_path, deed)).output


@pytest.mark.slow
def test_no_child_outlives_the_grading(tmp_path):
    deed = (
        "import subprocess, sys\n"
        "wait = [sys.executable, '-c', 'import time; time.sleep(60)', 'yaie-straggler']\n"
        "subprocess.Popen(wait)\n"
        "subprocess.Popen(wait, start_new_session=True)"
    )
    assert verdicts(grade_quickly(part_with(tmp_path, deed))) == ALL_WELL
    left = [
        p.pid
        for p in psutil.process_iter(["cmdline"])
        if "yaie-straggler" in (p.info["cmdline"] or [])
    ]
    assert left == []


@pytest.mark.nightly
def test_the_memory_of_children_counts(tmp_path):
    deed = (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import time; x = bytearray(2**30); time.sleep(60)'])"
    )
    limits = Limits(seconds=60, test_seconds=6, memory_gib=0.75)
    result = grade_quickly(part_with(tmp_path, deed), limits, tasks=(TASK,))
    assert verdicts(result) == {TASK: FAILED}
    assert why(result).problem == "It took more than 0.75 GiB of memory."


@pytest.mark.nightly
@pytest.mark.quiet
@pytest.mark.slow
def test_when_the_labs_time_is_over_what_was_not_reached_is_not_called_wrong(tmp_path):
    limits = Limits(seconds=10, test_seconds=60)
    result = grade_quickly(part_with(tmp_path, "while True: pass"), limits)
    assert verdicts(result) == {TASK: FAILED, LATER_TASK: Verdict.NOT_VERIFIED}
    assert "still running" in why(result).problem
    assert why(result, LATER_TASK).problem == "Not reached: the lab's 10 seconds were used up."
    assert result.seconds < 15


@pytest.mark.nightly
@pytest.mark.slow
def test_other_labs_keep_their_verdicts_beside_a_hostile_one(tmp_path):
    hostile = part_with(tmp_path / "a", "import os\nos.killpg(0, 9)")
    friendly = part_with(tmp_path / "b")
    nowhere = Submission(RADIX_TREE, tmp_path / "nowhere")
    results = grade_labs([hostile, nowhere, friendly], tasks=[TASK, LATER_TASK], jobs=2)
    assert [verdicts(results[0]), verdicts(results[2])] == [ONLY_THIS_TASK, ALL_WELL]
    assert results[1].problem is not None


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_grading_leaves_no_worker_behind(tmp_path, number, status):
    part_with(tmp_path, "import time\ntime.sleep(1e6)")
    command = [sys.executable, "-m", "grader", "grade", "radix_tree", "--task", TASK]
    grading = subprocess.Popen(
        [*command, "--impl", str(tmp_path)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    worker = _worker_of(grading.pid)
    grading.send_signal(number)
    assert grading.wait(20) == status
    assert _is_gone(worker)


@pytest.mark.slow
def test_a_worker_does_not_outlive_a_runner_that_was_killed(tmp_path):
    part_with(tmp_path, "while True: pass")
    program = "from grader.cli import main; main()"
    command = [sys.executable, "-c", program, "grade", "radix_tree", "--task", TASK]
    grading = subprocess.Popen([*command, "--impl", str(tmp_path)], cwd=ROOT)
    worker = _worker_of(grading.pid)
    os.kill(grading.pid, signal.SIGKILL)
    grading.wait()
    assert _is_gone(worker)


def _worker_of(pid: int) -> psutil.Process:
    for _ in range(200):
        if children := psutil.Process(pid).children():
            time.sleep(2.0)  # it has begun
            return children[0]
        time.sleep(0.1)
    raise AssertionError("no worker was started")


def _is_gone(process: psutil.Process) -> bool:
    _, alive = psutil.wait_procs([process], timeout=10)
    return not alive
