"""The questions that choose among weights are neither in the training data nor among the unseen ones."""

from collections import Counter

import pytest

from book.tutor.templates import normalise
from book.tutor.unseen import (
    is_reserved,
    read_questions,
    reserved_questions,
    unseen_questions,
    validation_questions,
)
from tests.book.tutor.overlap import MOST, most_shared, written_questions

LEAST = 180


def asked(name: str) -> set[str]:
    """Normal forms of the last turns of a file's questions."""
    return {normalise(question.turns[-1]) for question in read_questions(name)}


def test_there_are_enough_of_each_kind_that_is_judged_by_its_words() -> None:
    questions = validation_questions()
    counts = Counter(question.kind for question in questions)
    assert len(questions) >= LEAST
    assert counts["yes_no"] >= len(questions) / 3
    assert counts["follow_up"] >= len(questions) / 6
    assert len({question.turns for question in questions}) == len(questions)
    assert all(question.facts for question in questions)


def test_no_is_the_answer_as_often_as_yes_within_a_few() -> None:
    begins = Counter(q.begins for q in validation_questions() if q.kind == "yes_no")
    assert set(begins) == {"yes", "no"}
    assert begins["yes"] >= 0.35 * begins.total()


def test_training_leaves_out_a_conversation_that_asks_one() -> None:
    for question in validation_questions()[:20]:
        assert is_reserved({"role": "user", "content": question.turns[-1].upper()})
        assert not is_reserved({"role": "assistant", "content": question.turns[-1]})


@pytest.mark.nightly
def test_training_cannot_produce_a_validation_question() -> None:
    assert reserved_questions("validation") & written_questions() == set()


@pytest.mark.nightly
def test_no_training_question_has_most_of_a_validation_question() -> None:
    worst = most_shared(reserved_questions("validation"), written_questions())
    assert {text: share for text, share in worst.items() if share > MOST} == {}
    assert sum(worst.values()) / len(worst) < 0.25


def test_no_unseen_question_has_most_of_a_validation_question() -> None:
    assert len(unseen_questions()) == 200
    worst = most_shared(asked("validation"), asked("unseen"))
    # Only the shares are compared, so that a failure does not print what is unseen.
    assert max(worst.values()) <= MOST
    assert sum(worst.values()) / len(worst) < 0.05
