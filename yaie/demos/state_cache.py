"""Lab 22: prompts that share a prefix, on a hybrid: what a state takes, and what checkpoints spare; and
drafts that are taken back where they are wrong."""

import tempfile
from pathlib import Path
from typing import Any

from yaie.core.params import SamplingParams
from yaie.demos.hybrid import tiny_hybrid
from yaie.demos.runs import Run, ask, run
from yaie.demos.shown import Shown, counted, row, same
from yaie.demos.speculative import DRAFTS, QUESTION
from yaie.demos.speculative import GREEDY as TO_ITS_END
from yaie.demos.subject import Subject
from yaie.models.hub import HYBRID
from yaie.worker.sizing import block_bytes, slot_bytes

SYSTEM = (
    "You answer questions on how an inference engine for language models works. Each answer is one "
    "sentence or two, with the names that the field uses; where a number helps, it is there. If a "
    "question is not about inference, say so. A paged KV cache keeps keys and values in blocks of "
    "sixteen slots, and a block table says where each block is. The scheduler admits a request when "
    "blocks are free, and preempts one when none is left. A radix tree finds the longest prefix. "
)
QUESTIONS = (
    "What is a KV cache?",
    "Why is decode slow?",
    "What is a block table?",
    "What does a scheduler do?",
)
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
LONG = 1000
BLOCK = 16


def show(subject: Subject) -> Shown:
    """Four questions after one text, one after the other; and one that holds its own answer."""
    with tempfile.TemporaryDirectory(prefix="yaie-demo-") as folder:
        model = str(tiny_hybrid(Path(folder, "hybrid")))
        alone, _ = _answers(subject, model, prefix_caching=False, mine="none")
        kept, sizes = _answers(subject, model, prefix_caching=True)
    computed, spared = (sum(one.computed for one in runs) for runs in (alone, kept))
    cached = [[one.cached_tokens[0] for one in runs] for runs in (alone, kept)]
    equal = [same(a.token_ids, b.token_ids) for a, b in zip(alone, kept, strict=True)]
    found = sum(cached[1])
    plain = _drafted(subject, mine="none")
    drafted = _drafted(subject, speculate="ngram", num_drafts=DRAFTS)
    answer = same(plain.token_ids, drafted.token_ids)
    drafts, accepted = (
        int(drafted.stats[name]) for name in ("draft_tokens", "accepted_draft_tokens")
    )
    return Shown(
        "Four questions with the same text before them, to a tiny hybrid of random weights, without "
        "checkpoints and with them; one to tutor-hybrid, without drafts and with them.",
        ("without", "with"),
        (
            row("tokens computed", computed, spared),
            *(
                row(f"question {number}: tokens not computed", *pair)
                for number, pair in enumerate(zip(*cached, strict=True), 1)
            ),
            row("answers that are the same", "", f"{equal.count('the same')} of {len(QUESTIONS)}"),
            row("bytes of a state, whatever the length", "", sizes[0]),
            row(f"bytes of keys and values, {LONG:,} tokens", "", sizes[1]),
            row("steps of tutor-hybrid", plain.num_steps, drafted.num_steps),
            row("drafts that were accepted", "", f"{accepted} of {drafts}"),
            row("the answer", "", answer),
        ),
        f"{found} tokens were not computed, as a state after them had been kept: {spared} in place of "
        f"{computed}. Drafts {drafts}, accepted {accepted}: {counted(drafted.num_steps, 'step')} in "
        f"place of {plain.num_steps}, and {answer} answer.",
    )


def _drafted(subject: Subject, mine: str | None = None, **settings: Any) -> Run:
    """An answer of the embedded hybrid to a question that holds it."""
    settings = {"backend": "torch", "num_blocks": 64, **settings}
    with subject.engine(mine=mine, model=HYBRID, **settings) as engine:
        return run(engine, [ask(engine, QUESTION)], TO_ITS_END)


def _answers(
    subject: Subject, model: str, *, prefix_caching: bool, mine: str | None = None
) -> tuple[list[Run], tuple[int, int]]:
    """A run for each question; bytes of a state, and of the keys and values of LONG tokens."""
    settings = {"backend": "torch", "num_blocks": 64, "block_size": BLOCK}
    with subject.engine(
        mine=mine, model=model, prefix_caching=prefix_caching, **settings
    ) as engine:
        runs = [run(engine, [ask(engine, SYSTEM + one)], GREEDY) for one in QUESTIONS]
        adapter = engine.model.adapter
        block = block_bytes(adapter.kv_layers, BLOCK, adapter.dtype)
        return runs, (slot_bytes(adapter.state_layers), -(-LONG // BLOCK) * block)
