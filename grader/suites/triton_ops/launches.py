"""How the suite runs a learner's kernels: watched, and without the mistakes of other tasks."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from grader.kit import Mismatch, expect, expect_equal, start_script, watch
from grader.kit.beside import Beside, Operation, expect_nothing_beside
from grader.kit.kernels import expect_near, padded_apart, random
from grader.kit.layout import STRIDE_WHY
from grader.kit.triton_watch import Launch, Seen, watching
from solutions import triton_ops as reference
from solutions.triton_ops import norms, rope

F32, F16 = torch.float32, torch.float16

HELPERS: dict[str, Any] = {"normalise": norms.normalise, "turn_heads": rope.turn_heads}
"""What kernels of several tasks call, by the name that it is given in the stub."""

LATEST: list[Launch] = []
"""Of the latest call of a test."""
BESIDE: list[Operation] = []
"""Operations of PyTorch that the latest call of a test made beside its launches."""

TAIL = (
    "A tile has a power of two of lanes, a row has not: lanes past its end must load 0, count for "
    "nothing and store nothing."
)
STRIDES = (
    "Each tensor has gaps of its own here, which hold NaN: a row is found with the strides of the "
    "tensor that it is in."
)
SLOTS = (
    "Slot s is row s % block_size of block s // block_size; a block's stride says how far the next "
    "block is."
)
NOTHING = "A negative slot stores nothing: as an index it would be another block's memory."
POOL = ("key_blocks", "value_blocks")
ROUNDING = (
    "The normed value is rounded to the input's dtype before the weight, as in lab 2, or an engine "
    "gives other tokens with one backend than with another."
)
SHORT = (
    "A row of 16 numbers is half a warp's work, and starting a program costs more. A tile [ROWS, "
    "BLOCK], or a loop over rows, gives each program several: `norm_tile` says how many."
)
EVERY = (
    "There are as many tiles as it takes to hold all rows: their number is rounded up, and the last one "
    "is masked. Program p has tile p, or the tiles p, p + programs and so on."
)
WORTH = (
    "A program with a few numbers costs more to start than its work takes. BLOCK is chosen for the row "
    "of this call: one that is kept from a call with short rows cuts long ones into crumbs."
)
LONG = (
    "A tile that holds a row of 20,000 numbers or more has 32,768 lanes or more, which no program's "
    "registers hold. Above LONGEST_ROW a loop over the row reads it twice: `long_rms_norm_kernel`."
)
LONGEST = (
    "16,384 numbers are the longest row that registers hold: LONGEST_ROW itself still takes one tile, "
    "and is read once."
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


@contextmanager
def ours_with(part: ModuleType, name: str) -> Iterator[Any]:
    """The reference's kernels, which call the learner's helper of that name; None if there is no such
    helper."""
    theirs = [vars(m)[name] for m in vars(part).values() if _has(part, m, name)]
    if not theirs:
        yield None
        return
    with ExitStack() as stack:
        for module in vars(reference).values():
            if _has(reference, module, name):
                stack.enter_context(patch.object(module, name, theirs[0]))
        yield reference.LayerKernels()


def _has(part: ModuleType, module: Any, name: str) -> bool:
    if not isinstance(module, ModuleType) or not module.__name__.startswith(part.__name__):
        return False
    return _parameters(vars(module).get(name)) == _parameters(HELPERS[name])


def _parameters(function: Any) -> list[str] | None:
    return list(inspect.signature(function.fn).parameters) if hasattr(function, "fn") else None


def run(
    part: ModuleType, name: str, *args: Any, record: bool = False, on: Any = None
) -> tuple[Any, Seen]:
    """One call of the learner's kernels, `on` an object or a fresh one. Gives what it gives, and what
    its launches did. On a fresh object the report begins with this call."""
    if on is None:
        start_script()
    kernels = on if on is not None else watch(part.LayerKernels(), "kernels")
    with watching(record=record) as seen, Beside(part) as beside:
        got = getattr(kernels, name)(*args)
    LATEST[:], BESIDE[:] = seen.launches, beside.operations
    return got, seen


def goes_by_longest_row(part: ModuleType) -> bool:
    """Whether LONGEST_ROW parts short rows from long ones; another design may have another limit."""
    modules = [module for module in vars(part).values() if isinstance(module, ModuleType)]
    return any(hasattr(m, "LONGEST_ROW") for m in modules if not m.__name__.endswith(".launch"))


def expect_one_launch(seen: Seen, what: str, why: str) -> None:
    """seen: of the latest call. The launch is all that the device has to do."""
    expect_equal(len(seen.launches), 1, f"the launches of {what}", why=why)
    expect_nothing_beside(BESIDE, what)


def expect_work(got: int, most: int, what: str, why: str) -> None:
    """what: as in "numbers read of x"."""
    expect(got <= most, f"{got} {what}, where {most} do", why=why)


def expect_mostly(got: Tensor, right: Tensor, what: str, why: str) -> None:
    """All but one in fifty equal, to the bit: the order of a sum may decide a rounding now and then."""
    share = float((got == right).double().mean())
    if share <= 0.98:
        at = tuple((got != right).nonzero()[0].tolist())
        problem = f"only {share:.0%} of the values of {what}; the first that is not, at {list(at)}"
        raise Mismatch(problem, f"{float(right[at]):.7g}", f"{float(got[at]):.7g}", why)


def expect_rows_written(seen: Seen, got: Tensor, what: str, why: str) -> None:
    """seen: of `run(..., record=True)`. Every row of a result [rows, d] was written, if any was."""
    rows = {
        int(at) // got.shape[1]
        for access in seen.accesses
        if access.deed == "writes" and access.origin.begin == got.data_ptr()
        for at in access.elements
    }
    lost = sorted(set(range(len(got))) - rows)
    if not rows or not lost:
        return
    launch = seen.launches[-1]
    tile = launch.arguments.get("ROWS")
    problem = f"{what}: rows {lost[0]} to {lost[-1]} were never written"
    if tile and launch.programs * tile == lost[0] and lost[-1] == len(got) - 1:
        tiles = -(-len(got) // tile)
        why = (
            f"{launch.programs} programs with ROWS = {tile} have done one tile each: "
            f"{launch.programs * tile} rows. {len(got)} rows are {tiles} tiles, so program p has "
            "the tiles p, p + programs and so on."
        )
    raise Mismatch(problem, why=why)


def expect_explained(*checks: Callable[[], None]) -> None:
    """All of these hold. Of those that fail, the first that names a stride is raised."""
    failures = []
    for check in checks:
        try:
            check()
        except Mismatch as failure:
            failures.append(failure)
    if failures:
        raise next((failure for failure in failures if failure.why == STRIDE_WHY), failures[0])


def product(tokens: int, heads: int, kv_heads: int, d: int, **how: Any) -> list[Tensor]:
    """q, k and v as views of one product [tokens, (heads + 2 * kv_heads) * d], as a layer has them."""
    qkv = random(tokens, (heads + 2 * kv_heads) * d, **how)
    parts = qkv.split([heads * d, kv_heads * d, kv_heads * d], dim=1)
    return [part.view(tokens, part.shape[1] // d, d) for part in parts]


def apart(tokens: int, heads: int, kv_heads: int, d: int, **how: Any) -> list[Tensor]:
    """q, k and v whose tokens and heads have gaps: no stride is another one's."""
    counts = (heads, kv_heads, kv_heads)
    return list(
        padded_apart(*(random(tokens, n, d, seed=seed, **how) for seed, n in enumerate(counts)))
    )


