"""The training text: deterministic, well formed, and without a held-out question."""

import random
import re
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from book.tutor import TEXTS, jargon, strange
from book.tutor.arithmetic import KINDS, random_sum, training_sum
from book.tutor.dialogues import REFUSAL, dialogues
from book.tutor.glossary import load_knowledge, load_phrasings
from book.tutor.held_out import (
    held_out_conversations,
    held_out_questions,
    held_out_sums,
    held_out_templates,
    unusual_whys,
)
from book.tutor.off_subject import ask_off_subject
from book.tutor.questions import CLOSERS, OPENERS
from book.tutor.templates import expand, normalise

pytestmark = pytest.mark.nightly


@cache
def sample() -> list[list[dict[str, Any]]]:
    """Of the training text. Not written at import, which every worker of a test run does."""
    return list(dialogues(seed=7, count=4000))


@cache
def asked() -> set[str]:
    """Normal forms of what is asked there."""
    return {normalise(m["content"]) for talk in sample() for m in talk if m["role"] == "user"}


def test_the_same_seed_writes_the_same_conversations() -> None:
    assert list(dialogues(seed=7, count=50)) == sample()[:50]
    assert list(dialogues(seed=8, count=50)) != sample()[:50]


def test_turns_alternate_and_the_tutor_speaks_last() -> None:
    for talk in sample():
        roles = [message["role"] for message in talk]
        assert roles[-1] == "assistant"
        assert "system" not in roles[1:]
        assert all(first != second for first, second in pairwise(roles))
        assert all(message["content"].strip() for message in talk)


def test_there_are_conversations_with_and_without_a_system_message() -> None:
    lengths = [len(talk[0]["content"]) for talk in sample() if talk[0]["role"] == "system"]
    assert 0.4 < len(lengths) / len(sample()) < 0.7
    assert max(lengths) > 4000


def test_off_subject_prompts_are_a_fair_share() -> None:
    replies = [m["content"] for talk in sample() for m in talk if m["role"] == "assistant"]
    assert 0.1 < sum(reply == REFUSAL for reply in replies) / len(replies) < 0.25


def test_every_term_is_asked_about() -> None:
    said = {m["content"] for talk in sample() for m in talk if m["role"] == "assistant"}
    missing = [term.name for term in load_knowledge().terms if term.what not in said]
    assert len(missing) < 10


def training_templates() -> set[str]:
    """All expansions of all training templates and whole questions, in normal form."""
    rows = [row for intent in load_phrasings("train").values() for row in intent["templates"]]
    rows += [row for faq in load_knowledge().faqs for row in faq.ask]
    return {normalise(text) for row in rows for text in expand(row)}


def test_no_held_out_template_is_a_training_template() -> None:
    trained = training_templates()
    assert [text for text in held_out_templates() if normalise(text) in trained] == []


def test_no_held_out_question_occurs_in_training() -> None:
    questions = [question.text for question in held_out_questions()]
    prompts = load_phrasings("held_out")
    questions += [question.text for question in unusual_whys()]
    for name in ("off_subject", "off_subject_unknown", "on_subject"):
        questions += prompts[name]["prompts"]
    assert [text for text in questions if normalise(text) in asked()] == []


def test_no_held_out_prompt_is_listed_among_the_refused_ones() -> None:
    listed = {
        normalise(thing) for g in load_phrasings("off_subject")["group"] for thing in g["things"]
    }
    held_out = load_phrasings("held_out")
    prompts = held_out["off_subject"]["prompts"] + held_out["off_subject_unknown"]["prompts"]
    listed |= {normalise(text) for row in strange_templates() for text in expand(row)}
    assert [prompt for prompt in prompts if normalise(prompt) in listed] == []


def strange_templates() -> list[str]:
    tables = load_phrasings("strange")
    rows: list[str] = tables["wholes"]["templates"] + tables["sums"]["templates"]
    return rows


