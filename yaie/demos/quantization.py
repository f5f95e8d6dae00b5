"""Lab 19: a model whose weights are rounded, in bytes and in answers."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from yaie.core.params import SamplingParams
from yaie.demos.runs import ask, run
from yaie.demos.shown import Shown, row
from yaie.demos.subject import Subject
from yaie.models.packed_checkpoint import write_checkpoint
from yaie.models.rounding import Recipe, round_model, windows
from yaie.models.tutor import CALIBRATION, TUTOR_PATH

QUESTIONS = ("What is a KV cache?", "Why is decode slow?", "What does a scheduler do?")
GREEDY = SamplingParams(temperature=0, max_tokens=24)
WINDOW, WINDOWS, GROUP = 256, 4, 128
RECIPES = {
    "int8": Recipe(8),
    "int4, nearest": Recipe(4, GROUP, gptq=False),
    "int4, GPTQ": Recipe(4, GROUP),
}


@dataclass(frozen=True, slots=True)
class Model:
    """weight_bytes: of the whole model. answers: tokens. logprobs: of each token of the questions and of
    the exact answers."""

    weight_bytes: int
    answers: list[list[int]]
    logprobs: list[float]


def show(subject: Subject) -> Shown:
    """Three answers on float32 weights, and on each kind of rounded ones."""
    exact = _model(subject, "tutor", None)
    models = {"float32": exact}
    calibration = _calibration()
    for name, recipe in RECIPES.items():
        with tempfile.TemporaryDirectory(prefix="yaie-demo-") as folder:
            target = Path(folder, "model")
            _round(
                subject, recipe, calibration if recipe.bits == 4 and recipe.gptq else None, target
            )
            models[name] = _model(subject, str(target), exact.answers)
    equal = {name: _kept(one.answers, exact.answers) for name, one in models.items()}
    total = sum(map(len, exact.answers))
    share = {name: one.weight_bytes / exact.weight_bytes for name, one in models.items()}
    moved = {name: _moved(one.logprobs, exact.logprobs) for name, one in models.items()}
    return Shown(
        f"{len(QUESTIONS)} answers of the tutor, greedily: {total} tokens.",
        tuple(models),
        (
            row("bytes of weights", *(one.weight_bytes for one in models.values())),
            row("tokens kept", *equal.values()),
            row("change of log p, mean", *(f"{change:.4f}" for change in moved.values())),
        ),
        f"int8 takes {share['int8']:.0%} of the bytes and keeps {equal['int8']} of {total} tokens; int4 "
        f"takes {share['int4, GPTQ']:.0%}, and moves a token's log-probability by "
        f"{moved['int4, GPTQ']:.4f} with GPTQ, {moved['int4, nearest']:.4f} without.",
    )


def _calibration() -> Tensor:
    """[WINDOWS, WINDOW] tokens of the tutor's own kind of talk."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(TUTOR_PATH)
    said = (json.loads(line)["messages"] for line in CALIBRATION.read_text("utf-8").splitlines())
    texts = (tokenizer.apply_chat_template(talk, tokenize=False) for talk in said)
    return windows(tokenizer, texts, WINDOW, WINDOWS)


def _round(subject: Subject, recipe: Recipe, calibration: Tensor | None, target: Path) -> None:
    """Write the tutor with rounded weights."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    network = AutoModelForCausalLM.from_pretrained(TUTOR_PATH, dtype=torch.float32).eval()
    packed = round_model(network, subject.package, recipe, calibration, lambda _: None)
    write_checkpoint(TUTOR_PATH, target, packed, recipe)


def _model(subject: Subject, model: str, exact: list[list[int]] | None) -> Model:
    """Ask a model the questions, and for the log-probabilities of `exact` answers, else of its own."""
    with subject.engine(model=model, backend="torch") as engine:
        prompts = [ask(engine, question) for question in QUESTIONS]
        answers = run(engine, prompts, GREEDY).token_ids
        logprobs: list[float] = []
        for prompt, ids in zip(prompts, exact or answers, strict=True):
            params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
            (request,) = engine.add_request([*prompt, *ids], params)
            while engine.has_work:
                engine.step()
            told = request.prompt_logprobs or []
            logprobs += [one.logprob for one in told if one is not None]
        return Model(engine.info.weight_bytes, answers, logprobs)


def _moved(one: Sequence[float], other: Sequence[float]) -> float:
    """The mean difference between log-probabilities of the same tokens."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / max(1, len(one))


def _kept(answers: Sequence[list[int]], exact: Sequence[list[int]]) -> int:
    """How many tokens of all answers are the same before the first of an answer that is not."""
    kept = 0
    for one, other in zip(answers, exact, strict=True):
        pairs = enumerate(zip(one, other, strict=False))
        shorter = min(len(one), len(other))
        kept += next((i for i, (a, b) in pairs if a != b), shorter)
    return kept
