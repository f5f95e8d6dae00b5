# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

"""A learner's functions called by themselves, after a draw has gone wrong: the first that does not give
what it must is told, with arguments that fit in a line.

What comes out of a draw is a token, which says little of the function that is wrong.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
import triton
import triton.language as tl
from torch import Tensor

from grader.kit.triton_watch import watching
from grader.suites.triton_sampling import plugging
from grader.suites.triton_sampling.rules import ABSORBED, CHUNK, JUDGED, LEASTS, RACED, RACES, Asked
from solutions.triton_sampling.draw import judge
from solutions.triton_sampling.race import absorb, finish_race
from solutions.triton_sampling.rounds import least_exponent, race_above

F32, I32 = torch.float32, torch.int32


@triton.jit
def least_kernel(min_p, out):
    tl.store(out, least_exponent(tl.load(min_p)))


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
    IS_RACE: tl.constexpr, FIRST: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    mass, arrival, token = race_above(
        tl.load(numbers), IS_RACE, logits, maxima, chunks, tl.load(numbers + 1), tl.load(numbers + 2),
        tl.load(numbers + 3), tl.load(key).to(tl.uint32), FIRST, vocab, num_chunks, CHUNK, 1, BLOCK, 1,
    )  # fmt: skip
    tl.store(found, mass)
    tl.store(found + 1, arrival)
    tl.store(token_found, token)


def why_of(part: ModuleType, task: str) -> str:
    """What to say of the first function of a task that is wrong by itself; "" if none is."""
    functions = plugging.theirs_of(part, task)
    for call in CALLS.get(task, ()) if functions else ():
        for asked, run in call():
            right = run()
            with ExitStack() as stack:
                for name, function in (functions or {}).items():
                    if name in globals():
                        stack.enter_context(patch.object(sys.modules[__name__], name, function))
                stack.enter_context(plugging.sampler_of(part, task))
                stack.enter_context(watching())
                got = run()
            if asked.is_open is not None and not right["is_open"]:
                # What a row keeps that is decided has no more meaning.
                right, got = ({n: x[n] for n in ("candidate", "is_open")} for x in (right, got))
            for name, value in right.items():
                if not _alike(got[name], value):
                    said = f"gives {name} {_told(got[name])}, and must give {_told(value)}"
                    return f"Called by itself, {asked.call} {said}. {asked.rule}".strip()
    return ""


Found = dict[str, float]
Probe = tuple[Asked, Callable[[], Found]]


def _leasts() -> list[Probe]:
    def run(min_p: float) -> Found:
        out = torch.zeros(1)
        least_kernel[(1,)](torch.tensor([min_p]), out)
        return {"the exponent": out.item()}

    return [(asked, partial(run, *asked.numbers)) for asked in LEASTS]


def _absorbed() -> list[Probe]:
    def run(*lane: float) -> Found:
        given = [torch.tensor([number]) for number in lane]
        found = [torch.zeros(1) for _ in range(4)]
        absorb_kernel[(1,)](*given, *found, BLOCK=1)
        names = ("weights", "maxima", "sums", "lead_weights")
        return {name: x.item() for name, x in zip(names, found, strict=True)}

    return [(asked, partial(run, *asked.numbers)) for asked in ABSORBED]


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
    def run(first: int, low: float, scale: float, least: float, is_race: bool, key: int) -> Found:
        logits = torch.arange(3 * CHUNK) % 7 / 2.0
        found, token = torch.zeros(2), torch.zeros(1, dtype=I32)
        maxima, chunks = torch.full((2,), 3.0), torch.zeros(2, dtype=I32)
        numbers = torch.tensor([low, 3.0, scale, least])
        race_kernel[(1,)](
            numbers, logits, maxima, chunks, torch.tensor([key]), 3 * CHUNK, 2, found, token,
            IS_RACE=is_race, FIRST=first, CHUNK=CHUNK, BLOCK=2,
        )  # fmt: skip
        mass, arrival = found.tolist()
        names = {"the mass": mass, "the token": token.item(), "the arrival": arrival}
        return names if is_race else {"the mass": mass}

    return [(asked, partial(run, *asked.numbers)) for asked in RACED]


CALLS: dict[str, tuple[Callable[[], list[Probe]], ...]] = {
    "12.2": (_absorbed, _finished),
    "12.3": (_judged, _raced),
    "12.4": (_leasts,),
}
"""Task -> what calls its functions."""


def _alike(got: float, right: float) -> bool:
    one, other = Tensor([got]).double(), Tensor([right]).double()
    return bool(torch.isclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True))


def _told(value: float) -> str:
    return "NO_TOKEN" if value == plugging.NO_TOKEN else f"{value:.6g}"
