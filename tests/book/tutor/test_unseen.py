"""The 200 unseen questions stay unseen, and their judge tells right answers from wrong ones."""

import re
from collections import Counter
from typing import Any

import pytest

from book.tutor.evaluate import Answer
from book.tutor.tool_use import reserved_names
from book.tutor.unseen import (
    KINDS,
    Unseen,
    ask_all,
    calls_in,
    is_right,
    reserved_questions,
    tool_schema,
    unseen_questions,
)
from tests.book.tutor.overlap import MOST, most_shared, sample, written_questions

pytestmark = pytest.mark.nightly


def test_there_are_two_hundred_of_all_kinds() -> None:
    questions = unseen_questions()
    assert len(questions) == 200
    assert {kind: n for kind, n in Counter(q.kind for q in questions).items() if n < 25} == {}
    assert set(KINDS) == {q.kind for q in questions}
    assert len({(q.turns, q.tools) for q in questions}) == 200
    judged = [q for q in questions if q.facts or q.begins or q.call]
    # The rest are greetings and the like beside tools, where not calling one is what counts.
    assert len(judged) >= 190


def test_training_cannot_produce_an_unseen_question() -> None:
    assert len(reserved_questions()) > 150
    assert reserved_questions() & written_questions() == set()


def test_no_training_question_has_most_of_an_unseen_one() -> None:
    worst = most_shared(reserved_questions(), written_questions())
    assert {text: share for text, share in worst.items() if share > MOST} == {}
    assert sum(worst.values()) / len(worst) < 0.25


def test_no_offered_tool_has_the_name_of_an_unseen_one() -> None:
    offered = {
        name
        for talk in sample()
        if talk[0]["role"] == "system"
        for name in re.findall(r"^([\w-]+)\(", talk[0]["content"], re.MULTILINE)
    }
    assert len(offered) > 500
    assert offered & reserved_names() == set()


def test_every_named_tool_exists_and_its_calls_fit_the_schema() -> None:
    for question in unseen_questions():
        schemas = {name: tool_schema(name)["function"]["parameters"] for name in question.tools}
        if question.call is not None:
            name, arguments = question.call
            assert arguments.keys() <= schemas[name]["properties"].keys()
            assert set(schemas[name]["required"]) <= arguments.keys()


CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "2 + 2"}}\n</tool_call>'


def test_a_call_is_right_by_name_and_values() -> None:
    question = Unseen("tool", ("?",), call=("f", {"a": "2+2"}), tools=("f",))
    assert is_right(question, [CALL])
    assert not is_right(question, [CALL.replace("2 + 2", "2 + 3")])
    assert not is_right(question, [CALL.replace('"f"', '"g"')])
    assert not is_right(question, [CALL + CALL])
    assert not is_right(question, ["4"])
    assert calls_in("<tool_call>{oops}</tool_call>") == []


def test_after_the_result_the_facts_count() -> None:
    question = Unseen("tool", ("?",), ("4",), call=("f", {"a": "2+2"}), tools=("f",), result="4")
    assert is_right(question, [CALL, "The result is 4."])
    assert not is_right(question, [CALL, CALL])


def test_yes_must_be_the_first_word() -> None:
    question = Unseen("yes_no", ("?",), ("exact|same",), begins="no")
    assert is_right(question, ["No: it is exact."])
    assert not is_right(question, ["It is exact, no doubt."])
    assert not is_right(question, ["No: it is fast."])


def test_without_need_no_tool_is_called() -> None:
    question = Unseen("tool", ("hello",), tools=("f",))
    assert is_right(question, ["Hello!"])
    assert not is_right(question, [CALL])


class Parrot:
    """Says how it was asked."""

    def __init__(self) -> None:
        self.heard: list[list[dict[str, str]]] = []

    def answer(self, talks: list[Any], title: str, tools: list[list[Any]]) -> list[Answer]:
        self.heard += [list(talk) for talk in talks]
        offered = [[tool["function"]["name"] for tool in one] for one in tools]
        return [
            Answer(f"{talk[-1]['content']}! {names}", True)
            for talk, names in zip(talks, offered, strict=True)
        ]


def test_turns_follow_the_tutors_own_answers_and_results_its_calls() -> None:
    talk = Unseen("follow_up", ("what?", "why?"))
    call = Unseen("tool", ("how warm?",), tools=("weather_in",), result="30 degrees")
    parrot = Parrot()
    assert ask_all(parrot, (talk, call)) == [  # type: ignore[arg-type]
        ["what?! []", "why?! []"],
        ["how warm?! ['weather_in']", "30 degrees! ['weather_in']"],
    ]
    roles = [[(message["role"], message["content"]) for message in heard] for heard in parrot.heard]
    assert roles[2] == [("user", "what?"), ("assistant", "what?! []"), ("user", "why?")]
    assert [role for role, _ in roles[3]] == ["user", "assistant", "tool"]
