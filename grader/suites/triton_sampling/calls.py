"""Functions of the stub called by themselves: what a draw shows once in a billion tokens.

The kernels here call what `theirs` puts in place of the reference's functions, for one tile of lanes.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from unittest.mock import patch

import torch
import triton
import triton.language as tl
from torch import Tensor

from grader.kit.triton_watch import watching
from grader.suites.triton_sampling import plugging
from solutions.triton_sampling.noise import race_time
from solutions.triton_sampling.race import take_lead

Lead = tuple[Tensor, Tensor, Tensor]
"""Weight, time and token of each lane's leader."""


@triton.jit
def time_kernel(bits, times, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, BLOCK)
    tl.store(times + lanes, race_time(tl.load(bits + lanes).to(tl.uint32)))


@triton.jit
def lead_kernel(weights, tokens, key, lead_weights, lead_times, lead_tokens, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, BLOCK)
    weight, time, token = take_lead(
        tl.load(weights + lanes),
        tl.load(tokens + lanes),
        tl.load(key).to(tl.uint32),
        tl.load(lead_weights + lanes),
        tl.load(lead_times + lanes),
        tl.load(lead_tokens + lanes),
    )
    tl.store(lead_weights + lanes, weight)
    tl.store(lead_times + lanes, time)
    tl.store(lead_tokens + lanes, token)


@contextmanager
def theirs(part: ModuleType, task: str) -> Iterator[bool]:
    """The kernels above call the learner's functions of a task. False if the design has others."""
    with ExitStack() as stack:
        functions = plugging.theirs_of(part, task)
        for name, function in (functions or {}).items():
            if name in globals():
                stack.enter_context(patch.object(sys.modules[__name__], name, function))
        stack.enter_context(plugging.sampler_of(part, task))
        stack.enter_context(watching())
        yield functions is not None


def times_of(bits: list[int]) -> Tensor:
    """When tokens with these bits arrive at a weight of 1; as many as a power of two."""
    times = torch.empty(len(bits))
    time_kernel[(1,)](torch.tensor(bits), times, BLOCK=len(bits))
    return times


def lead_of(weights: list[float], tokens: list[int], lead: Lead) -> Lead:
    """The leaders of lanes with these leaders, after a token each."""
    new = lead[0].clone(), lead[1].clone(), lead[2].clone()
    numbers = torch.tensor(tokens, dtype=torch.int32)
    lead_kernel[(1,)](torch.tensor(weights), numbers, torch.tensor([9]), *new, BLOCK=len(tokens))
    return new
