"""What the recorded weights and figures hang on is what it was: who changes it trains or asks again."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from hashlib import sha256

import pytest

from book.tutor import strange
from book.tutor.dialogues import dialogues
from book.tutor.evaluate import _messages, known_sentences
from book.tutor.glossary import load_knowledge, sentences
from book.tutor.held_out import (
    SHORT_SYSTEM,
    Question,
    held_out_conversations,
    held_out_questions,
    held_out_sums,
    unusual_whys,
    with_system,
)

pytestmark = pytest.mark.nightly

CONVERSATIONS = "f230b9de0a9b6ddb"
QUESTIONS = "ffca161893119f5d"
"""Digests. Weights trained on other conversations, or figures of other questions, are not those of this
code: run `python -m book.tutor.train`, or `.evaluate`, again, and write the new digest here. Until then
the card has to say that the weights are older than their data."""


def digest(values: Iterable[object]) -> str:
    total = sha256()
    for value in values:
        total.update(json.dumps(value, sort_keys=True).encode())
    return total.hexdigest()[:16]


def test_a_seed_writes_the_conversations_that_it_always_wrote() -> None:
    assert digest(dialogues(seed=12, count=3000)) == CONVERSATIONS


def test_the_tutor_is_asked_what_it_was_always_asked() -> None:
    asked = [*held_out_questions(), *held_out_sums(), *unusual_whys()]
    asked += with_system(held_out_questions(count=40))
    assert digest(map(asdict, (*asked, *held_out_conversations()))) == QUESTIONS


def test_every_written_answer_is_made_of_known_sentences() -> None:
    knowledge = load_knowledge()
    for faq in knowledge.faqs:
        text = faq.answer.removeprefix("Yes: ").removeprefix("No: ")
        assert known_sentences() >= set(sentences(text)), faq


def test_a_question_goes_behind_its_system_message() -> None:
    plain = Question("why?", (), "glossary")
    assert _messages(plain) == [{"role": "user", "content": "why?"}]
    [system, user] = _messages(Question("why?", (), "glossary", system=SHORT_SYSTEM))
    assert system == {"role": "system", "content": SHORT_SYSTEM}
    assert user == {"role": "user", "content": "why?"}


def test_what_a_prompt_off_the_subject_is_about_is_a_thing_or_an_action() -> None:
    things, actions = strange._written(actions=False), strange._written(actions=True)
    assert things
    assert actions
    assert not set(things) & set(actions)
    assert set(things) <= set(strange.names())
    assert set(actions) <= set(strange.verbs())