def strides_told(**tensors: Tensor) -> str:
    return "Strides: " + ", ".join(f"{list(x.stride())} of {name}" for name, x in tensors.items())


@dataclass(frozen=True, slots=True)
class Reads:
    """Where the programs of a recorded run begin to read a tensor, in the order in which a GPU starts
    them: the first number of a grid runs fastest. lanes: numbers that the widest load reads."""

    begins: list[int]
    lanes: int


def reads_of(seen: Seen, tensor: Tensor) -> Reads:
    """seen: of `run(..., record=True)`."""
    first: dict[tuple[int, ...], int] = {}
    lanes = 0
    for access in seen.accesses:
        if (
            access.deed == "reads"
            and access.origin.begin == tensor.data_ptr()
            and len(access.elements)
        ):
            place, begin = access.program[::-1], int(access.elements.min())
            first[place] = min(begin, first.get(place, begin))
            lanes = max(lanes, len(access.elements))
    return Reads([first[place] for place in sorted(first)], lanes)


def copies(*tensors: Tensor) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]


def pool(blocks: int, block_size: int, kv_heads: int, d: int, **how: Any) -> tuple[Tensor, Tensor]:
    """Keys and values that are there already."""
    shape = blocks, block_size, kv_heads, d
    return random(*shape, seed=90, **how), random(*shape, seed=91, **how)


def expect_stored(got: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], why: str) -> None:
    for name, mine, exact in zip(POOL, got, right, strict=True):
        expect_near(mine, exact.double(), mine.dtype, f"{name} afterwards", why=why)
