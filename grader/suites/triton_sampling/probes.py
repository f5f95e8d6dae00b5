# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

"""A learner's functions called by themselves: the first that does not give what it must is told, with
arguments that fit in a line.

What comes out of a draw is a token, which says little of the function that is wrong, and shows what
comes of many tiles or of one token in a billion only if the draw has them.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
import triton
import triton.language as tl
from torch import Tensor

from grader.kit import Mismatch
from grader.kit.triton_watch import watching
from grader.suites.triton_sampling import plugging
from grader.suites.triton_sampling.rules import (
    ABSORBED,
    CHUNK,
    JUDGED,
    LEAST_END,
    LEASTS,
    MOST_END,
    NARROWED,
    RACED,
    RACES,
    TAKEN,
    Asked,
)
from solutions.triton_sampling.draw import judge
from solutions.triton_sampling.race import absorb, finish_race, take_lead
from solutions.triton_sampling.rounds import least_exponent, race_above
from solutions.triton_sampling.top_k import key_of, narrow

F32, I32 = torch.float32, torch.int32


@triton.jit
def least_kernel(min_p, out):
    tl.store(out, least_exponent(tl.load(min_p)))


@triton.jit
def narrow_kernel(number, values, k, out):
    ends = narrow(
        tl.load(number), tl.load(values), tl.load(values + 1), tl.load(k),
        key_of(tl.load(values + 2)), key_of(tl.load(values + 3)) + 1,
    )  # fmt: skip
    tl.store(out, ends[0])
    tl.store(out + 1, ends[1])


@triton.jit
def absorb_kernel(value, maximum, total, lead, weights, maxima, sums, leads, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    new = absorb(
        tl.load(value + lanes),
        tl.load(maximum + lanes),
        tl.load(total + lanes),
        tl.load(lead + lanes),
        1.0,
    )
    tl.store(weights + lanes, new[0])
    tl.store(maxima + lanes, new[1])
    tl.store(sums + lanes, new[2])
    tl.store(leads + lanes, new[3])


@triton.jit
def take_kernel(numbers, tokens, key, found, token_found, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    lead = take_lead(
        tl.load(numbers + lanes), tl.load(tokens + lanes), tl.load(key).to(tl.uint32),
        tl.load(numbers + 1 + lanes), tl.load(numbers + 2 + lanes), tl.load(tokens + 1 + lanes),
    )  # fmt: skip
    tl.store(found + lanes, lead[0])
    tl.store(found + 1 + lanes, lead[1])
    tl.store(token_found + lanes, lead[2])


@triton.jit
def finish_kernel(weights, times, tokens, arrival, token, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    found = finish_race(tl.load(weights + lanes), tl.load(times + lanes), tl.load(tokens + lanes))
    tl.store(arrival, found[0])
    tl.store(token, found[1])


@triton.jit
def judge_kernel(numbers, tokens, logits, found, candidate_found):
    candidate, low, total, is_open = judge(
        tl.load(tokens), tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2),
        tl.load(numbers + 3), tl.load(tokens + 1), logits,
    )  # fmt: skip
    tl.store(candidate_found, candidate)
    tl.store(found, low)
    tl.store(found + 1, total)
    tl.store(found + 2, (is_open != 0).to(tl.float32))


@triton.jit
def race_kernel(
    numbers, logits, maxima, chunks, key, vocab, num_chunks, found, token_found,
    IS_RACE: tl.constexpr, FIRST: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    mass, arrival, token = race_above(
        tl.load(numbers), IS_RACE, logits, maxima, chunks, tl.load(numbers + 1), tl.load(numbers + 2),
        tl.load(numbers + 3), tl.load(key).to(tl.uint32), FIRST, vocab, num_chunks, CHUNK,
        CHUNKS, BLOCK, 1,
    )  # fmt: skip
    tl.store(found, mass)
    tl.store(found + 1, arrival)
    tl.store(token_found, token)


@dataclass(frozen=True, slots=True)
class Wrong:
    """A call whose result `name` is not what it must be."""

    call: str
    name: str
    right: float
    got: float
    rule: str
    values: tuple[Any, ...] = ()


def why_of(part: ModuleType, task: str) -> str:
    """What to say of the first function of a task that is wrong by itself; "" if none is."""
    if (wrong := first_wrong(part, task)) is None:
        return ""
    said = (
        f"gives {wrong.name} {_said(wrong, wrong.got)}, and must give {_said(wrong, wrong.right)}"
    )
    return f"Called by itself, {wrong.call} {said}. {wrong.rule}".strip()


def expect_functions(part: ModuleType, task: str) -> None:
    """Each function of a task gives what it must, called by itself. A design with others passes."""
    if (wrong := first_wrong(part, task)) is not None:
        # The call's words may end with what the logits are, between commas.
        call = wrong.call.rstrip(",")
        raise Mismatch(
            f"called by itself, {call}: {wrong.name} is not what it must be",
            _said(wrong, wrong.right),
            _said(wrong, wrong.got),
            wrong.rule,
        )


def first_wrong(part: ModuleType, task: str) -> Wrong | None:
    functions = plugging.theirs_of(part, task) or {}
    calls = [one for some in CALLS.get(task, ()) for one in some()] if functions else []
    rights = [run() for _, run in calls]
    with ExitStack() as stack:
        for name, function in functions.items():
            if name in globals():
                stack.enter_context(patch.object(sys.modules[__name__], name, function))
        stack.enter_context(plugging.sampler_of(part, task))
        stack.enter_context(watching())
        for (asked, run), right in zip(calls, rights, strict=True):
            got = run()
            if asked.is_open is not None and not right["is_open"]:
                # What a row keeps that is decided has no more meaning.
                right, got = ({n: x[n] for n in ("candidate", "is_open")} for x in (right, got))
            for name, value in right.items():
                if asked.only in ("", name) and not _alike(got[name], value):
                    return Wrong(asked.call, name, value, got[name], asked.rule, asked.numbers)
    return None


Found = dict[str, float]
Probe = tuple[Asked, Callable[[], Found]]


def _leasts() -> list[Probe]:
    def run(min_p: float) -> Found:
        out = torch.zeros(1)
        least_kernel[(1,)](torch.tensor([min_p]), out)
        return {"the exponent": out.item()}

    return [(asked, partial(run, *asked.numbers)) for asked in LEASTS]


def _narrowed() -> list[Probe]:
    def run(number: int, least: float, most: float) -> Found:
        out, count = torch.zeros(2, dtype=torch.int64), torch.tensor([number], dtype=I32)
        values = torch.tensor([least, most, LEAST_END, MOST_END])
        narrow_kernel[(1,)](count, values, torch.tensor([2]), out)
        reached, missed = out.tolist()
        return {"reached": reached, "missed": missed}

    return [(asked, partial(run, *asked.numbers)) for asked in NARROWED]


def _absorbed() -> list[Probe]:
    def run(*lane: float) -> Found:
        given = [torch.tensor([number]) for number in lane]
        found = [torch.zeros(1) for _ in range(4)]
        absorb_kernel[(1,)](*given, *found, BLOCK=1)
        names = ("weights", "maxima", "sums", "lead_weights")
        return {name: x.item() for name, x in zip(names, found, strict=True)}

    return [(asked, partial(run, *asked.numbers)) for asked in ABSORBED]


def _taken() -> list[Probe]:
    def run(weight: float, token: int, lead: float, time: float, lead_token: int) -> Found:
        found, token_found = torch.zeros(2), torch.zeros(1, dtype=I32)
        tokens = torch.tensor([token, lead_token], dtype=I32)
        numbers = torch.tensor([weight, lead, time])
        take_kernel[(1,)](numbers, tokens, torch.tensor([9]), found, token_found, BLOCK=1)
        new_weight, new_time = found.tolist()
        return {"the token": token_found.item(), "the weight": new_weight, "the time": new_time}

    return [(asked, partial(run, *asked.numbers)) for asked in TAKEN]


def _finished() -> list[Probe]:
    def run(weights: Any, times: Any, tokens: Any) -> Found:
        arrival, token = torch.zeros(1), torch.zeros(1, dtype=I32)
        lanes = torch.tensor(weights), torch.tensor(times), torch.tensor(tokens, dtype=I32)
        finish_kernel[(1,)](*lanes, arrival, token, BLOCK=len(weights))
        return {"the arrival": arrival.item(), "the token": token.item()}

    return [(asked, partial(run, *asked.numbers)) for asked in RACES]


def _judged() -> list[Probe]:
    def run(
        candidate: int, low: float, total: float, p: float, mass: float, following: int
    ) -> Found:
        found, token = torch.zeros(3), torch.zeros(1, dtype=I32)
        tokens = torch.tensor([candidate, following], dtype=I32)
        numbers = torch.tensor([low, total, p, mass])
        judge_kernel[(1,)](numbers, tokens, torch.arange(4.0), found, token)
        low, total, is_open = found.tolist()
        return {"candidate": token.item(), "is_open": is_open, "total": total, "low": low}

    return [(asked, partial(run, *asked.numbers)) for asked in JUDGED]


def _raced() -> list[Probe]:
    def run(
        first: int,
        low: float,
        scale: float,
        least: float,
        is_race: bool,
        key: int,
        maximum: float,
        num_chunks: int,
    ) -> Found:
        vocab = (num_chunks + 1) * CHUNK
        logits = torch.arange(vocab) % 7 / 2.0
        found, token = torch.zeros(2), torch.zeros(1, dtype=I32)
        block = triton.next_power_of_2(num_chunks)
        maxima, chunks = torch.full((num_chunks,), 3.0), torch.zeros(num_chunks, dtype=I32)
        numbers = torch.tensor([low, maximum, scale, least])
        race_kernel[(1,)](
            numbers, logits, maxima, chunks, torch.tensor([key]), vocab, num_chunks, found, token,
            IS_RACE=is_race, FIRST=first, CHUNK=CHUNK, CHUNKS=1 if num_chunks < 4 else 2, BLOCK=block,
        )  # fmt: skip
        mass, arrival = found.tolist()
        return {"the mass": mass, "the token": token.item(), "the arrival": arrival}

    return [(asked, partial(run, *asked.numbers)) for asked in RACED]


CALLS: dict[str, tuple[Callable[[], list[Probe]], ...]] = {
    "12.2": (_absorbed, _taken, _finished),
    "12.3": (_judged, _raced),
    "12.4": (_leasts, _narrowed),
}
"""Task -> what calls its functions."""


def _alike(got: float, right: float) -> bool:
    if isinstance(right, int):
        return got == right
    one, other = Tensor([got]).double(), Tensor([right]).double()
    return bool(torch.isclose(one, other, rtol=1e-4, atol=0, equal_nan=True))


def _said(wrong: Wrong, value: float) -> str:
    """A number that a function gave; of `narrow` the logit whose key it is."""
    if wrong.call.startswith("narrow("):
        keys = {number: _key_of(number) for number in (*wrong.values[1:], LEAST_END, MOST_END)}
        for more, text in ((0, ""), (1, " + 1"), (-1, " - 1")):
            for number, key in keys.items():
                if value == key + more:
                    return f"key_of({number:g}){text}"
    return _told(value)


def _key_of(number: float) -> int:
    bits = int(torch.tensor([number]).view(I32))
    return bits if bits >= 0 else bits ^ 0x7FFFFFFF


def _told(value: float) -> str:
    if value == plugging.NO_TOKEN:
        return "NO_TOKEN"
    return str(value) if isinstance(value, int) else f"{value:.6g}"
