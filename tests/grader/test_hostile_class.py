"""A submission that means harm: others are graded as they were handed in; what it changed is told."""

import csv
import io
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from grader import batch
from grader.account import Account
from grader.batch import (
    CHANGED,
    Student,
    as_text,
    class_as_json,
    find_students,
    grade_students,
    print_class,
    write_csv,
)
from grader.process import WorkerProcess
from grader.snapshot import MOST_BYTES, MOST_FILES, Refused, read_snapshot
from grader.submission import handed_in
from grader.verdict import Verdict, to_json
from grader.worker import Order
from tests.grader.hostile import RADIX_TREE, TASK, grade_quickly, part_with, verdicts
from tests.grader.results import complete, graded
from yaie.curriculum.manifest import ROOT
from yaie.curriculum.progress import part_digest

PASSED = {TASK: Verdict.PASSED}


def grade_one_by_one(submissions):
    return [grade_quickly(submission, tasks=(TASK,)) for submission in submissions]


def class_of(folder: Path):
    return grade_students(find_students(folder, [RADIX_TREE]), grade_one_by_one)


def handed(folder: Path):
    """A part of the radix tree's package, with nothing in it."""
    part = folder / "radix_tree"
    part.mkdir(parents=True)
    (part / "__init__.py").write_text("x = 1\n")
    return part


def test_what_a_submission_does_to_anothers_files_changes_no_grade_and_is_told(tmp_path):
    vandal = (
        "from pathlib import Path\n"
        f"for file in Path({str(tmp_path)!r}, 'zoe').rglob('*.py'): file.write_text('raise SystemExit')"
    )
    part_with(tmp_path / "abe", top=vandal)
    part_with(tmp_path / "zoe")
    rows = {row.student.name: row for row in class_of(tmp_path)}
    assert rows["abe"].points == 15
    changed = rows["zoe"].results["radix_tree"]
    assert verdicts(changed) == PASSED  # it was graded as it had been handed in
    assert changed.invalid == (
        "radix_tree/__init__.py was changed in its folder while the class was graded."
    )
    assert (rows["zoe"].cell(RADIX_TREE), rows["zoe"].points) == (CHANGED, 0)
    out = Console(file=io.StringIO(), width=100)
    print_class(out, list(rows.values()), [RADIX_TREE])
    assert f"\nzoe, radix_tree: {changed.invalid}\n" in out.file.getvalue()
    table = json.loads(class_as_json(list(rows.values()), [RADIX_TREE], seed=0))
    told = [entry["labs"][0]["invalid"] for entry in table["submissions"]]
    assert told == ["", changed.invalid]


LOOKS_AROUND = """
import os
from pathlib import Path
print("home", os.path.isdir(os.environ["HOME"]), os.environ["HOME"] == {home!r})
print("told", sorted(n for n in os.environ if n.startswith("SECRET")), "PATH" in os.environ)
print("here", str(Path(__file__).resolve()).startswith({folder!r}))
with open(__file__, "a") as mine:
    mine.write("# better\\n")
"""


