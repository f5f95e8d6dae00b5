"""JSON, JUnit and Gradescope: valid by their schemas, whatever a part has printed."""

import json
import xml.etree.ElementTree as ET

import pytest

from grader.report.formats import as_gradescope, as_json, as_junit
from grader.verdict import from_json
from tests.grader.results import broken, complete, mixed, result_of

CASES = {"mixed": mixed, "complete": complete, "broken": broken, "no tests": result_of}
NASTY = "\x00\x1b[31m<&]]>\ud800\ufffe\U0001f600"


def all_cases():
    return [make() for make in CASES.values()]


def test_json_holds_every_test_with_its_explanation():
    table = json.loads(as_json([mixed()], seed=7, impl="labs", withdrawn={"radix_tree": ("4.2",)}))
    assert table.keys() == {"version", "seed", "impl", "points", "max_points", "labs"}
    assert (table["seed"], table["points"], table["max_points"]) == (7, 25, 100)
    [lab] = table["labs"]
    assert lab["withdrawn"] == ["4.2"]
    assert [task["verdict"] for task in lab["tasks"]] == [
        "passed", "failed", "not implemented yet", "failed", "not verified here",
    ]  # fmt: skip
    assert lab["tasks"][2]["waits_for"] == "4.2"
    again = [from_json(test) for task in lab["tasks"] for test in task["tests"]]
    assert again == [test for task in mixed().tasks for test in task.tests]


def test_json_says_why_a_lab_could_not_be_graded():
    [lab] = json.loads(as_json([broken()], seed=0, impl="labs", withdrawn={}))["labs"]
    assert lab["problem"]["where"] == "radix_tree/node.py, line 1"


# Of JUnit's schema, as Jenkins has it: the attributes an element must and may have, and its children.
JUNIT = {
    "testsuites": ((), {"name", "tests", "failures", "errors", "skipped", "time"}, {"testsuite"}),
    "testsuite": (
        ("name", "tests"),
        {"failures", "errors", "skipped", "time"},
        {"testcase", "system-out"},
    ),
    "testcase": (("name", "classname"), {"time"}, {"failure", "error", "skipped"}),
    "failure": ((), {"message", "type"}, set()),
    "error": ((), {"message", "type"}, set()),
    "skipped": ((), {"message"}, set()),
    "system-out": ((), set(), set()),
}


def assert_junit(element):
    must, may, children = JUNIT[element.tag]
    assert set(must) <= set(element.keys()) <= set(must) | may, element.tag
    assert {child.tag for child in element} <= children
    assert element.tag != "testcase" or len(element) <= 1
    for name in ("tests", "failures", "errors", "skipped"):
        assert int(element.get(name, "0")) >= 0
    for child in element:
        assert_junit(child)


def test_junit_is_valid_and_counts_what_it_holds():
    root = ET.fromstring(as_junit(all_cases()))
    assert_junit(root)
    for tag, attribute in (("testcase", "tests"), ("failure", "failures"), ("error", "errors")):
        assert len(list(root.iter(tag))) == int(root.get(attribute))
    mixed_suite = root[0]
    assert [mixed_suite.get(name) for name in ("tests", "failures", "skipped")] == ["6", "3", "1"]


def test_junit_has_the_explanation_in_the_failure():
    failure = next(ET.fromstring(as_junit([mixed()])).iter("failure"))
    assert failure.get("message").startswith("how many blocks insert says")
    assert "tree.insert([0, 1], [0, 1])" in failure.text


def test_junit_survives_what_xml_cannot_hold():
    root = ET.fromstring(as_junit([result_of(output=NASTY)]).encode("utf-8"))
    assert root.find("testsuite/system-out").text == "\\x00<&]]>\U0001f600"


GRADESCOPE_TOP = {
    "score", "execution_time", "output", "output_format", "visibility", "stdout_visibility",
    "extra_data", "tests", "leaderboard",
}  # fmt: skip
GRADESCOPE_TEST = {
    "score", "max_score", "status", "name", "name_format", "number", "output", "output_format",
    "tags", "visibility", "extra_data",
}  # fmt: skip
VISIBILITIES = {"hidden", "after_due_date", "after_published", "visible"}


@pytest.mark.parametrize("case", CASES)
def test_gradescope_gets_what_its_specification_names(case):
    result = CASES[case]()
    table = json.loads(as_gradescope([result]))
    assert table.keys() <= GRADESCOPE_TOP
    assert {table["visibility"], table["stdout_visibility"]} <= VISIBILITIES
    assert [test["number"] for test in table["tests"]] == [task.task.id for task in result.tasks]
    for test in table["tests"]:
        assert test.keys() <= GRADESCOPE_TEST
        assert test["status"] in ("passed", "failed")
        assert test["visibility"] in VISIBILITIES
        assert 0 <= test["score"] <= test["max_score"]
        assert isinstance(test["output"], str)
    assert table["score"] == sum(test["score"] for test in table["tests"]) == result.points


def test_gradescope_shows_the_explanation_and_what_could_not_be_imported():
    tests = json.loads(as_gradescope([mixed()]))["tests"]
    assert "The calls that lead there" in tests[1]["output"]
    assert tests[2]["output"] == "waits for task 4.2"
    assert "SyntaxError: bad" in json.loads(as_gradescope([broken()]))["output"]
