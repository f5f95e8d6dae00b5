"""Requests that an engine answers on the part and on the reference, and the first token that differs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grader.kit.expect import Mismatch, expect_equal
from grader.kit.script import note, start_script
from yaie.core.config import EngineConfig
from yaie.core.errors import PartError
from yaie.core.params import SamplingParams
from yaie.demos.runs import ask, run
from yaie.engine.llm_engine import LLMEngine

SYSTEM = (
    "You answer questions on how an inference engine for language models works. Each answer is one "
    "sentence or two, with the names that the field uses; where a number helps, it is there. If a "
    "question is not about inference, say so."
)
PROMPTS = (
    f"{SYSTEM} What is a KV cache?",
    f"{SYSTEM} What does the scheduler do in each step, and what does it look at?",
    "Why is decode slow?",
    f"{SYSTEM} What is a KV cache?",
)
"""Three begin with the same blocks, and two are the same."""
LONG: dict[str, Any] = {"max_tokens": 10, "ignore_eos": True}
GREEDY = SamplingParams(temperature=0, **LONG)
PARAMS = (
    GREEDY,
    SamplingParams(temperature=0, repetition_penalty=1.3, **LONG),
    SamplingParams(temperature=0.8, top_k=40, top_p=0.9, min_p=0.02, seed=7, **LONG),
    SamplingParams(temperature=1.0, frequency_penalty=0.5, seed=11, **LONG),
)
WHY = (
    "Each test before looked at one task of the part. This one asks for all of them together, in the "
    "order, the shapes and the dtypes of the engine, again and again on the same objects."
)


@dataclass(frozen=True, slots=True)
class Trial:
    """settings: of the engine. prompts: questions, or tokens. params: one for all, or one for each.
    rounds: how often they are answered, by the same engine."""

    settings: dict[str, Any] = field(default_factory=dict)
    prompts: Sequence[str | list[int]] = PROMPTS
    params: Sequence[SamplingParams] = PARAMS
    rounds: int = 2


def expect_the_same_tokens(lab: str, trial: Trial, beside: dict[str, Any] | None = None) -> None:
    """Answer the prompts on the part, which is imported as `labs.<lab>`, and on the reference. beside:
    the settings of its engine, where they are others."""
    right = answers("none", replace(trial, settings=beside or trial.settings))
    start_script()
    told = ", ".join(f"{name}={value!r}" for name, value in trial.settings.items())
    note(f"# the engine with your {lab} and the reference's other parts: {told or 'as it starts'}")
    for number, prompt in enumerate(trial.prompts):
        note(f"# request {number}: {prompt!r}, {shown(trial.params[number % len(trial.params)])}")
    try:
        got = answers(lab, trial)
    except PartError as error:
        raise Mismatch(f"a request failed: {error.message}", why=WHY) from error
    for turn, (mine, wanted) in enumerate(zip(got, right, strict=True)):
        for number, (tokens, expected) in enumerate(zip(mine, wanted, strict=True)):
            again = f", asked {turn + 1} times" if turn else ""
            expect_equal(tokens, expected, f"the tokens of request {number}{again}", why=WHY)


def answers(mine: str, trial: Trial) -> list[list[list[int]]]:
    """The tokens of each round and request."""
    engine = LLMEngine(EngineConfig(device="cpu", mine=mine, threads=1, **trial.settings))
    try:
        prompts = [
            ask(engine, prompt) if isinstance(prompt, str) else prompt for prompt in trial.prompts
        ]
        return [run(engine, prompts, *trial.params).token_ids for _ in range(trial.rounds)]
    finally:
        engine.close()


def shown(params: SamplingParams) -> str:
    """What it asks for, in short."""
    plain = SamplingParams()
    asked = {
        name: getattr(params, name)
        for name in type(params).__dataclass_fields__
        if getattr(params, name) != getattr(plain, name)
    }
    return ", ".join(f"{name}={value!r}" for name, value in asked.items())