def test_a_submission_runs_as_a_copy_in_a_home_of_its_own_and_may_not_change_it(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    top = LOOKS_AROUND.format(home=os.environ.get("HOME", ""), folder=str(tmp_path))
    part_with(tmp_path / "ann", top=top)
    [row] = class_of(tmp_path)
    result = row.results["radix_tree"]
    assert result.output == "home True False\ntold [] True\nhere False\n"
    assert verdicts(result) == PASSED
    assert result.invalid == "radix_tree.py was changed while it was graded."
    assert (result.points, result.digest) == (0, "")
    assert not (tmp_path / "ann/radix_tree/radix_tree.py").read_text().endswith("# better\n")


HIDES = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for stream in (0, 1, 2):
            os.close(stream)
        os.closerange(3, 256)
        wait = [sys.executable, "-c", "import time; time.sleep(60)", {name!r}]
        os.execve(sys.executable, wait, {{}})
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux alone")
def test_a_process_that_has_left_group_session_and_environment_ends_with_its_worker(tmp_path):
    name = f"yaie-hider-{os.getpid()}"
    result = grade_quickly(part_with(tmp_path, HIDES.format(name=name)), tasks=(TASK,))
    assert verdicts(result) == PASSED
    left = []
    for process in psutil.process_iter(["cmdline"]):
        if name in (process.info["cmdline"] or []):
            left.append(process)
            process.kill()
    assert left == []


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system shows no descriptors")
def test_no_other_process_can_write_results_where_a_worker_sends_its_own(tmp_path):
    """Two submissions run at once, and each finds the other's descriptors in /proc."""
    part = part_with(tmp_path, top="import time; time.sleep(60)")
    result = to_json(graded("4.1", Verdict.PASSED))
    account = Account(planned=[(result["name"], "4.1", "")])
    forged = f"\n{json.dumps({'event': 'result', 'test': result})}\n".encode()
    order = Order("radix_tree", str(part.folder), str(tmp_path), fd=-1)
    with WorkerProcess(order, account.take, part) as worker:
        folder = Path(f"/proc/{worker._process.pid}/fd")
        for number in sorted(folder.iterdir()):
            with suppress(OSError):
                if number.is_file():
                    continue  # one that it reads just now, and that would be overwritten
                with open(number, "wb", buffering=0) as other:
                    other.write(forged)
        time.sleep(0.2)
    assert account.results == {}


def test_a_link_is_refused_by_its_name_wherever_it_stands(tmp_path):
    outside = handed(tmp_path / "outside").parent
    (handed(tmp_path / "ann") / "tree.py").symlink_to(ROOT / "solutions/radix_tree/radix_tree.py")
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob/radix_tree").symlink_to(outside / "radix_tree")
    (tmp_path / "cyd").symlink_to(outside)
    (tmp_path / "dan").mkdir()
    (tmp_path / "dan/labs").symlink_to(outside)
    (handed(tmp_path / "eve") / "more").symlink_to(tmp_path)
    told = {
        student.name: student.submissions["radix_tree"].refused
        for student in find_students(tmp_path, [RADIX_TREE])
    }
    advice = "is a symbolic link: hand in the file or folder itself."
    assert told == {
        "ann": f"tree.py {advice}",
        "bob": f"bob/radix_tree {advice}",
        "cyd": f"cyd {advice}",
        "dan": f"dan/labs {advice}",
        "eve": f"more {advice}",
        "outside": "",
    }
    result = grade_quickly(handed_in(tmp_path / "ann", RADIX_TREE))
    assert result.problem.problem == f"tree.py {advice}"


def test_what_would_be_read_for_ever_or_fill_the_memory_is_refused(tmp_path):
    os.mkfifo(handed(tmp_path / "ann") / "pipe.py")
    with pytest.raises(Refused, match=r"pipe\.py is neither a file nor a folder"):
        read_snapshot(tmp_path / "ann", "radix_tree")
    assert part_digest(
        tmp_path / "ann/radix_tree"
    )  # nor does the learner's own grading wait for it
    with (handed(tmp_path / "bob") / "big.py").open("wb") as big:
        big.truncate(2**40)  # it takes no room on the disk
    with pytest.raises(Refused, match=f"holds more than {MOST_BYTES // 2**20} MiB"):
        read_snapshot(tmp_path / "bob", "radix_tree")
    part = handed(tmp_path / "cyd")
    for number in range(MOST_FILES):
        (part / f"{number}.py").touch()
    with pytest.raises(Refused, match=f"more than {MOST_FILES} files"):
        read_snapshot(tmp_path / "cyd", "radix_tree")


def test_what_is_kept_is_the_source_and_not_what_was_compiled_from_another(tmp_path):
    part = handed(tmp_path)
    for name in (
        "__pycache__/x.cpython-311.pyc",
        ".git/config",
        "explore.ipynb",
        "b/c.py",
        "b-c.py",
    ):
        (part / name).parent.mkdir(exist_ok=True)
        (part / name).write_text("y = 2\n")
    (part / "table.json").write_text("{}")
    snapshot = read_snapshot(tmp_path, "radix_tree")
    assert sorted(snapshot.files) == ["__init__.py", "b-c.py", "b/c.py", "table.json"]
    assert snapshot.digest == part_digest(part)
    copy = snapshot.write_to(tmp_path / "copy/radix_tree")
    assert part_digest(copy.folder) == snapshot.digest
    assert copy.changed() == ""


def restored(file: Path) -> None:
    """Another's code for a moment, and then the old one, with the old times."""
    content, times = file.read_bytes(), file.stat()
    time.sleep(0.02)  # later than the file system's clock can tell apart
    file.write_text("raise SystemExit")
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


DEEDS = {
    "writes": (lambda part: (part / "__init__.py").write_text("x = 2\n"), "__init__.py"),
    "restores": (lambda part: restored(part / "__init__.py"), "__init__.py"),
    "deletes": (lambda part: (part / "__init__.py").unlink(), "__init__.py"),
    "puts a pipe there": (
        lambda part: ((part / "__init__.py").unlink(), os.mkfifo(part / "__init__.py")), "__init__.py",
    ),
    "adds a source": (lambda part: (part / "node.py").touch(), "node.py"),
    "adds what is no source": (lambda part: (part / "log.txt").touch(), ""),
}  # fmt: skip


@pytest.mark.parametrize("deed", DEEDS)
def test_a_copy_knows_what_was_done_to_it(tmp_path, deed):
    handed(tmp_path)
    copy = read_snapshot(tmp_path, "radix_tree").write_to(tmp_path / "copy")
    act, name = DEEDS[deed]
    act(copy.folder)
    assert copy.changed() == name


def test_where_the_graders_own_files_were_changed_no_grade_counts(tmp_path, monkeypatch):
    (tmp_path / "grader").mkdir()
    (tmp_path / "grader/recorder.py").write_text("strict = True\n")
    monkeypatch.setattr(batch, "ROOT", tmp_path)
    handed(tmp_path / "class/ann")

    def grade(submissions):
        (tmp_path / "grader/recorder.py").write_text("strict = False\n")
        return [complete()]

    [row] = grade_students(find_students(tmp_path / "class", [RADIX_TREE]), grade)
    told = "The grader's own file grader/recorder.py was changed while the class was graded."
    assert (row.results["radix_tree"].invalid, row.points) == (told, 0)


NAMES = {
    "=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0",
    "+1+1": "'+1+1",
    "-2+3": "'-2+3",
    "@SUM(A1)": "'@SUM(A1)",
    "\tx": "'\tx",
    "\rx": "'\rx",
    "-5": "-5",
    "+3.25": "+3.25",
    "ann": "ann",
    "7=7": "7=7",
}


def test_no_name_is_a_formula_for_a_spreadsheet_and_a_number_stays_one(tmp_path):
    assert {name: as_text(name) for name in NAMES} == NAMES
    rows = [batch.Row(Student(name, {}), {"radix_tree": complete()}) for name in NAMES]
    write_csv(tmp_path / "class.csv", rows, [RADIX_TREE])
    with (tmp_path / "class.csv").open(newline="") as file:
        read = list(csv.reader(file))[1:]
    assert read == [[shown, "100", "100", "100"] for shown in NAMES.values()]


def test_a_students_name_is_no_command_to_the_terminal_and_stays_on_its_line():
    names = ["\x1b[2Jann", "bob\nzoe  100", "[/x]", "[red]dee"]
    rows = [batch.Row(Student(name, {}), {"radix_tree": complete()}) for name in names]
    out = Console(file=io.StringIO(), width=80)
    print_class(out, rows, [RADIX_TREE])
    shown = [line[:12].rstrip() for line in out.file.getvalue().splitlines()[1:5]]
    assert shown == ["ann", "bob zoe  100", "[/x]", "[red]dee"]


LIMITED = """
import os, sys, threading
from grader.family import tasks_of_user
from grader.worker import Order, limit

if os.geteuid() == 0:  # for whom the limit does not hold
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
begun, over = 0, threading.Event()
spare = int(sys.argv[1])
limit(Order("radix_tree", "", "", fd=-1, most_tasks=tasks_of_user() + spare if spare else 1))
try:
    while begun < 200:
        threading.Thread(target=over.wait, daemon=True).start()
        begun += 1
except RuntimeError:
    pass
print(begun)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count processes alone")
@pytest.mark.parametrize(("spare", "least", "most"), [(20, 5, 40), (0, 200, 200)])
def test_a_part_starts_no_more_than_the_limit_and_one_that_would_forbid_all_is_taken_back(
    spare, least, most
):
    """The second: in a container the same user may have thousands of processes that nobody sees."""
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED, str(spare)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert ran.returncode == 0
    assert least <= int(ran.stdout) <= most
