"""A run of the engine to its end, step by step, with what each step did."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from yaie.core.batch import StepPlan
from yaie.core.errors import PartError
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request
from yaie.engine.llm_engine import LLMEngine

MOST_STEPS = 2_000
"""More than any demo needs: a step loop that does not end is stopped there."""


@dataclass(slots=True)
class Step:
    """One step that was sent. tokens: by the number of the request, how many were computed, drafts among
    them; lens: how many of its tokens have keys then. table_blocks: blocks that the tables name, each
    counted once. gained: by request, the texts and tokens that came out meanwhile."""

    tokens: dict[int, int] = field(default_factory=dict)
    lens: dict[int, int] = field(default_factory=dict)
    table_blocks: int = 0
    gained: dict[int, tuple[str, list[int]]] = field(default_factory=dict)


@dataclass(slots=True)
class Run:
    """texts, token_ids: by request. steps: calls of `step`, in order. prompt_tokens, cached_tokens: by
    request. stats: how much the engine's counters grew."""

    texts: list[str]
    token_ids: list[list[int]]
    prompt_tokens: list[int]
    cached_tokens: list[int]
    steps: list[Step]
    stats: dict[str, float]

    @property
    def num_steps(self) -> int:
        """Steps that computed something."""
        return sum(bool(step.tokens) for step in self.steps)

    @property
    def computed(self) -> int:
        """Tokens that went through the model."""
        return sum(sum(step.tokens.values()) for step in self.steps)

    def first_token_step(self, number: int) -> int:
        """The step in which a request gained its first token, counted from 1; 0 if it gained none."""
        found = (i for i, step in enumerate(self.steps, 1) if step.gained.get(number, ("", []))[1])
        return next(found, 0)


def ask(engine: LLMEngine, *turns: str) -> list[int]:
    """The prompt of a conversation: the user's words first, then the answer, in turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return engine.encode_chat(messages)


def run(engine: LLMEngine, prompts: Sequence[Any], *params: SamplingParams) -> Run:
    """Answer these prompts in one batch. params: one for all, or one for each.

    Raises PartError if a request fails, or if the loop does not end.
    """
    before = engine.stats()
    each = list(params) * len(prompts) if len(params) == 1 else list(params)
    requests: list[Request] = []
    for prompt, own in zip(prompts, each, strict=True):
        requests += engine.add_request(prompt, own)
    number = {request.request_id: index for index, request in enumerate(requests)}
    done = Run([""] * len(requests), [[] for _ in requests], [], [], [], {})
    while engine.has_work:
        if len(done.steps) == MOST_STEPS:
            raise PartError(f"the requests did not end in {MOST_STEPS:,} steps")
        done.steps.append(_step(engine, number, done))
    after = engine.stats()
    done.prompt_tokens = [request.num_prompt_tokens for request in requests]
    done.cached_tokens = [request.num_cached_tokens for request in requests]
    done.stats = {name: after[name] - before.get(name, 0) for name in after}
    return done


def _step(engine: LLMEngine, number: dict[str, int], done: Run) -> Step:
    step = Step()

    def planned(plan: StepPlan) -> None:
        blocks: set[int] = set()
        for item in plan.scheduled:
            index = number[item.request.request_id]
            step.tokens[index] = item.num_tokens
            step.lens[index] = item.start + item.num_tokens
            blocks.update(item.block_table)
        step.table_blocks = len(blocks)

    engine.tell_plans(planned)
    outputs = engine.step()
    engine.tell_plans(None)
    for output in outputs:
        if output.finish_reason is FinishReason.ERROR:
            raise PartError(output.error or "a request failed")
        index = number[output.request_id]
        step.gained[index] = (output.text, list(output.token_ids))
        done.texts[index] += output.text
        done.token_ids[index] += output.token_ids
    return step
