"""Lab 18: drafts, and the steps that they save."""

from yaie.core.params import SamplingParams
from yaie.demos.runs import Run, ask, run
from yaie.demos.shown import Shown, counted, row, same
from yaie.demos.subject import Subject

QUESTION = "What is a KV cache?"
GREEDY = SamplingParams(temperature=0, max_tokens=48)
DRAFTS = 4


def show(subject: Subject) -> Shown:
    """A question that is asked twice: the second answer stands in the prompt, to be found there."""
    with subject.engine(mine="none") as engine:
        answer = run(engine, [ask(engine, QUESTION)], GREEDY).texts[0]
    plain = _again(subject, answer, {})
    # As many drafts in each step: what has proved worth it depends on how fast the machine is.
    mine = _again(subject, answer, {"speculate": "ngram", "num_drafts": DRAFTS})
    drafts, accepted = (int(mine.stats[name]) for name in ("draft_tokens", "accepted_draft_tokens"))
    equal = same(plain.token_ids, mine.token_ids)
    return Shown(
        f"{QUESTION!r} is asked twice in a chat, and answered greedily the second time.",
        ("no drafts", f"up to {DRAFTS} drafts a step"),
        (
            row("steps", plain.num_steps, mine.num_steps),
            row("tokens computed", plain.computed, mine.computed),
            row("drafts", 0, drafts),
            row("accepted", 0, accepted),
            row("tokens of the answer", len(plain.token_ids[0]), len(mine.token_ids[0])),
            row("the answer", "", equal),
        ),
        f"Drafts {drafts}, accepted {accepted}: {counted(mine.num_steps, 'step')} in place of "
        f"{plain.num_steps}, and {equal} answer.",
    )


def _again(subject: Subject, answer: str, settings: dict[str, object]) -> Run:
    with subject.engine(prefix_caching=False, **settings) as engine:
        return run(engine, [ask(engine, QUESTION, answer, QUESTION)], GREEDY)
