"""Lab 5: chunks and decodes of many requests in few calls of attention."""

from collections import Counter
from typing import Any

from torch import Tensor

from yaie.core.params import SamplingParams
from yaie.demos.runs import Run, ask, run
from yaie.demos.shown import Shown, row
from yaie.demos.subject import Subject
from yaie.demos.watched import watched

QUESTIONS = (
    "What is a block?",
    "Why is decode slow?",
    "What is a KV cache?",
    "What does a scheduler do?",
    "What is a slot?",
    "What is prefill?",
)
GREEDY = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)


def show(subject: Subject) -> Shown:
    """Six questions in one batch, beside a call for each sequence of each step."""
    done, calls, size, layers = _batch(subject)
    lens = [length for step in done.steps for length in step.lens.values()]
    one_by_one = layers * len(lens)
    needed = layers * sum(-(-length // size) * size for length in lens)
    alone = [_alone(subject, question) for question in QUESTIONS]
    equal = sum(a == b for a, b in zip(alone, done.token_ids, strict=True))
    return Shown(
        f"{len(QUESTIONS)} questions at once: {done.num_steps} steps through {layers} layers.",
        ("a call for each sequence", "in groups"),
        (
            row("calls of attention", one_by_one, calls["attention"]),
            row("slots gathered", needed, calls["slots"]),
            row("answers as when asked alone", "", f"{equal} of {len(QUESTIONS)}"),
        ),
        f"{calls['attention']} calls instead of {one_by_one}, for "
        f"{calls['slots'] / max(1, needed) - 1:.0%} more slots gathered, and {equal} of "
        f"{len(QUESTIONS)} answers as when asked alone.",
    )


def _batch(subject: Subject) -> tuple[Run, Counter[str], int, int]:
    """The run, calls of attention and slots gathered, the size of a block, and layers."""
    pool, ops = (
        subject.reference("paged_cache").KVPool,
        subject.reference("transformer_ops").TransformerOps,
    )
    calls: Counter[str] = Counter()

    def attended(*_: Any) -> None:
        calls["attention"] += 1

    def gathered(layer: int, tables: Tensor) -> None:
        calls["slots"] += tables.numel() * size

    with subject.engine(backend="torch") as engine:
        size, layers = engine.config.block_size, len(engine.model.adapter.kv_layers)
        prompts = [ask(engine, question) for question in QUESTIONS]
        with watched(ops, "attention", attended), watched(pool, "gather", gathered):
            done = run(engine, prompts, GREEDY)
    return done, calls, size, layers


def _alone(subject: Subject, question: str) -> list[int]:
    with subject.engine(backend="torch", mine="none", prefix_caching=False) as engine:
        return run(engine, [ask(engine, question)], GREEDY).token_ids[0]
