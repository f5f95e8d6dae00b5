"""A failure goes into a file that runs it again, with its example, until it is mended."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.explain import how_to_fail_again
from grader.kit.expect import Mismatch, expect
from grader.kit.generate import Machine, examples, run_machine
from grader.kit.script import current_script, listen, note, start_script, watch
from grader.kit.session import SESSION
from grader.runner import grade_lab
from grader.scratch import with_replay
from grader.submission import Submission
from tests.grader.hostile import part_with
from tests.grader.results import WRONG, graded, mixed, result_of
from tests.marks import nightly_but
from yaie.curriculum.manifest import ROOT

# An insert that is wrong only where it files five blocks or more: no test of task 4.2 shows that but the
# search for counterexamples. And one that every test shows.
RARE = ("return existing, ", "return existing + (len(block_ids) > 4), ")
ALWAYS = ("return existing, ", "return len(block_ids), ")


def part_edited(folder, old, new):
    """The reference's radix tree with one line changed."""
    submission = part_with(folder)
    file = submission.folder / "radix_tree.py"
    source = file.read_text("utf-8")
    assert old in source
    file.write_text(source.replace(old, new), "utf-8")
    return submission


def mended(submission, old, new):
    file = submission.folder / "radix_tree.py"
    file.write_text(file.read_text("utf-8").replace(new, old), "utf-8")


def run(file, *arguments, typed=""):
    return subprocess.run(
        [sys.executable, str(file), *arguments],
        cwd=ROOT, input=typed, capture_output=True, text=True, timeout=120,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"), nightly_but([ALWAYS], [RARE, ALWAYS]), ids=["found by a search", "in any test"]
)
def test_the_file_fails_like_the_grading_and_passes_once_it_is_mended(tmp_path, old, new):
    submission = part_edited(tmp_path, old, new)
    graded_as = grade_lab(submission, tasks=["4.2"])
    failed = graded_as.first_failed
    assert failed.explanation.script
    assert bool(failed.again.example) is ((old, new) == RARE)
    result = with_replay(graded_as, submission, 0, tmp_path)
    file = tmp_path / ".yaie/scratch/radix_tree_4_2.py"
    assert file.name in result.replay[0]
    first = run(file)
    assert first.returncode == 1, first.stderr
    assert " ".join(failed.explanation.problem.split()) in " ".join(first.stdout.split())
    for line in failed.explanation.script:
        assert line.partition("  # ")[0] in first.stdout
    mended(submission, old, new)
    again = run(file)
    assert again.returncode == 0, again.stdout
    assert "This example holds now" in again.stdout


@pytest.mark.nightly
@pytest.mark.slow
def test_the_debugger_stops_in_the_learners_method_at_the_last_call(tmp_path):
    submission = part_edited(tmp_path, *ALWAYS)
    with_replay(grade_lab(submission, tasks=["4.2"]), submission, 0, tmp_path)
    told = run(tmp_path / ".yaie/scratch/radix_tree_4_2.py", "--pdb", typed="w\nc\n")
    assert told.returncode == 1
    assert re.search(r"radix_tree\.py\(\d+\)insert\(\)", told.stdout), told.stdout + told.stderr


def test_where_nothing_can_be_written_a_sentence_says_so(tmp_path):
    (tmp_path / ".yaie").write_text("a file where the folder should be")
    submission = Submission(mixed().lab, tmp_path, tmp_path)
    sentence = with_replay(mixed(), submission, 0, tmp_path).no_replay
    assert "could not be written" in sentence


def test_what_passed_leaves_no_file(tmp_path):
    submission = Submission(mixed().lab, tmp_path, tmp_path)
    assert with_replay(result_of(), submission, 0, tmp_path).replay == ()
    assert not (tmp_path / ".yaie").exists()


def test_a_file_is_python_whatever_the_report_says(tmp_path):
    nasty = replace(WRONG, claim='ends in """ and \\', problem='"quoted"')
    result = result_of(graded("4.2", mixed().first_failed.verdict, nasty))
    with_replay(result, Submission(result.lab, tmp_path, tmp_path), 0, tmp_path)
    source = (tmp_path / ".yaie/scratch/radix_tree_4_2.py").read_text("utf-8")
    compile(source, "scratch", "exec")


@pytest.fixture
def session():
    """The session of a replay; afterwards it is a grading's again."""
    yield SESSION
    SESSION.searches, SESSION.is_searching, SESSION.only, SESSION.pinned = 0, False, None, None


@examples(200)
@given(st.lists(st.integers(0, 99)))
def search(values):
    note(f"seen {values}")
    expect(sum(values) < 120, "the sum is too large")


def test_of_several_searches_the_one_that_failed_is_made_again_with_its_example(session):
    session.searches = 0
    passes = examples(5)(given(st.integers())(lambda n: note(f"n {n}")))
    passes()
    with pytest.raises(Mismatch) as raised:
        search()
    again = how_to_fail_again(raised.value)
    shown = current_script().lines[-1]
    assert (again.search, bool(again.example)) == (2, True)
    session.searches, session.is_searching = 0, False
    session.only, session.pinned = again.search, (again.version, again.example.encode())
    start_script()
    passes()
    assert current_script().lines == []
    with pytest.raises(Mismatch):
        search()
    assert current_script().lines == [shown]


def test_an_example_that_holds_now_is_no_error(session):
    session.searches = 0
    with pytest.raises(Mismatch) as raised:
        search()
    again = how_to_fail_again(raised.value)
    session.searches, session.is_searching = 0, False
    session.only, session.pinned = 1, (again.version, again.example.encode())
    examples(200)(given(st.lists(st.integers(0, 99)))(lambda values: None))()
    assert session.is_searching is False


class Thing:
    """Counts its calls, and describes itself by the count."""

    def __init__(self):
        self.count = 0

    def call(self):
        self.count += 1


def described(thing):
    return f"count {thing.count}"


def test_the_state_before_a_call_is_taken_right_before_it():
    start_script()
    thing = Thing()
    watched = watch(thing, "thing", described)
    watched.call()
    thing.count = 10  # by something that is not watched
    watched.call()
    assert (current_script().before, current_script().after) == ("count 10", "count 11")


def test_the_state_after_the_last_call_is_the_one_that_was_checked():
    start_script()
    thing = Thing()
    watch(thing, "thing", described).call()
    thing.count = 5  # a status that is set after the call, and checked
    current_script().settle()
    thing.count = 0  # torn down
    assert current_script().after == "count 5"


class Torn(Machine):
    """A machine whose teardown changes what its check saw."""

    def check_invariants(self, *args, **kwargs):
        self.thing = Thing()
        watch(self.thing, "thing", described).call()
        raise Mismatch("it fails")

    def teardown(self):
        self.thing.count = 99


def test_a_machine_that_is_torn_down_has_told_its_state_before():
    from hypothesis.stateful import rule

    machine = type("Failing", (Torn,), {"go": rule()(lambda self: None)})
    with pytest.raises(Mismatch):
        run_machine(machine, None, runs=1, steps=1)
    assert current_script().after == "count 1"


def test_a_listener_makes_the_calls_and_gets_the_lines():
    made = []

    def carry_out(script, method, args, kwargs):
        made.append((script.number, script.num_calls))
        return method(*args, **kwargs)

    from grader.kit import script as module

    before = (module._carry_out, module._new_lines)
    try:
        listen(carry_out, list)
        watched = watch(Thing(), "thing")
        watched.call()
        start_script()
        watched.call()
        assert made == [(0, 1), (1, 1)]
    finally:
        listen(*before)
