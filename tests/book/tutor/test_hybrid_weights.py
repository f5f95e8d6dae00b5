"""The shipped weights of the tutor's sibling: small, in the tutor's tokens, and they answer."""

import json
import random
from typing import Any

import pytest

from book.tutor.card import write_card
from book.tutor.evaluate import Tutor, is_right
from book.tutor.held_out import held_out_questions
from book.tutor.unseen import KINDS, unseen_questions
from yaie.models.tutor import HYBRID_PATH, TUTOR_DIR, TUTOR_PATH

MOST_BYTES = 8_000_000


def read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((HYBRID_PATH / name).read_text(encoding="utf-8"))
    return loaded


def test_the_folder_is_a_hugging_face_model_of_less_than_eight_megabytes() -> None:
    names = {path.name for path in HYBRID_PATH.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "README.md"} <= names
    assert {"tokenizer.json", "tokenizer_config.json", "training_log.json"} <= names
    assert sum(path.stat().st_size for path in HYBRID_PATH.iterdir()) < MOST_BYTES


def test_its_tokens_are_the_tutors() -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (HYBRID_PATH / name).read_bytes() == (TUTOR_PATH / name).read_bytes()


def test_two_of_three_layers_keep_a_state() -> None:
    config, log = read("config.json"), read("training_log.json")
    assert config["layer_types"] == ["conv", "conv", "full_attention"] * 3
    assert config["dtype"] == "bfloat16"
    assert (log["architecture"], log["init"], log["parameters"]) == ("lfm2", False, 3_798_144)


def test_held_out_questions_are_answered() -> None:
    """A quick sample; `python -m book.tutor.evaluate` asks all of them."""
    tutor = Tutor(HYBRID_PATH)
    questions = random.Random(0).sample(held_out_questions(), 24)
    answers = tutor.answer([[{"role": "user", "content": q.text}] for q in questions])
    right = [is_right(q, a.text) for q, a in zip(questions, answers, strict=True)]
    assert sum(right) >= 22, [q.text for q, ok in zip(questions, right, strict=True) if not ok]
    assert all(answer.ended for answer in answers)


def test_the_recorded_evaluation_is_whole_and_good_enough_to_talk_to() -> None:
    result = read("evaluation.json")
    unseen = result["unseen"]
    assert unseen["questions"] == len(unseen_questions())
    assert len(unseen["wrong"]) == round((1 - unseen["right"]) * unseen["questions"])
    assert set(KINDS) <= set(unseen)
    assert result["held_out"]["right"] >= 0.9
    assert result["held_out"]["ended"] >= 0.99
    assert result["refusals"]["off_subject_refused"] >= 0.9
    assert result["refusals"]["on_subject_refused"] == 0


@pytest.mark.parametrize("folder", [TUTOR_PATH, HYBRID_PATH], ids=["tutor", "hybrid"])
def test_a_card_says_what_was_recorded(folder: Any, tmp_path: Any) -> None:
    """Written again from config, log and evaluation, it is what is shipped."""
    beside = TUTOR_DIR if folder == TUTOR_PATH else folder
    for name in ("config.json", "training_log.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    write_card(tmp_path, json.loads((beside / "evaluation.json").read_text(encoding="utf-8")))
    assert (tmp_path / "README.md").read_bytes() == (folder / "README.md").read_bytes()


def test_its_card_names_the_command_and_both_models_figures() -> None:
    card = (HYBRID_PATH / "README.md").read_text(encoding="utf-8")
    log, unseen = read("training_log.json"), read("evaluation.json")["unseen"]
    assert f"--architecture lfm2 --seconds 420 --batch 32 --lr {log['peak_learning_rate']}" in card
    assert f"--seed {log['seed']} --first-word 3 --systems 0.35 --mean\n" in card
    tutor = json.loads((TUTOR_DIR / "evaluation.json").read_text(encoding="utf-8"))["unseen"]
    row = f"| unseen questions, of {unseen['questions']} | {unseen['right']:.1%} |"
    assert f"{row} {tutor['right']:.1%} |" in card
