"""Questions to answer in the page: book/quizzes/<name>.toml."""

from hashlib import sha256
from typing import Any

from book.tools.markup import inline
from book.tools.mdbook import ROOT
from yaie.core.compat import tomllib

QUIZZES = ROOT / "book/quizzes"
MOST, LEAST = 5, 3


class QuizError(ValueError):
    """A quiz's file is missing or does not make sense. The message says which and what."""


def render_quiz(name: str) -> str:
    """The quiz as HTML in one line, usable without scripts too. Raises QuizError."""
    questions = load_quiz(name)
    body = "".join(render_question(name, question) for question in questions)
    return f'<section class="quiz"><h2 id="quiz">Quiz</h2>{body}</section>'


def render_review(chapters: dict[str, tuple[str, str]], exercises: str = "") -> str:
    """All questions of the book, hidden until a script shows those that were missed.

    chapters: by the quiz's name, the page that holds it (relative to the review page) and its title.
    exercises: the sections of exercises, rendered.
    """
    sections = [
        f'<section data-quiz="{name}" hidden><h2><a href="{page}">{inline(title)}</a></h2>'
        + "".join(render_question(name, question, suffix="-again") for question in load_quiz(name))
        + "</section>"
        for name, (page, title) in chapters.items()
    ]
    status = '<p class="review-status" role="status">Reviewing needs scripts.</p>'
    # Within a div: Markdown takes an element that it does not know for a part of a paragraph.
    return f"<div><yaie-review>{status}{''.join(sections)}{exercises}</yaie-review></div>"


def render_question(quiz: str, question: dict[str, Any], suffix: str = "") -> str:
    """One question: radio buttons, and for each choice the explanation that it earns."""
    key = f"{quiz}-{question['id']}"
    group = f"q-{key}{suffix}"
    choices = "".join(
        f'<div class="choice"{" data-right" if choice.get("right") else ""}>'
        f'<label><input type="radio" name="{group}"> <span>{inline(choice["text"])}</span></label>'
        f'<p class="why" hidden>{inline(choice["why"])}</p></div>'
        for choice in question["choice"]
    )
    right = next(choice for choice in question["choice"] if choice.get("right"))
    end = "" if right["text"].rstrip().endswith((".", "?", "!")) else "."
    answer = f"{inline(right['text'])}{end} {inline(right['why'])}"
    return (
        f'<yaie-question data-key="{key}"><fieldset><legend>{inline(question["ask"])}</legend>'
        f"{choices}</fieldset><details><summary>Answer</summary><p>{answer}</p></details>"
        "</yaie-question>"
    )


def load_quiz(name: str) -> list[dict[str, Any]]:
    """The questions of one file, with what they must have, their choices shuffled. Raises QuizError.

    The same way each time; an author need not think of where the right answer stands.
    """
    path = QUIZZES / f"{name}.toml"
    if not path.is_file():
        raise QuizError(f"there is no book/quizzes/{name}.toml")
    questions: list[dict[str, Any]] = tomllib.loads(path.read_text("utf-8")).get("question", [])
    if not LEAST <= len(questions) <= MOST:
        raise QuizError(f"quiz {name} has {len(questions)} questions, not {LEAST} to {MOST}")
    if len({question.get("id") for question in questions}) < len(questions):
        raise QuizError(f"quiz {name}: two questions have the same id")
    for question in questions:
        _require_sense(name, question)
        question["choice"].sort(key=lambda choice: _place(name, question["id"], choice["text"]))
    return questions


def _place(*words: str) -> str:
    return sha256("\n".join(words).encode()).hexdigest()


def _require_sense(quiz: str, question: dict[str, Any]) -> None:
    where = f"quiz {quiz}, question {question.get('id')}"
    if question.keys() != {"id", "ask", "choice"}:
        raise QuizError(f"{where} has the keys {sorted(question)}, not id, ask, choice")
    choices = question["choice"]
    if len(choices) < 2 or sum(choice.get("right", False) for choice in choices) != 1:
        raise QuizError(f"{where} needs two choices or more, one of them right")
    if not all(choice.get("text") and choice.get("why") for choice in choices):
        raise QuizError(f"{where}: a choice lacks its text or its explanation")
