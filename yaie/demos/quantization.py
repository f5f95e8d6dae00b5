"""Lab 19: a model whose weights are rounded, in bytes and in answers."""

import tempfile
from pathlib import Path
from typing import Any

import torch

from yaie.core.params import SamplingParams
from yaie.demos.runs import ask, run
from yaie.demos.shown import Shown, row
from yaie.demos.subject import Subject
from yaie.models.packed_checkpoint import write_checkpoint
from yaie.models.rounding import Recipe, round_model, windows
from yaie.models.tutor import CALIBRATION, TUTOR_PATH

QUESTIONS = ("What is a KV cache?", "Why is decode slow?", "What does a scheduler do?")
GREEDY = SamplingParams(temperature=0, max_tokens=24)
WINDOW, WINDOWS, GROUP = 256, 4, 64
RECIPES = {
    "int8": Recipe(8),
    "int4, nearest": Recipe(4, GROUP, gptq=False),
    "int4, GPTQ": Recipe(4, GROUP),
}


def show(subject: Subject) -> Shown:
    """Three answers on float32 weights, and on each kind of rounded ones."""
    import json

    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    answers = {"float32": _answers(subject, "tutor")}
    tokenizer = AutoTokenizer.from_pretrained(TUTOR_PATH)
    lines = CALIBRATION.read_text("utf-8").splitlines()
    said = (json.loads(line)["messages"] for line in lines)
    texts = (tokenizer.apply_chat_template(talk, tokenize=False) for talk in said)
    tokens = windows(tokenizer, texts, WINDOW, WINDOWS)
    for name, recipe in RECIPES.items():
        network = AutoModelForCausalLM.from_pretrained(TUTOR_PATH, dtype=torch.float32).eval()
        packed = round_model(network, subject.package, recipe, tokens, lambda _: None)
        with tempfile.TemporaryDirectory(prefix="yaie-demo-") as folder:
            write_checkpoint(TUTOR_PATH, Path(folder, "model"), packed, recipe)
            answers[name] = _answers(subject, str(Path(folder, "model")))
    weights = {name: size for name, (size, _) in answers.items()}
    exact = answers["float32"][1]
    equal = {
        name: sum(_equal(a, b) for a, b in zip(own, exact, strict=True))
        for name, (_, own) in answers.items()
    }
    total = sum(map(len, exact))
    return Shown(
        f"{len(QUESTIONS)} answers, greedily: {total} tokens.",
        tuple(answers),
        (
            row("bytes of weights", *weights.values()),
            row("tokens before the first that differs", *equal.values()),
        ),
        f"int8 takes {weights['int8'] / weights['float32']:.0%} of the bytes and keeps {equal['int8']} "
        f"of {total} tokens; int4 takes {weights['int4, GPTQ'] / weights['float32']:.0%} and keeps "
        f"{equal['int4, GPTQ']} with GPTQ, {equal['int4, nearest']} without.",
    )


def _answers(subject: Subject, model: str) -> tuple[int, list[list[int]]]:
    """Bytes of the weights, and the tokens of each answer."""
    with subject.engine(model=model, backend="torch") as engine:
        done = run(engine, [ask(engine, question) for question in QUESTIONS], GREEDY)
        return engine.info.weight_bytes, done.token_ids


def _equal(one: list[Any], other: list[Any]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
