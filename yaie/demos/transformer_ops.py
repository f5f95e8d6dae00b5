"""Lab 2: one answer on the part's operations, and what becomes of it without each of them."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor

from yaie.core.errors import PartError
from yaie.core.params import SamplingParams
from yaie.demos.runs import ask, run
from yaie.demos.shown import Shown, row
from yaie.demos.subject import Subject
from yaie.demos.watched import replaced, watched

QUESTION = "What is a KV cache?"
TOKENS = 16
GREEDY = SamplingParams(temperature=0, max_tokens=TOKENS)


def no_norm(self: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.clone()


def only_add(self: Any, x: Tensor, residual: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    total = residual + x
    return total.clone(), total


def no_rope(self: Any, q: Tensor, k: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q, k


def only_mul(self: Any, x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return gate * up


def no_mask(
    self: Any, kv_lens: Tensor, tq: int, tk: int, window: Any, dtype: torch.dtype
) -> Tensor:
    return torch.zeros(len(kv_lens), tq, tk, dtype=dtype, device=kv_lens.device)


LEFT_OUT: dict[str, Callable[..., Any]] = {
    "rms_norm": no_norm,
    "fused_add_rms_norm": only_add,
    "rope": no_rope,
    "silu_mul": only_mul,
    "causal_mask": no_mask,
}
"""What stands in for an operation that is left out: the addition and the product stay."""


def show(subject: Subject) -> Shown:
    """Calls of each operation in one answer, and how long the answer stays right without it."""
    ops = subject.package.TransformerOps
    expected, _ = _answer(subject, "none")
    calls: Counter[str] = Counter()
    with ExitStack() as stack:
        for name in (*LEFT_OUT, "attention"):
            stack.enter_context(watched(ops, name, partial(_count, calls, name)))
        mine, text = _answer(subject, subject.mine)
    without = {}
    for name, method in LEFT_OUT.items():
        with replaced(ops, name, method):
            without[name] = _still_right(subject, mine)
    worst = min(without, key=without.__getitem__)
    right = _equal(mine, expected)
    return Shown(
        f"{QUESTION!r}, {len(mine)} tokens, with every layer on these operations.",
        ("calls", "tokens right without it"),
        (
            *(row(name, calls[name], without[name]) for name in LEFT_OUT),
            row("attention", calls["attention"], ""),
        ),
        f"{sum(calls.values()):,} calls gave {right} of {len(expected)} tokens as the engine has them "
        f"without this part; without {worst} {without[worst]} stay right.",
        (f"The answer: {text[:68]}",),
    )


def _count(calls: Counter[str], name: str, *_: Any, **__: Any) -> None:
    calls[name] += 1


def _answer(subject: Subject, mine: str) -> tuple[list[int], str]:
    with subject.engine(mine=mine, backend="torch") as engine:
        done = run(engine, [ask(engine, QUESTION)], GREEDY)
        return done.token_ids[0], done.texts[0]


def _still_right(subject: Subject, mine: list[int]) -> int:
    """How many tokens stay as they were. Without a norm numbers may grow until they are infinite."""
    try:
        return _equal(_answer(subject, subject.mine)[0], mine)
    except PartError:
        return 0


def _equal(one: list[int], other: list[int]) -> int:
    """How many tokens are the same before the first that is not."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
