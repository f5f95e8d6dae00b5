"""Lab 6: who waits for whom: static batches, whole prompts, and chunks."""

from typing import Any

from yaie.core.params import SamplingParams
from yaie.demos.runs import Run, ask, run
from yaie.demos.shown import Cell, Shown, row
from yaie.demos.subject import Subject

LENGTHS = (4, 24, 6, 8, 16, 5, 12, 6)
"""Tokens that each request generates."""
LONG = 3
"""The request with a long prompt."""
SEQUENCES, BUDGET = 4, 64
QUESTION = "What is a block? "
KINDS: dict[str, dict[str, Any]] = {
    "static batches": {"batching": "static"},
    "whole prompts": {"chunked_prefill": False},
    "chunks": {},
}


def show(subject: Subject) -> Shown:
    """Eight requests for four places, one of them with a long prompt."""
    runs = [_run(subject, settings) for settings in KINDS.values()]
    waits = [sum(map(done.first_token_step, range(len(LENGTHS)))) / len(LENGTHS) for done in runs]
    largest = [max(sum(step.tokens.values()) for step in done.steps) for done in runs]
    steps = [done.num_steps for done in runs]
    return Shown(
        f"{len(LENGTHS)} requests for {SEQUENCES} places; prompt {LONG + 1} has "
        f"{runs[0].prompt_tokens[LONG]} tokens, and a step's budget is {BUDGET}.",
        tuple(KINDS),
        (
            row("steps", *steps),
            row("tokens computed", *(done.computed for done in runs)),
            row("tokens of the largest step", *largest),
            row("steps to a first token, mean", *waits),
            row(
                "to that of the last request",
                *(done.first_token_step(len(LENGTHS) - 1) for done in runs),
            ),
            row("answers of the right length", *map(_right, runs)),
        ),
        f"{steps[2]} steps instead of {steps[0]}; a first token comes after {waits[2]:.1f} steps "
        f"instead of {waits[0]:.1f}, and no step is longer than {largest[2]} tokens instead of "
        f"{largest[1]}.",
    )


def _run(subject: Subject, settings: dict[str, Any]) -> Run:
    with subject.engine(
        max_num_seqs=SEQUENCES, token_budget=BUDGET, prefix_caching=False, **settings
    ) as engine:
        prompts = [ask(engine, QUESTION * (30 if i == LONG else 1)) for i in range(len(LENGTHS))]
        params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in LENGTHS]
        return run(engine, prompts, *params)


def _right(done: Run) -> Cell:
    pairs = zip(done.token_ids, LENGTHS, strict=True)
    return f"{sum(len(ids) == length for ids, length in pairs)} of {len(LENGTHS)}"
