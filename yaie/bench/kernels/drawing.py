"""Drawing a token for each row of logits. Labs 1 and 12."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from yaie.bench.kernels.case import Case, Problem, Run, part
from yaie.core.batch import SamplingBatch
from yaie.parts import Parts

VOCAB = 151_936
TEMPERATURE, TOP_P, TOP_K, MIN_P = 0.8, 0.9, 50, 0.05

FILTERS: dict[str, dict[str, float]] = {
    "greedy": {},
    "temperature": {},
    "top_p": {"top_p": TOP_P},
    "top_k": {"top_k": TOP_K},
    "min_p": {"min_p": MIN_P},
}


def cases() -> list[Case]:
    """Logits are read at least once; how often a filter reads them is its own affair."""
    found = []
    for rows in (256, 8):
        for what, filters in FILTERS.items():
            goal = "0.25 ms" if (what, rows) == ("top_p", 256) else ""
            temperature = 0.0 if what == "greedy" else TEMPERATURE
            build = partial(_draw, rows, temperature, filters)
            size = f"{rows}x{VOCAB}"
            label = f"{rows} x {VOCAB:,}"
            found.append(Case(f"sample_{what}", size, label, "GB/s", 4 * rows * VOCAB, build, goal))
    return found


def _batch(rows: int, temperature: float, filters: dict[str, float]) -> SamplingBatch:
    def column(value: float, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.full((rows,), value, dtype=dtype)

    return SamplingBatch(
        temperature=column(temperature),
        top_k=column(int(filters.get("top_k", 0)), torch.int64),
        top_p=column(filters.get("top_p", 1.0)),
        min_p=column(filters.get("min_p", 0.0)),
        seeds=torch.arange(rows),
        steps=torch.arange(rows),
        all_greedy=temperature == 0,
        any_top_k="top_k" in filters,
        any_top_p="top_p" in filters,
        any_min_p="min_p" in filters,
    )


def _draw(rows: int, temperature: float, filters: dict[str, float], parts: Parts) -> Problem:
    batch = _batch(rows, temperature, filters)
    sets = [(3 * torch.randn(rows, VOCAB),) for _ in range(3 if rows > 64 else 50)]

    def ours(lab: str) -> Callable[[], Run]:
        def make() -> Run:
            sample = part(parts, lab, "Sampler")().sample
            return lambda logits: sample(logits, batch)

        return make

    def reference() -> Run:
        sample = part(parts, "sampler", "Sampler")().sample
        given = sets[0][0].clone()
        sample(given, batch)
        if torch.equal(given, sets[0][0]):
            return lambda logits: sample(logits, batch)
        return lambda logits: sample(logits.clone(), batch)  # it writes over what it is given

    runs: dict[str, Callable[[], Run]] = {"triton": ours("triton_sampling"), "torch": reference}
    if filters == {"top_p": TOP_P}:
        runs |= {"sort": lambda: _sorted_top_p, "flashinfer": _flashinfer_top_p}
    if temperature and not filters:
        runs["multinomial"] = lambda: _multinomial
    return Problem(
        sets=sets,
        runs=runs,
        expected=lambda _: [],
        check=partial(_share_outside, temperature=temperature, filters=filters),
        tolerance=0.0,
    )


def _sorted_top_p(logits: Tensor) -> Tensor:
    """As transformers and many servers do it."""
    ordered, index = (logits / TEMPERATURE).sort(dim=-1, descending=True)
    probs = ordered.softmax(-1)
    ordered = ordered.masked_fill(probs.cumsum(-1) - probs >= TOP_P, -torch.inf)
    drawn = ordered.softmax(-1)
    drawn = (drawn / torch.empty_like(drawn).exponential_()).argmax(-1, keepdim=True)
    return index.gather(1, drawn)[:, 0]


def _multinomial(logits: Tensor) -> Tensor:
    return torch.multinomial((logits / TEMPERATURE).softmax(-1), 1)[:, 0]


def _flashinfer_top_p() -> Run:
    from flashinfer.sampling import softmax, top_p_sampling_from_probs

    return lambda logits: top_p_sampling_from_probs(softmax(logits, TEMPERATURE), TOP_P)


def _share_outside(
    tokens: Any, arguments: tuple[Any, ...], *, temperature: float, filters: dict[str, float]
) -> float:
    """The share of rows whose token the filters exclude, in float64 with a little room for rounding."""
    logits = arguments[0]
    tokens = tokens.long()
    if temperature == 0:
        return float((logits.gather(1, tokens[:, None])[:, 0] < logits.amax(-1)).double().mean())
    probs = torch.cat([(rows.double() / temperature).softmax(-1) for rows in logits.split(32)])
    drawn = probs.gather(1, tokens[:, None])
    outside = (tokens < 0) | (tokens >= VOCAB)
    if "top_p" in filters:
        before = torch.where(probs > drawn, probs, 0).sum(-1)
        outside |= before >= filters["top_p"] + 1e-4
    if "top_k" in filters:
        outside |= (probs > drawn).sum(-1) >= filters["top_k"]
    if "min_p" in filters:
        outside |= drawn[:, 0] < filters["min_p"] * probs.amax(-1) * (1 - 1e-4)
    return float(outside.double().mean())
