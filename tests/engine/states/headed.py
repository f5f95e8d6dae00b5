"""A tiny Qwen3.5 whose checkpoint has a head for drafts, and the drafts that an engine makes with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.exact import MAX_TOKENS, Case
from tests.engine.oracle import greedy, make_prompts, reference
from tests.models.own_heads import NaiveHead, trained_head, with_head
from tests.models.tiny import AMPLIFIED, tiny_model
from yaie import LLMEngine
from yaie.core.batch import StepPlan
from yaie.core.step import StepResult
from yaie.engine.drafting.lookahead import AheadProposer

CLOSE = 5 * AMPLIFIED["qwen3_5"]
"""Logits of the naive head that lie no further apart may be either's choice."""
DRAFTS: dict[str, Any] = {"speculate": "mtp", "num_drafts": 3}
STEPS = 24
Seen = list[tuple[list[int], list[int]]]


def headed_case(root: Path) -> tuple[Case, NaiveHead]:
    """A checkpoint with a head that knows every other answer, prompts whose answers rounding does not
    decide, and the head's sibling."""
    torch.set_num_threads(1)
    plain = tiny_model("qwen3_5", root / "plain")
    prompts = make_prompts(28, vocab=256)
    expected, margins = greedy(plain, prompts, MAX_TOKENS)
    chosen = [i for i, margin in enumerate(margins) if margin > CLOSE]
    assert len(chosen) >= 16
    prompts, expected = ([every[i] for i in chosen] for every in (prompts, expected))
    model = reference(plain)
    pairs = list(zip(prompts, expected, strict=True))[::2]
    head = trained_head(model, [[*prompt, *answer] for prompt, answer in pairs], STEPS)
    folder = with_head(plain, root / "headed", head)
    return Case(folder, prompts, expected), NaiveHead(model, head)


@contextmanager
def seeing() -> Iterator[Seen]:
    """Every text behind which drafts are made, and these."""
    seen: Seen = []
    take = AheadProposer.take

    def noted(proposer: AheadProposer, plan: StepPlan, result: StepResult) -> None:
        texts, gains = [], iter(result.token_ids)
        for item in plan.scheduled:
            gained = next(gains) if item.samples else []
            texts.append([*item.request.token_ids, *gained])
        made = result.extras.get("proposals", {"rows": [], "counts": [], "tokens": []})
        for row, count, tokens in zip(made["rows"], made["counts"], made["tokens"], strict=True):
            seen.append((texts[row], tokens[:count].tolist()))
        take(proposer, plan, result)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AheadProposer, "take", noted)
        yield seen


def expect_drafts(naive: NaiveHead, seen: Seen, heard: dict[int, int] | None = None) -> None:
    """Each draft is the naive head's first choice, behind the drafts before it."""
    decided = 0
    with torch.no_grad():
        for text, drafts in sorted(seen, key=lambda one: -len(one[0])):
            scores = naive.scores(text, drafts, heard)
            best = scores.max(dim=1).values
            chosen = scores[range(len(drafts)), drafts]
            assert (best - chosen).max() <= CLOSE, (text, drafts, scores.argmax(dim=1))
            second = scores.topk(2, dim=1).values[:, 1]
            decided += int((best - second > CLOSE).sum())
    assert decided > 0.9 * sum(len(drafts) for _, drafts in seen)


def expect_some_right(engine: LLMEngine) -> None:
    stats = engine.stats()
    assert 0.1 < stats["accepted_draft_tokens"] / stats["draft_tokens"] < 0.8
