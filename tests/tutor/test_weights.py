"""The shipped weights: they load, they are small, and they answer."""

import json
import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from yaie.tutor import TUTOR_DIR, TUTOR_PATH
from yaie.tutor.corpus import build_corpus, encode
from yaie.tutor.dialogues import REFUSAL, dialogues
from yaie.tutor.evaluate import Tutor, is_right
from yaie.tutor.held_out import held_out_questions
from yaie.tutor.tokenizer import CONTEXT_LENGTH

MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def tutor() -> Tutor:
    return Tutor(TUTOR_PATH)


def test_the_files_are_those_of_a_hugging_face_model_and_small() -> None:
    names = {path.name for path in TUTOR_PATH.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "README.md"} <= names
    assert {"tokenizer.json", "tokenizer_config.json", "training_log.json"} <= names
    assert sum(path.stat().st_size for path in TUTOR_PATH.iterdir()) < 25 * MEGABYTE


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


def test_the_corpus_is_the_same_however_many_processes_write_it() -> None:
    plain = Tokenizer.from_file(str(TUTOR_PATH / "tokenizer.json"))
    one, two = (build_corpus(plain, shards=2, seed=1, processes=n) for n in (1, 2))
    assert one.tokens.shape[1] == CONTEXT_LENGTH
    assert (one.tokens == two.tokens).all()
    assert (one.learn == two.learn).all()


def test_held_out_questions_are_answered(tutor: Tutor) -> None:
    """A quick sample; `python -m yaie.tutor.evaluate` asks all of them."""
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


def test_the_recorded_evaluation_meets_its_targets() -> None:
    recorded = json.loads(Path(TUTOR_DIR / "evaluation.json").read_text(encoding="utf-8"))
    assert recorded["held_out"]["right"] >= 0.9
    assert recorded["held_out"]["ended"] >= 0.99
    assert recorded["held_out"]["known_sentences"] >= 0.99
    assert recorded["refusals"]["off_subject_refused"] >= 0.9
    assert recorded["refusals"]["on_subject_refused"] == 0
    assert recorded["unknown_things"]["refused"] >= 0.9
    assert recorded["unusual_whys"]["right"] >= 0.7
