"""However much a part writes, the grader's own memory stays as it is; and what was cut is told."""

import json
import socket
import subprocess
import sys
import threading
import tracemalloc
from dataclasses import replace

import pytest

from grader.account import MOST_TESTS, Account
from grader.channel import MOST_LINE, MOST_TOLD, Heard, keep_tail, read_events
from grader.kit import compiled
from grader.report.formats import as_junit, lab_table
from grader.report.text import report_lines
from grader.verdict import (
    MOST_CHARACTERS,
    MOST_LINES,
    Again,
    Explanation,
    TestResult,
    Verdict,
    from_json,
    to_json,
)
from tests.grader.hostile import TASK
from tests.grader.results import WRONG, graded, mixed
from yaie.curriculum.manifest import ROOT

CHUNK = b"x" * 2**20
RESULT = to_json(graded("4.1", Verdict.PASSED))


def heard_of(*pieces: bytes, take=lambda event: None) -> Heard:
    """What the runner takes down of a worker that writes these."""
    ours, theirs = socket.socketpair()
    heard = Heard()
    reader = threading.Thread(target=read_events, args=(ours, take, heard))
    reader.start()
    with theirs:
        for piece in pieces:
            theirs.sendall(piece)
    reader.join(30)
    return heard


def test_a_line_without_end_is_not_kept():
    tracemalloc.start()
    heard = heard_of(*[CHUNK] * 100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert heard.told == heard.dropped == 100 * 2**20
    assert peak < 4 * MOST_LINE


def test_a_line_that_is_too_long_costs_itself_and_not_the_next_one():
    events = []
    line = b"x" * (MOST_LINE + 1)
    heard = heard_of(line, b'\n{"event": 1}\n', b"no json\n[[", b"[\n", b"\n", take=events.append)
    assert events == [{"event": 1}]
    assert heard.dropped == len(line) + len("no json") + len("[[[")


@pytest.mark.parametrize("line", [b"[" * 100_000, b"7", b'{"event": "result", "test": 1}', b"\xff"])
def test_a_line_that_is_no_event_ends_no_reading(line):
    account = Account(planned=[("a test", "4.1", "It holds.")])
    told = {"event": "test", "name": "a test", "task": "4.1"}
    heard_of(line + b"\n", json.dumps(told).encode() + b"\n", take=account.take)
    assert account.at == ("a test", "4.1")


def test_of_what_is_printed_the_end_is_kept_and_the_rest_counted(tmp_path):
    (tmp_path / "printed").write_bytes(CHUNK * 3 + b"end")
    tail, heard = bytearray(), Heard()
    keep_tail((tmp_path / "printed").open("rb"), tail, heard)
    assert (len(tail), tail[-3:], heard.printed) == (16_384, b"end", 3 * 2**20 + 3)


GREEDY = """
import os, stat
chunk = b"x" * 65_536
for _ in range(1_000):
    os.write(1, chunk)
    os.write(2, chunk)
channels = []
for fd in range(3, 64):
    try:
        mode = os.fstat(fd).st_mode
        os.write(fd, b"") if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else 1 / 0
        channels.append(fd)
    except (OSError, ZeroDivisionError):
        pass
for fd in channels:
    os.set_blocking(fd, False)  # one of them nobody reads
while True:
    for fd in channels:
        try:
            os.write(fd, chunk)
        except BlockingIOError:
            pass
"""
GRADE = """
import resource, sys
from pathlib import Path
from grader.runner import Limits
from tests.grader.hostile import *

part = part_with(Path(sys.argv[1]), sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = grade_quickly(part, Limits(seconds=200, test_seconds=100))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
print(why(result).problem)
print(len(result.output), result.output_cut, result.told_cut, verdicts(result)[LATER_TASK])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="getrusage counts kilobytes on Linux alone")
def test_a_part_that_writes_a_line_without_end_does_not_grow_the_grader(tmp_path):
    command = [sys.executable, "-c", GRADE, str(tmp_path), GREEDY]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    kilobytes, problem, told = ran.stdout.splitlines()
    assert int(kilobytes) < 64 * 1024
    limit = MOST_TOLD // 2**20
    assert problem == f"It wrote more than {limit} MiB to the grader's channel for results."
    kept, cut, dropped, later = told.split()
    assert int(kept) == 16_384
    assert int(cut) >= 2_000 * 65_536 - 16_384
    assert int(dropped) > 2**20 * limit
    assert later == "passed"


def test_the_report_says_what_was_cut():
    printed = "x" * 5000 + "\nlast"
    result = replace(mixed(), output=printed, output_cut=1_234_567, told_cut=99)
    text = "\n".join(line.plain for line in report_lines(result, 100))
    assert "The end of what it printed (1,234,567 bytes before it were left out):" in text
    assert "x" * 360 + " ... 4,640 characters left out" in text
    assert "99 bytes were dropped on the grader's own channel" in text
    assert max(map(len, text.splitlines())) <= 402
    assert "1234567 bytes left out" in as_junit([result])
    assert (lab_table(result)["output_cut"], lab_table(result)["told_cut"]) == (1_234_567, 99)
    assert "left out" not in "".join(line.plain for line in report_lines(mixed(), 100))


def test_no_text_of_an_explanation_is_longer_than_a_report_bears():
    huge = Explanation(
        *["y" * 10**6] * 4, script=("z" * 10**5,) * 500, why="w" * 9000, is_program=True
    )
    sent = json.dumps({"test": to_json(TestResult("t", "4.1", Verdict.FAILED, explanation=huge))})
    assert 12 * len(sent) < MOST_LINE  # were each character two escapes of six
    kept = from_json(json.loads(sent)["test"]).explanation
    assert len(kept.problem) <= MOST_CHARACTERS
    assert kept.problem.endswith("yyy ... 992,040 characters left out")
    assert kept.script[-1] == f"... {501 - MOST_LINES} lines left out ..."
    assert not kept.is_program
    assert WRONG.bounded() == WRONG


FORGED = {
    "not planned": {"name": "another test"},
    "of another task": {"task": "4.2"},
    "a number for a name": {"name": 7},
    "a claim that is no text": {"explanation": {"claim": 7, "problem": "", "script": []}},
    "a script that is a text": {"explanation": {"claim": "", "problem": "", "script": "x"}},
    "endless seconds": {"seconds": float("inf")},
    "a verdict that is none": {"verdict": "excellent"},
    "another field": {"points": 100},
    "an example that is no text": {"again": {"example": []}},
}


@pytest.mark.parametrize("what", FORGED)
def test_what_is_no_result_of_a_planned_test_is_not_taken(what):
    account = Account(planned=[(RESULT["name"], "4.1", "It holds.")])
    with pytest.raises((KeyError, TypeError, ValueError)):
        account.take({"event": "result", "test": {**RESULT, **FORGED[what]}})
    assert account.results == {}
    account.take({"event": "result", "test": RESULT})
    assert account.is_over


def test_a_result_can_become_worse_and_never_better():
    name = RESULT["name"]
    account = Account(planned=[(name, "4.1", ""), ("another", "4.1", "")])
    failed = to_json(replace(graded("4.1", Verdict.FAILED, WRONG), again=Again()))
    for sent in (RESULT, failed, RESULT, {**RESULT, "name": "another"}):
        account.take({"event": "result", "test": sent})
    assert {key: result.verdict for key, result in account.results.items()} == {
        name: Verdict.FAILED
    }


def test_a_plan_without_end_is_cut_and_the_first_one_counts():
    account = Account()
    account.take({"event": "plan", "tests": [[f"{n}", TASK, "x"] for n in range(MOST_TESTS + 9)]})
    account.take({"event": "plan", "tests": [["mine", TASK, "x"]]})
    assert len(account.planned) == MOST_TESTS
    with pytest.raises(TypeError):
        Account().take({"event": "plan", "tests": [["a name", TASK, None]]})


def test_of_what_tritons_compiler_and_the_part_in_it_have_written_the_end_is_read(tmp_path):
    begun = {"is_begun": True, "kernel": "add"}
    with (tmp_path / "told").open("wb+") as file:
        file.write(b"x" * (compiled.MOST_BYTES + 100) + b"\n[[[\n7\n")
        file.write(json.dumps(begun).encode() + b"\n")
        lines = compiled._lines(file)
    assert sum(map(len, lines)) == compiled.MOST_BYTES
    assert [launch for line in lines if (launch := compiled._launch(line))] == [begun]
