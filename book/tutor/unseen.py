"""The 200 unseen questions of `phrasings/unseen.toml`, and who answers them right.

Those of `phrasings/validation.toml` have the same form. They choose among weights (`retrain.py`), so
that the unseen ones are asked only once.
"""

import json
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from book.tutor.glossary import Facts, load_phrasings, mentions
from book.tutor.templates import normalise

if TYPE_CHECKING:
    from book.tutor.dialogues import Message
    from book.tutor.evaluate import Answer, Tutor

KINDS = ("plain", "yes_no", "follow_up", "beginner", "tool")
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


_GENERAL = 6
"""A follow-up of so few words, such as "why?", belongs to every conversation."""


@dataclass(frozen=True)
class Unseen:
    """One question; see the head of `unseen.toml` for the fields."""

    kind: str
    turns: tuple[str, ...]
    facts: Facts = ()
    begins: str = ""
    call: tuple[str, dict[str, Any]] | None = None
    tools: tuple[str, ...] = ()
    result: str = ""
    answers: list[str] = field(default_factory=list, compare=False)


@cache
def read_questions(name: str) -> tuple[Unseen, ...]:
    """All of a file of `phrasings/`, in its order; a file need not have every kind."""
    tables = load_phrasings(name)
    questions = []
    for kind in KINDS:
        for table in tables.get(kind, {"questions": []})["questions"]:
            ask = table["ask"]
            call = table.get("call")
            questions.append(
                Unseen(
                    kind,
                    (ask,) if isinstance(ask, str) else tuple(ask),
                    tuple(table.get("facts", ())),
                    table.get("begins", ""),
                    (call[0], call[1]) if call else None,
                    tuple(table.get("tools", ())),
                    table.get("result", ""),
                )
            )
    return tuple(questions)


def unseen_questions() -> tuple[Unseen, ...]:
    """The 200."""
    return read_questions("unseen")


def validation_questions() -> tuple[Unseen, ...]:
    """Those that choose among weights; none is beside tools."""
    return read_questions("validation")


@cache
def reserved_questions(name: str = "unseen") -> frozenset[str]:
    """Normal forms of that file's questions that no conversation of the training may have.

    Left out are short follow-ups, and what is asked beside tools that it does not need, such as "hello".
    """
    return frozenset(
        normalise(question.turns[-1])
        for question in read_questions(name)
        if (question.kind != "follow_up" or len(question.turns[-1].split()) > _GENERAL)
        and (question.kind != "tool" or question.call is not None)
    )


@cache
def _all_reserved() -> frozenset[str]:
    return reserved_questions() | reserved_questions("validation")


def is_reserved(message: "Message") -> bool:
    """Whether a person asks an unseen question in this message, or one of the validation."""
    return message["role"] == "user" and normalise(message["content"]) in _all_reserved()


def tool_schema(name: str) -> dict[str, Any]:
    """A tool of `unseen.toml` in OpenAI's shape."""
    table = load_phrasings("unseen")["tools"][name]
    optional = table.get("optional", [])
    properties = {
        argument: {"type": "string", "enum": kind} if isinstance(kind, list) else {"type": kind}
        for argument, kind in table["parameters"].items()
    }
    schema = {
        "type": "object",
        "properties": properties,
        "required": [argument for argument in properties if argument not in optional],
    }
    function = {"name": name, "description": table["description"], "parameters": schema}
    return {"type": "function", "function": function}


def calls_in(text: str) -> list[tuple[str, Any]]:
    """The calls of an answer; what is no JSON is no call."""
    calls = []
    for match in _CALL.finditer(text):
        try:
            call = json.loads(match.group(1))
            calls.append((str(call["name"]), call["arguments"]))
        except (ValueError, KeyError, TypeError):
            continue
    return calls


def _plain(value: Any) -> Any:
    """Strings in lower case without blanks: `48*17` is as good as `48 * 17`."""
    return re.sub(r"\s", "", value).lower() if isinstance(value, str) else value


def is_right(question: Unseen, answers: list[str]) -> bool:
    """Whether the last answer has the facts, and whether a `call` was made as it should."""
    if question.call is not None:
        name, arguments = question.call
        expected = {key: _plain(value) for key, value in arguments.items()}
        calls = calls_in(answers[len(question.turns) - 1])
        if len(calls) != 1 or calls[0][0] != name or not isinstance(calls[0][1], dict):
            return False
        if {key: _plain(value) for key, value in calls[0][1].items()} != expected:
            return False
        if not question.result:
            return True
    last = answers[-1]
    if question.tools and "<tool_call>" in last:
        return False
    words = re.findall(r"[a-z]+", last.lower())
    if question.begins and words[:1] != [question.begins]:
        return False
    return bool(words) and mentions(last, question.facts)


def ask_all(tutor: "Tutor", questions: tuple[Unseen, ...]) -> list[list[str]]:
    """The answers to each question; every turn follows the tutor's own answers."""
    talks: list[list[Message]] = [[] for _ in questions]
    rounds = max(len(question.turns) + bool(question.result) for question in questions)
    for turn in range(rounds):
        going = []
        for index, question in enumerate(questions):
            if turn < len(question.turns):
                talks[index].append({"role": "user", "content": question.turns[turn]})
                going.append(index)
            elif turn == len(question.turns) and question.result:
                talks[index].append({"role": "tool", "content": question.result})
                going.append(index)
        tools = [[tool_schema(name) for name in questions[index].tools] for index in going]
        answers: list[Answer] = tutor.answer([talks[index] for index in going], "unseen", tools)
        for index, answer in zip(going, answers, strict=True):
            talks[index].append({"role": "assistant", "content": answer.text})
    return [[m["content"] for m in talk if m["role"] == "assistant"] for talk in talks]


def judge_unseen(tutor: "Tutor", questions: tuple[Unseen, ...] = ()) -> dict[str, Any]:
    """Shares of right answers, in all and by kind, and every wrong one.

    questions: the unseen ones if there are none.
    """
    questions = questions or unseen_questions()
    answered = ask_all(tutor, questions)
    right = [is_right(q, answers) for q, answers in zip(questions, answered, strict=True)]
    by_kind = {
        kind: round(sum(ok for q, ok in zip(questions, right, strict=True) if q.kind == kind)
                    / sum(q.kind == kind for q in questions), 4)
        for kind in KINDS if any(q.kind == kind for q in questions)
    }  # fmt: skip
    return {
        "questions": len(questions),
        "right": round(sum(right) / len(right), 4),
        **by_kind,
        "wrong": [
            {"question": " / ".join(q.turns), "answer": " / ".join(answers)}
            for q, answers, ok in zip(questions, answered, right, strict=True)
            if not ok
        ],
    }
