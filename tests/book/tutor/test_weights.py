"""The shipped weights: they load, they are small, and they answer."""

import json
import random
from typing import Any

import pytest
from tokenizers import Tokenizer

from book.tutor.card import GOAL
from book.tutor.corpus import build_corpus, encode
from book.tutor.dialogues import REFUSAL, dialogues
from book.tutor.evaluate import Tutor, is_right
from book.tutor.held_out import held_out_questions
from book.tutor.tokenizer import CHAT_TEMPLATE, CONTEXT_LENGTH
from book.tutor.unseen import KINDS, tool_schema, unseen_questions
from yaie.models.tutor import TUTOR_DIR, TUTOR_PATH
from yaie.server.tools import choose_format
from yaie.server.tools.events import Arguments, Call, Content
from yaie.server.tools.formats import HermesFormat

MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def tutor() -> Tutor:
    return Tutor(TUTOR_PATH)


def test_the_files_are_those_of_a_hugging_face_model_and_small() -> None:
    names = {path.name for path in TUTOR_PATH.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "README.md"} <= names
    assert {"tokenizer.json", "tokenizer_config.json", "training_log.json"} <= names
    assert sum(path.stat().st_size for path in TUTOR_PATH.iterdir()) < 20 * MEGABYTE


def test_it_is_a_small_llama_in_bfloat16(tutor: Tutor) -> None:
    config = json.loads((TUTOR_PATH / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "llama"
    assert config["dtype"] == "bfloat16"
    assert config["max_position_embeddings"] == CONTEXT_LENGTH
    assert 5e6 < tutor.model.num_parameters() < 10e6


def test_eos_ends_a_turn_in_every_file(tutor: Tutor) -> None:
    tokenizer, model = tutor.tokenizer, tutor.model
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.eos_token_id == model.config.eos_token_id
    assert tokenizer.eos_token_id == model.generation_config.eos_token_id
    assert len({tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}) == 3


def test_servers_answer_greedily_by_default() -> None:
    generation = json.loads((TUTOR_PATH / "generation_config.json").read_text(encoding="utf-8"))
    assert generation["do_sample"] is False


@pytest.mark.parametrize("text", ["plain", " two  blanks\n\tand tabs ", "Größe 漢字 🎉 \x00 \r\n"])
def test_any_text_survives_the_tokenizer(tutor: Tutor, text: str) -> None:
    ids = tutor.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tutor.tokenizer.decode(ids) == text


def test_training_sees_what_the_chat_template_renders(tutor: Tutor) -> None:
    plain = Tokenizer.from_file(str(TUTOR_PATH / "tokenizer.json"))
    for talk in dialogues(seed=3, count=100):
        ids, learn = encode(plain, talk)
        rendered = tutor.tokenizer.apply_chat_template(talk, tokenize=False)
        assert ids == tutor.tokenizer(rendered, add_special_tokens=False)["input_ids"]
        learned = tutor.tokenizer.decode(
            [i for i, wanted in zip(ids, learn, strict=True) if wanted]
        )
        replies = [m["content"] for m in talk if m["role"] == "assistant"]
        assert learned == "".join(f"{reply}<|im_end|>" for reply in replies)


@pytest.mark.nightly
def test_the_corpus_is_the_same_however_many_processes_write_it() -> None:
    plain = Tokenizer.from_file(str(TUTOR_PATH / "tokenizer.json"))
    one, two = (build_corpus(plain, shards=2, seed=1, processes=n) for n in (1, 2))
    assert one.tokens.shape[1] == CONTEXT_LENGTH
    assert (one.tokens == two.tokens).all()
    assert (one.learn == two.learn).all()


def test_held_out_questions_are_answered(tutor: Tutor) -> None:
    """A quick sample; `python -m book.tutor.evaluate` asks all of them."""
    questions = random.Random(0).sample(held_out_questions(), 24)
    answers = tutor.answer([[{"role": "user", "content": q.text}] for q in questions])
    right = [is_right(q, a.text) for q, a in zip(questions, answers, strict=True)]
    assert sum(right) >= 22, [q.text for q, ok in zip(questions, right, strict=True) if not ok]
    assert all(answer.ended for answer in answers)


def test_the_flagship_question_and_some_refusals(tutor: Tutor) -> None:
    asked = ["What is a paged KV cache?", "How do I bake sourdough bread?", "what's 12*12"]
    asked += ["What is Pythagoras' theorem?", "What is the meaning of life?"]
    answers = tutor.answer([[{"role": "user", "content": text}] for text in asked])
    assert "block table" in answers[0].text
    assert [answer.text for answer in answers[1:]] == [REFUSAL] * 4


def test_the_shipped_template_is_the_one_that_training_writes(tutor: Tutor) -> None:
    assert tutor.tokenizer.chat_template == CHAT_TEMPLATE


CALLS = [
    (("weather_in",), "How is the weather in Lisbon at the moment?", {"place": "Lisbon"}),
    (("weather_in", "roll_die"), "roll a die with 20 sides please", {"sides": 20}),
]


@pytest.mark.parametrize(("offered", "question", "arguments"), CALLS)
def test_the_server_reads_a_call_that_the_tutor_makes(
    tutor: Tutor, offered: tuple[str, ...], question: str, arguments: dict[str, Any]
) -> None:
    """The tools go through the shipped template; the answer, in pieces, through the server's parser."""
    tools = [tool_schema(name) for name in offered]
    [answer] = tutor.answer([[{"role": "user", "content": question}]], tools=[tools])
    form = choose_format("auto", tutor.tokenizer.chat_template, lambda _: None)
    assert isinstance(form, HermesFormat)
    functions = [tool["function"] for tool in tools]
    parser = form.parser({function["name"]: function["parameters"] for function in functions})
    pieces = [answer.text[start : start + 5] for start in range(0, len(answer.text), 5)]
    events = [event for piece in pieces for event in parser.push(piece)] + parser.end()
    assert [event.name for event in events if isinstance(event, Call)] == [offered[-1]]
    written = "".join(event.text for event in events if isinstance(event, Arguments))
    assert json.loads(written) == arguments
    assert [event for event in events if isinstance(event, Content)] == []
    assert answer.ended


def recorded() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((TUTOR_DIR / "evaluation.json").read_text(encoding="utf-8"))
    return loaded


def test_the_recorded_evaluation_meets_its_targets() -> None:
    result = recorded()
    assert result["held_out"]["right"] >= 0.9
    assert result["held_out"]["ended"] >= 0.99
    assert result["held_out"]["known_sentences"] >= 0.99
    assert result["with_system_prompt"]["right"] >= 0.9
    assert result["sums"]["right"] >= 0.9
    assert result["refusals"]["off_subject_refused"] >= 0.9
    assert result["refusals"]["on_subject_refused"] == 0
    assert result["unknown_things"]["refused"] >= 0.9
    assert result["conversations"]["right"] >= 0.9
    assert result["unusual_whys"]["right"] >= 0.6


def test_the_recorded_evaluation_of_unseen_questions_has_all_kinds() -> None:
    unseen = recorded()["unseen"]
    assert unseen["questions"] == len(unseen_questions())
    assert unseen["right"] >= 0.75
    assert {kind: unseen[kind] for kind in KINDS if unseen[kind] < 0.65} == {}
    assert len(unseen["wrong"]) == round((1 - unseen["right"]) * unseen["questions"])


def test_the_card_has_the_recorded_figures_and_says_whether_the_goal_is_reached() -> None:
    unseen = recorded()["unseen"]
    card = (TUTOR_PATH / "README.md").read_text(encoding="utf-8")
    assert f"| unseen questions, of {unseen['questions']} | {unseen['right']:.1%} |" in card
    assert f"The goal for them was {GOAL:.0%}" in card
    assert ("so it is not reached" in card) == (unseen["right"] < GOAL)
