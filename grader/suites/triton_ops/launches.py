"""How the suite runs a learner's kernels: watched, and without the mistakes of other tasks."""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from grader.kit import expect, expect_equal, watch
from grader.kit.kernels import random
from grader.kit.triton_watch import Seen, watching
from solutions.triton_ops import norms, rope

F32, F16 = torch.float32, torch.float16

HELPERS: dict[str, Any] = {"normalise": norms.normalise, "turn_heads": rope.turn_heads}
"""What kernels of several tasks call, by the name that it is given in the stub."""

TAIL = (
    "A tile has a power of two of lanes, a row has not: lanes past its end must load 0, count for "
    "nothing and store nothing."
)
WIDE = "The arithmetic is done in float32; what is stored is rounded to the input's dtype."


@contextmanager
def given(part: ModuleType, *names: str) -> Iterator[None]:
    """The reference's helpers in place of the learner's, which have a task of their own.

    A learner whose design has no such helper, or another one of that name, keeps what there is.
    """
    with ExitStack() as stack:
        for module in vars(part).values():
            for name in names:
                if _has(part, module, name):
                    # Not patch.dict: the interpreter adds names of its own to a module, for good.
                    stack.enter_context(patch.object(module, name, HELPERS[name]))
        yield


def _has(part: ModuleType, module: Any, name: str) -> bool:
    if not isinstance(module, ModuleType) or not module.__name__.startswith(part.__name__):
        return False
    return _parameters(vars(module).get(name)) == _parameters(HELPERS[name])


def _parameters(function: Any) -> list[str] | None:
    return list(inspect.signature(function.fn).parameters) if hasattr(function, "fn") else None


def run(part: ModuleType, name: str, *args: Any) -> tuple[Any, Seen]:
    """One call of the learner's kernels. Gives what it gives, and what its launches did."""
    kernels = watch(part.LayerKernels(), "kernels")
    with watching() as seen:
        got = getattr(kernels, name)(*args)
    return got, seen


def expect_one_launch(seen: Seen, what: str, why: str) -> None:
    expect_equal(len(seen.launches), 1, f"the launches of {what}", why=why)


def expect_work(got: int, most: int, what: str, why: str) -> None:
    """what: as in "numbers read of x"."""
    expect(got <= most, f"{got} {what}, where {most} do", why=why)


def expect_mostly(got: Tensor, right: Tensor, what: str, why: str) -> None:
    """All but one in fifty equal, to the bit: the order of a sum may decide a rounding now and then."""
    share = float((got == right).double().mean())
    expect(share > 0.98, f"only {share:.0%} of the values of {what}", why=why)


def with_gaps(rows: int, size: int, *, seed: int = 0, dtype: torch.dtype = F32) -> Tensor:
    """x [rows, size], whose rows are 8 numbers apart, all of them large."""
    memory = torch.full((rows, size + 8), 1000.0, dtype=dtype)
    memory[:, :size] = random(rows, size, seed=seed, dtype=dtype)
    return memory[:, :size]


def expect_gaps_kept(x: Tensor, what: str) -> None:
    """Nothing was written between the rows of what `with_gaps` gave."""
    assert x._base is not None
    gaps = x._base[:, x.shape[1] :]
    changed = int((gaps != 1000.0).sum())
    expect(not changed, f"{changed} numbers between the rows of {what} were overwritten", why=TAIL)


def product(tokens: int, heads: int, kv_heads: int, d: int, **how: Any) -> list[Tensor]:
    """q, k and v as views of one product [tokens, (heads + 2 * kv_heads) * d], as a layer has them."""
    qkv = random(tokens, (heads + 2 * kv_heads) * d, **how)
    parts = qkv.split([heads * d, kv_heads * d, kv_heads * d], dim=1)
    return [part.view(tokens, part.shape[1] // d, d) for part in parts]


def copies(*tensors: Tensor) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]
