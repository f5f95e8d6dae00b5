"""Problems whose output tells which keys each query saw, told as ranges."""

import math
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import Mismatch, expect
from grader.kit.kernels import expect_near
from grader.suites.triton_flash_attention.problems import F32, Problem, forward


def spans(out: Tensor) -> list[str]:
    """Which keys each query of head 0 saw, of a problem made by `counting`: "3..7", "none"."""
    found = []
    for row in out[0, :, 0, :2].double():
        mean, mean_square = row.tolist()
        if not row.isfinite().all():
            found.append("NaN")
        elif mean == 0:
            found.append("none")
        else:
            # The variance of c neighbouring numbers is (c * c - 1) / 12.
            count = round(math.sqrt(max(0.0, 12 * (mean_square - mean * mean) + 1)))
            first = round(mean - (count - 1) / 2) - 1
            found.append(f"{first}..{first + count - 1}")
    return found


def counting(tq: int, tk: int, **options: Any) -> Problem:
    """All scores are 0; the value of key i begins with i + 1 and its square: out tells what was seen."""
    numbers = torch.arange(1, tk + 1, dtype=F32)
    v = torch.zeros(1, tk, 1, 16)
    v[0, :, 0, 0], v[0, :, 0, 1] = numbers, numbers**2
    return Problem(torch.ones(1, tq, 1, 16), torch.zeros(1, tk, 1, 16), v, **options)


def expect_spans(part: ModuleType, given: Problem, grades: str, why: str) -> None:
    """Each query sees the keys that it must see, told as ranges."""
    out, _, _ = forward(part, given, grades)
    exact = given.exact()[0]
    expect(out.shape == exact.shape, f"out has shape {list(out.shape)}, not that of q")
    for query, (got, right) in enumerate(zip(spans(out), spans(exact), strict=True)):
        if got != right:
            position = given.k.shape[1] - given.q.shape[1] + query
            what = f"the keys that query {query}, at position {position}, sees"
            raise Mismatch(what, right, got, why)
    expect_near(out, exact, given.dtype, "the average of what is seen", why=why)