def test_training_never_mentions_the_unknown_things() -> None:
    held_out = load_phrasings("held_out")["off_subject_unknown"]
    words = set(held_out["words"])
    assert all(words & set(normalise(prompt).split()) for prompt in held_out["prompts"])
    groups = load_phrasings("off_subject")["group"]
    texts = [text for g in groups for text in (*g["things"], *g["templates"])]
    texts += [*strange_templates(), *strange.things(), *strange.names(), *strange.verbs()]
    texts += [*strange.quoted(), *OPENERS, *CLOSERS]
    texts += [row for intent in load_phrasings("train").values() for row in intent["templates"]]
    # What is asked of a tool that is not offered is refused, too.
    for path in sorted((TEXTS / "phrasings").glob("tool*.toml")):
        texts.append(path.read_text(encoding="utf-8"))
    seen = {word for text in texts for word in re.findall(r"[a-z0-9]+", text.lower())}
    assert words & seen == set()
    refused = [
        talk[index]["content"]
        for talk in sample()
        for index, message in enumerate(talk[1:])
        if message["content"] == REFUSAL
    ]
    # An invented name may end in any number; a number alone mentions nothing.
    named = {word for word in words if not word.isdigit()}
    assert [text for text in refused if named & set(normalise(text).split())] == []


def test_no_strange_noun_is_a_term() -> None:
    known = {name.lower() for term in load_knowledge().terms for name in (term.name, *term.aliases)}
    assert known & {noun.lower() for noun in (*strange.things(), *strange.names())} == set()


def test_off_subject_prompts_come_in_every_shape() -> None:
    rng = random.Random(0)
    prompts = {ask_off_subject(rng) for _ in range(3000)}
    assert len(prompts) > 2900
    assert all(prompt.strip() and "{" not in prompt for prompt in prompts)


def test_the_evaluation_set_has_its_size_and_is_deterministic() -> None:
    questions = held_out_questions()
    assert len(questions) == 200
    assert questions == held_out_questions()
    assert len({normalise(question.text) for question in questions}) > 195
    assert len(load_phrasings("held_out")["off_subject"]["prompts"]) == 50
    assert len(load_phrasings("held_out")["off_subject_unknown"]["prompts"]) == 30
    assert len(unusual_whys()) == 60
    assert len(held_out_conversations()) >= 8


def test_training_sums_are_never_held_out() -> None:
    rng = random.Random(0)
    trained = [training_sum(rng) for _ in range(5000)]
    assert not any(problem.held_out for problem in trained)
    held_out = {normalise(question.text) for question in held_out_sums()}
    assert not held_out & {normalise(problem.question) for problem in trained}


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_of_a_sum_is_right(kind: str) -> None:
    """Each 'expression = number' in the worked answer is computed again."""
    rng = random.Random(1)
    for _ in range(200):
        answer = random_sum(rng, kind).answer
        steps = re.findall(r"(\d+) ([x/]) (\d+)(?: KiB)? = (\d+)", answer)
        assert len(steps) == answer.count(" = ")
        for first, sign, second, result in steps:
            value = int(first) * int(second) if sign == "x" else int(first) / int(second)
            assert value == int(result)


def test_blocks_are_counted_up() -> None:
    from book.tutor.arithmetic import blocks

    rng = random.Random(2)
    assert blocks(40, 16, rng).answer == "2 x 16 = 32 is too few, 3 x 16 = 48 is enough: 3 blocks."
    assert blocks(16, 16, rng).answer == "1 x 16 = 16 is enough: 1 block."
    assert blocks(17, 16, rng).answer.endswith("2 blocks.")


def test_known_kv_cache_sizes() -> None:
    from book.tutor.arithmetic import Shape

    # 32 layers, 8 KV heads of 128, 2 bytes: 128 KiB per token, as Llama 3 8B has it.
    assert Shape(32, 8, 128, 2).bytes_per_token == 131072
    assert Shape(32, 8, 128, 2).steps().endswith("131072 bytes per token, which is 128 KiB")


def test_coined_terms_hold_no_known_one() -> None:
    rng = random.Random(4)
    terms = {jargon.coined(rng) for _ in range(3000)}
    assert len(terms) > 2500
    assert not jargon.is_free("adaptive batching of tides")
    assert not jargon.is_free("the KV cache ledger")
    known = [n.lower() for t in load_knowledge().terms for n in (t.name, *t.aliases) if len(n) > 4]
    padded = [f" {term.lower()} " for term in terms]
    assert [n for n in known if any(f" {n} " in text for text in padded)] == []


def test_questions_on_coined_terms_are_refused_and_filled() -> None:
    rng = random.Random(5)
    asked = {ask_off_subject(rng, ("jargon",)) for _ in range(400)}
    assert len(asked) > 390
    assert not any(set("{}[]|") & set(text) for text in asked)
