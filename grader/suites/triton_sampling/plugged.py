"""The draws that come out where a task is the learner's, and what a report says of wrong ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import expect, expect_equal, note, watch
from grader.kit.kernels import gumbel_noise, probabilities, sampling_batch
from grader.kit.script import show
from grader.kit.siblings import telling
from grader.kit.triton_watch import Seen, watching
from grader.suites.triton_sampling.plugging import sampler_of, theirs_of
from grader.suites.triton_sampling.probes import why_of
from solutions.sampler import Sampler as SortingSampler
from solutions.triton_sampling import scan, top_k
from yaie.core.batch import SamplingBatch

INF = float("inf")
MOST_ROWS_SHOWN = 4
SAME_NOISE = (
    "The noise is that of lab 1, a function of seed, step and token: a request draws the same tokens "
    "with either sampler, alone or in a batch."
)


def draw_tokens(
    part: ModuleType, task: str, logits: Tensor, batch: SamplingBatch
) -> tuple[list[int], Seen]:
    """One call of that sampler, watched. Checks what it returns and gives it as a list."""
    _note_rows(logits, batch)
    with _explained(part, task), sampler_of(part, task) as sampler, watching() as seen:
        tokens = watch(sampler, "sampler").sample(logits, batch)
    expect(isinstance(tokens, Tensor), f"sample gives {type(tokens).__name__} instead of a tensor")
    expect_equal(tokens.dtype, torch.int64, "the dtype of the tokens")
    expect_equal(list(tokens.shape), [len(logits)], "the shape of the tokens, one for each row")
    return [int(token) for token in tokens], seen


def bounds_of(part: ModuleType, logits: Tensor, batch: SamplingBatch) -> Tensor | None:
    """What top-k asks of each row, searched with the learner's `narrow`; None if there is none."""
    return search_of(part, logits, batch)[0]


def search_of(part: ModuleType, logits: Tensor, batch: SamplingBatch) -> tuple[Tensor | None, Seen]:
    """These bounds, and what the search for them did after the first pass."""
    if theirs_of(part, "12.4") is None:
        return None, Seen()
    _note_rows(logits, batch)
    with sampler_of(part, "12.4"):
        with watching():
            first = scan.scan_rows(logits, batch)
        with watching() as seen:
            return top_k.top_k_bounds(logits, batch, first), seen


def _note_rows(logits: Tensor, batch: SamplingBatch) -> None:
    note(f"logits = {_shown(logits)}")
    for row in range(min(len(logits), MOST_ROWS_SHOWN)):
        names = ("temperature", "top_k", "top_p", "min_p", "seeds", "steps")
        given = ", ".join(f"{name} {getattr(batch, name)[row].item():g}" for name in names)
        note(f"    # row {row}: {given}")


def _shown(logits: Tensor) -> str:
    """A tensor; of rows that are all alike, the first one and how many there are."""
    told = show(logits[:1])
    if len(logits) > 1 and "[[" in told and bool((logits == logits[0]).all()):
        return f"{told}.repeat({len(logits)}, 1)"
    return show(logits)


@contextmanager
def _explained(part: ModuleType, task: str) -> Iterator[None]:
    """A check that fails inside tells which function of the task is wrong by itself."""

    with telling(lambda: why_of(part, task)):
        yield


def _about_the_first(got: list[int], right: list[int], logits: Tensor, batch: SamplingBatch) -> str:
    """What speaks for the token that the first wrong row drew, and for the one that it must draw."""
    row = next(
        (i for i, (one, other) in enumerate(zip(got, right, strict=True)) if one != other), -1
    )
    if (
        row < 0
        or batch.penalties is not None
        or not 0 <= got[row] < logits.shape[1]
        or right[row] < 0
    ):
        return ""
    heat = float(batch.temperature[row])
    values = logits[row].double()
    what = f"row {row} is greedy; the logit"
    if heat > 0:
        noise = gumbel_noise(batch.seeds[row : row + 1], batch.steps[row : row + 1], len(values))
        values = values / heat + noise[0]
        what = f"in row {row} logit / temperature + noise"
    one, other = (values[t].item() for t in (got[row], right[row]))
    digits = next((d for d in (5, 8, 12) if f"{one:.{d}g}" != f"{other:.{d}g}"), 5)
    told = f"{one:.{digits}g} for token {got[row]} and {other:.{digits}g} for token {right[row]}"
    fields: dict[str, Any] = {
        n: x[row : row + 1] if isinstance(x, Tensor) else x for n, x in _fields(batch)
    }
    alone = SamplingBatch(**fields)
    is_out = probabilities(logits[row : row + 1], alone)[0, got[row]] == 0
    dropped = f"; token {got[row]} is one that the filters drop" if is_out and heat > 0 else ""
    return f" ({what} is {told}{dropped})"


def _fields(batch: SamplingBatch) -> list[tuple[str, Any]]:
    return [(one.name, getattr(batch, one.name)) for one in fields(batch)]


def expect_draws(
    part: ModuleType, task: str, logits: Tensor, batch: SamplingBatch, what: str, *, why: str
) -> Seen:
    """The draws are those of lab 1's sampler. Gives what the launches did."""
    right = SortingSampler().sample(logits.clone(), batch).tolist()
    got, seen = draw_tokens(part, task, logits, batch)
    with _explained(part, task):
        about = _about_the_first(got, right, logits, batch)
        expect_equal(got, right, f"{what}{about}", why=why)
    return seen


def expect_all_of(
    part: ModuleType,
    task: str,
    row: Tensor,
    tokens: set[int],
    what: str,
    *,
    why: str,
    requests: int = 8,
    **given: Any,
) -> None:
    """Requests with these logits draw every one of `tokens`, and no other."""
    batch = sampling_batch(requests, **given, seeds=list(range(3, 3 + requests)))
    got, _ = draw_tokens(part, task, row.repeat(requests, 1), batch)
    with _explained(part, task):
        expect_equal(sorted(set(got)), sorted(tokens), what, why=why)


def random_logits(n: int, vocab: int, seed: int = 0, scale: float = 3.0) -> Tensor:
    return torch.randn(n, vocab, generator=torch.Generator().manual_seed(seed)) * scale


def logs(*probabilities: float) -> Tensor:
    """One row of logits whose softmax is this."""
    return torch.tensor([probabilities], dtype=torch.float64).log().float()
