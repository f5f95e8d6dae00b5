"""Gradings for programs: JSON with everything, JUnit's XML for CI servers, Gradescope's results.json."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from grader.machine import not_verified_here
from grader.report.lines import clean, without_codes
from grader.report.text import explanation_lines, remark
from grader.verdict import Explanation, LabResult, TaskResult, TestResult, Verdict, to_json

VERSION = 1
WIDTH = 100
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def lab_table(result: LabResult, withdrawn: Sequence[str] = ()) -> dict[str, Any]:
    """One lab as plain data."""
    lab = result.lab
    return {
        "lab": lab.key,
        "number": lab.number,
        "title": lab.title,
        "chapter": lab.chapter,
        "points": result.points,
        "max_points": result.max_points,
        "complete": result.is_complete,
        "seconds": result.seconds,
        "digest": result.digest,
        "only": list(result.only),
        "problem": None if result.problem is None else asdict(result.problem),
        "not_verified_here": not_verified_here(lab) if result.passed else "",
        "withdrawn": list(withdrawn),
        "tasks": [_task_table(task) for task in result.tasks],
        "invalid": result.invalid,
        "output": result.output,
        "output_cut": result.output_cut,
        "told_cut": result.told_cut,
    }


def _task_table(task: TaskResult) -> dict[str, Any]:
    return {
        "id": task.task.id,
        "title": task.task.title,
        "points": task.points,
        "max_points": task.task.points,
        "verdict": task.verdict.value,
        "waits_for": task.waits_for,
        "tests": [to_json(test) for test in task.tests],
    }


def as_json(
    results: Sequence[LabResult], *, seed: int, impl: str, withdrawn: dict[str, tuple[str, ...]]
) -> str:
    table = {
        "version": VERSION,
        "seed": seed,
        "impl": impl,
        "points": sum(result.points for result in results),
        "max_points": sum(result.max_points for result in results),
        "labs": [lab_table(result, withdrawn.get(result.lab.key, ())) for result in results],
    }
    return json.dumps(table, indent=2, ensure_ascii=False) + "\n"


def as_junit(results: Sequence[LabResult]) -> str:
    """A suite for each lab, a case for each test; what could not run at all is a case as well."""
    root = ET.Element("testsuites", name="yaie labs")
    for result in results:
        suite = ET.SubElement(root, "testsuite", name=result.lab.key)
        if result.problem is not None:
            _case(suite, result, "import", "error", _plain(result.problem), result.problem.problem)
        for task in result.tasks:
            _cases_of_task(suite, result, task)
        _count(suite)
        suite.set("time", f"{result.seconds:.3f}")
        if result.output.strip():
            left = f"... {result.output_cut} bytes left out ...\n" if result.output_cut else ""
            ET.SubElement(suite, "system-out").text = left + _xml(without_codes(result.output))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", f"{sum(result.seconds for result in results):.3f}")
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _cases_of_task(suite: ET.Element, result: LabResult, task: TaskResult) -> None:
    if not task.tests:
        _case(suite, result, f"task {task.task.id}", "skipped", "", "not graded")
    for test in task.tests:
        name = test.name.rpartition("::")[2]
        kind = {Verdict.PASSED: "", Verdict.NOT_VERIFIED: "skipped"}.get(test.verdict, "failure")
        why = test.explanation
        message = why.problem if why else test.verdict.value
        _case(suite, result, name, kind, _plain(why) if why else "", message, test)


def _case(
    suite: ET.Element,
    result: LabResult,
    name: str,
    kind: str,
    text: str,
    message: str,
    test: TestResult | None = None,
) -> None:
    """kind: "" if it passed, or the element that says how it did not."""
    classname = f"{result.lab.key}.{test.task}" if test else result.lab.key
    seconds = f"{test.seconds if test else 0:.3f}"
    case = ET.SubElement(suite, "testcase", classname=classname, name=_xml(name), time=seconds)
    if kind:
        outcome = ET.SubElement(case, kind, message=_xml(message.partition("\n")[0]))
        if kind != "skipped":
            outcome.set("type", test.verdict.value if test else "error")
        outcome.text = _xml(text) or None


def _count(suite: ET.Element) -> None:
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(kind) is not None for case in cases)))


def as_gradescope(results: Sequence[LabResult]) -> str:
    """What Gradescope reads from results/results.json; a test for each task."""
    points = sum(result.points for result in results)
    problems = [f"{r.lab.key}: {_plain(r.problem)}" for r in results if r.problem is not None]
    total = f"{points} of {sum(result.max_points for result in results)} points."
    table = {
        "score": points,
        "execution_time": round(sum(result.seconds for result in results), 2),
        "output": "\n\n".join([total, *problems]),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [_gradescope_test(result, task) for result in results for task in result.tasks],
    }
    return json.dumps(table, indent=2, ensure_ascii=False) + "\n"


def _gradescope_test(result: LabResult, task: TaskResult) -> dict[str, Any]:
    worst = task.worst
    why = worst.explanation if worst else None
    is_graded = result.problem is None
    output = "\n".join(
        filter(None, (remark(task) if is_graded else "", _plain(why) if why else ""))
    )
    return {
        "number": task.task.id,
        "name": f"{result.lab.title}: {task.task.title}",
        "score": task.points,
        "max_score": task.task.points,
        "status": "passed" if task.verdict is Verdict.PASSED else "failed",
        "output": output if is_graded else "Not graded: the lab's part cannot be graded at all.",
        "output_format": "text",
        "visibility": "visible",
    }


def _plain(why: Explanation) -> str:
    return "\n".join(line.plain for line in explanation_lines(why, WIDTH))


def _xml(text: str) -> str:
    return _NOT_XML.sub("", clean(text))
