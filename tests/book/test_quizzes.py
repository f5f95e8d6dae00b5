"""The book's quizzes: what a reader can guess without knowing it, and how an answer is written."""

from typing import Any

from book.tools.quizzes import QUIZZES, load_quiz, render_question

QUESTIONS = [q for path in sorted(QUIZZES.glob("*.toml")) for q in load_quiz(path.stem)]
MOST_LONGEST = 0.4
"""Of all questions: those whose right answer is longer than each of the others."""


def is_longest(question: dict[str, Any]) -> bool:
    right, others = (
        [
            len(choice["text"])
            for choice in question["choice"]
            if bool(choice.get("right")) is wanted
        ]
        for wanted in (True, False)
    )
    return right[0] > max(others)


def test_the_length_of_an_answer_does_not_give_it_away() -> None:
    assert sum(map(is_longest, QUESTIONS)) / len(QUESTIONS) <= MOST_LONGEST


def test_an_answer_that_ends_with_a_stop_gets_no_other() -> None:
    question: dict[str, Any] = {
        "id": "when",
        "ask": "When?",
        "choice": [
            {"text": "At the end of step 41.", "why": "Then.", "right": True},
            {"text": "never", "why": "No."},
        ],
    }
    assert "step 41. Then." in render_question("timeline", question)
    question["choice"][0]["text"] = "at the end"
    assert "at the end. Then." in render_question("timeline", question)
