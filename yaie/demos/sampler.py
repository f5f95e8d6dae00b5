"""Lab 1: two hundred draws of one token, beside the probabilities that they are drawn from."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.demos.runs import ask, run
from yaie.demos.shown import Shown, bar, row
from yaie.demos.subject import Subject
from yaie.demos.watched import watched
from yaie.explore.sampling import sampling_batch

QUESTION = "Why is decode slow?"
DRAWS = 200
TEMPERATURE, TOP_P = 4.0, 0.6
SHOWN = 8
"""Tokens in the histogram."""


def show(subject: Subject) -> Shown:
    """The first token of an answer, from the model's logits: greedily, with a temperature, and with
    top-p besides."""
    wanted = (
        SamplingParams(temperature=0),
        SamplingParams(temperature=TEMPERATURE),
        SamplingParams(temperature=TEMPERATURE, top_p=TOP_P),
    )
    logits: list[Tensor] = []

    def keep(given: Tensor, *_: Any) -> None:
        logits.append(given[:1].clone())

    with subject.engine() as engine:
        with watched(subject.package.Sampler, "sample", keep):
            run(engine, [ask(engine, QUESTION)], SamplingParams(temperature=0, max_tokens=1))
        drawn = [_drawn(subject, logits[0], params) for params in wanted]
        words = {token: engine.tokenizer.decode([token]) for token in drawn[2]}
    full = (logits[0][0].double() / TEMPERATURE).softmax(dim=0)
    kept = nucleus(full, TOP_P)
    greedy = torch.zeros_like(full).index_fill_(0, full.argmax(), 1.0)
    outside = [sum(n for token, n in found.items() if not kept[token]) for found in drawn]
    gaps = [_gap(f, p) for f, p in zip(drawn, (greedy, full, kept), strict=True)]
    return Shown(
        f"The first token of an answer to {QUESTION!r}, drawn {DRAWS} times.",
        ("greedy", f"temperature {TEMPERATURE:g}", f"and top-p {TOP_P:g}"),
        (
            row("different tokens", *map(len, drawn)),
            row("draws outside of the top-p set", *outside),
            row("tokens in the top-p set", "", "", int((kept > 0).sum())),
            row("largest gap, share to probability", *(f"{gap:.3f}" for gap in gaps)),
        ),
        f"{DRAWS} draws gave {len(drawn[0])}, {len(drawn[1])} and {len(drawn[2])} different tokens; "
        f"with top-p {outside[2]} of them lay outside of the {int((kept > 0).sum())} that it keeps.",
        _histogram(drawn[2], kept, words),
    )


def _drawn(subject: Subject, logits: Tensor, params: SamplingParams) -> Counter[int]:
    """What is drawn from logits [1, vocab] by so many requests, each with a seed of its own."""
    requests = [Request(f"r{seed}", [0], params, seed=seed) for seed in range(DRAWS)]
    batch = sampling_batch(requests, logits.shape[1])
    drawn = subject.package.Sampler().sample(logits.repeat(DRAWS, 1), batch)
    return Counter(drawn.tolist())


def nucleus(probs: Tensor, top_p: float) -> Tensor:
    """The likeliest tokens that together have `top_p`, with probabilities of their own: [vocab]."""
    ranked, order = probs.sort(descending=True, stable=True)
    before = ranked.cumsum(0) - ranked
    kept = torch.zeros_like(probs).index_copy_(0, order, ranked.where(before < top_p, 0.0))
    return kept / kept.sum()


def _gap(drawn: Counter[int], probs: Tensor) -> float:
    """The largest difference between a token's share of the draws and its probability."""
    shares = torch.zeros_like(probs)
    for token, count in drawn.items():
        shares[token] = count / DRAWS
    return float((shares - probs).abs().max())


def _histogram(drawn: Counter[int], probs: Tensor, words: dict[int, str]) -> tuple[str, ...]:
    """The tokens drawn most, with what they were to get and what they got."""
    top = [token for token, _ in drawn.most_common(SHOWN)]
    most = max([float(probs[token]) for token in top] + [drawn[token] / DRAWS for token in top])
    lines = ["token          probability  share"]
    for token in top:
        prob, share = float(probs[token]), drawn[token] / DRAWS
        name = repr(words[token])[:14]
        lines.append(f"{name:<14} {prob:11.3f}  {share:.3f}  {bar(share / most, 40)}")
    return tuple(lines)
