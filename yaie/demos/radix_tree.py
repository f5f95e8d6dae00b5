"""Lab 4: a chat, of which each question finds the turns before it in the tree."""

from yaie.core.params import SamplingParams
from yaie.demos.runs import Run, ask, run
from yaie.demos.shown import Shown, row
from yaie.demos.subject import Subject

QUESTIONS = ("What is a KV cache?", "Why is decode slow?", "What is a block table?")
GREEDY = SamplingParams(temperature=0, max_tokens=40)


def show(subject: Subject) -> Shown:
    """Three questions, each with the whole chat before it."""
    without, none = _chat(subject, prefix_caching=False)
    mine, kept = _chat(subject, prefix_caching=True)
    counts = [(plain.computed, found.computed) for plain, found in zip(without, mine, strict=True)]
    all_tokens, own = (sum(column) for column in zip(*counts, strict=True))
    cached = [sum(one.cached_tokens[0] for one in runs) for runs in (without, mine)]
    equal = sum(a.token_ids == b.token_ids for a, b in zip(without, mine, strict=True))
    return Shown(
        "A chat of three questions, each sent with all that was said before it.",
        ("no tree", "with the tree"),
        (
            *(row(f"question {i}: tokens computed", *pair) for i, pair in enumerate(counts, 1)),
            row("tokens found in the tree", *cached),
            row("blocks in the tree behind the chat", none, kept),
            row("answers that are the same", "", f"{equal} of {len(QUESTIONS)}"),
        ),
        f"The tree found {cached[1]} tokens, so {own} were computed instead of {all_tokens}.",
    )


def _chat(subject: Subject, *, prefix_caching: bool) -> tuple[list[Run], int]:
    """A run for each question, and how many blocks are cached behind them."""
    with subject.engine(prefix_caching=prefix_caching) as engine:
        turns: list[str] = []
        runs = []
        for question in QUESTIONS:
            turns.append(question)
            runs.append(run(engine, [ask(engine, *turns)], GREEDY))
            turns.append(runs[-1].texts[0])
        return runs, engine.reset_prefix_cache()
