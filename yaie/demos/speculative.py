"""Lab 18: drafts, and the steps that they save."""

from typing import Any

from yaie.core.params import SamplingParams
from yaie.demos.runs import Run, ask, run
from yaie.demos.shown import Shown, counted, row, same
from yaie.demos.subject import Subject

FACT = (
    "the KV cache stores the attention keys and values of all tokens processed so far, so that a decode "
    "step computes them only for the new token"
)
QUESTION = f"I read that {FACT}. What is a KV cache?"
GREEDY = SamplingParams(temperature=0, max_tokens=48)
DRAFTS = 4


def show(subject: Subject) -> Shown:
    """A question that holds its answer, to be found there."""
    plain = _answer(subject, {})
    # As many drafts in each step: what has proved worth it depends on how fast the machine is.
    mine = _answer(subject, {"speculate": "ngram", "num_drafts": DRAFTS})
    drafts, accepted = (
        [int(done.stats[name]) for done in (plain, mine)]
        for name in ("draft_tokens", "accepted_draft_tokens")
    )
    equal = same(plain.token_ids, mine.token_ids)
    return Shown(
        "A question that holds its own answer: I read that the KV cache stores ... What is a KV cache?",
        ("no drafts", f"up to {DRAFTS} drafts a step"),
        (
            row("steps", plain.num_steps, mine.num_steps),
            row("tokens computed", plain.computed, mine.computed),
            row("drafts", *drafts),
            row("accepted", *accepted),
            row("tokens of the answer", len(plain.token_ids[0]), len(mine.token_ids[0])),
            row("the answer", "", equal),
        ),
        f"Drafts {drafts[1]}, accepted {accepted[1]}: {counted(mine.num_steps, 'step')} in place of "
        f"{plain.num_steps}, and {equal} answer.",
    )


def _answer(subject: Subject, settings: dict[str, Any]) -> Run:
    with subject.engine(**settings) as engine:
        return run(engine, [ask(engine, QUESTION)], GREEDY)
