"""Checks that explain themselves."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from grader.kit.differ import told_apart
from grader.kit.script import show

if TYPE_CHECKING:
    from torch import Tensor


LEAST_DISTINCT = 3
"""Values in a row before it counts as recognised: fewer may be alike by chance."""


class Mismatch(AssertionError):
    """What must hold does not. why: the misconception that usually leads here.

    claim: what must hold, if it is not what the test itself claims.
    """

    claim = ""

    def __init__(self, problem: str, expected: str = "", got: str = "", why: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.expected = expected
        self.got = got
        self.why = why


class Fault(Mismatch):
    """A Mismatch inside the part's own code: the report names the line that it happened on.

    where: that line in words, if it is none of Python. line: (file, line), if no error came from it.
    frames: (file, line, function) of a kernel, the innermost first, where no traceback has them all.
    state: what variables held there. offsets, active: of a tile that reads or writes outside, the
    elements of its lanes from the tensor's first, and which lanes no mask hides.
    """

    frames: Sequence[tuple[str, int, str]] = ()
    state = ""
    offsets: Any = None
    active: Any = None

    def __init__(
        self,
        problem: str,
        expected: str = "",
        got: str = "",
        why: str = "",
        where: str = "",
        line: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(problem, expected, got, why)
        self.where = where
        self.line = line


@contextmanager
def claiming(claim: str) -> Iterator[None]:
    """What a check claims, whichever test it fails in."""
    try:
        yield
    except Mismatch as error:
        error.claim = claim
        raise


def expect(condition: object, problem: str, *, why: str = "") -> None:
    """problem: what is the case if the condition does not hold."""
    if not condition:
        raise Mismatch(problem, why=why)


def expect_equal(got: Any, expected: Any, what: str, *, why: str = "") -> None:
    """what: names the value, as in "the blocks that match_prefix found"."""
    if got != expected:
        where, right, wrong = told_apart(expected, got)
        first = f", first {where}" if where else ""
        raise Mismatch(f"{what}: not as expected{first}", right, wrong, why)


def expect_close(
    got: "Tensor",
    expected: "Tensor",
    what: str,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    why: str = "",
) -> None:
    """Tensors alike in shape and dtype, and in every element within atol + rtol * |expected|.

    expected may be float64, the judge's precision: then the dtype of `got` is not compared.
    """
    import torch

    if not isinstance(got, torch.Tensor):
        raise Mismatch(f"{what}: not a tensor", "a tensor", show(got), why)
    if got.shape != expected.shape:
        raise Mismatch(f"{what}: wrong shape", str(list(expected.shape)), str(list(got.shape)), why)
    if expected.dtype != torch.float64 and got.dtype != expected.dtype:
        raise Mismatch(f"{what}: wrong dtype", str(expected.dtype), str(got.dtype), why)
    wide, right = got.double(), expected.double()
    # Equal infinities are close, and so is NaN to NaN; their difference would be NaN.
    close = torch.isclose(wide, right, rtol=rtol, atol=atol, equal_nan=True)
    if not bool(close.all()):
        index = tuple(int(i) for i in (~close).nonzero()[0])
        wrong = int((~close).sum())
        elsewhere = _row_elsewhere(wide, right, index, rtol, atol)
        raise Mismatch(
            f"{what}: {wrong} of {close.numel()} values differ, the first at {list(index)}{elsewhere}",
            *_digits(right[index].item(), wide[index].item()),
            why,
        )


def _digits(right: float, wrong: float) -> tuple[str, str]:
    """Two numbers with seven digits, or with as many as show a difference."""
    for digits in (7, 12):
        texts = f"{right:.{digits}g}", f"{wrong:.{digits}g}"
        if texts[0] != texts[1]:
            return texts
    return f"{right:.17g}", f"{wrong:.17g}"


def _row_elsewhere(
    got: "Tensor", right: "Tensor", index: tuple[int, ...], rtol: float, atol: float
) -> str:
    """Whether the wrong value's row (its last dimension) is one that belongs to another index."""
    import torch

    row = got[index[:-1]] if index else got
    if got.ndim < 2 or row.unique().numel() < LEAST_DISTINCT or not bool(row.isfinite().all()):
        return ""
    alike = torch.isclose(right, row, rtol=rtol, atol=atol).all(dim=-1).nonzero().tolist()
    # Two rows of the same values tell nothing of where this one is from.
    return f"; row {list(index[:-1])} holds what row {alike[0]} should" if len(alike) == 1 else ""


@contextmanager
def expect_raises(kind: type[BaseException], what: str, *, why: str = "") -> Iterator[None]:
    """what: the call that must be refused, as in "freeing a table twice"."""
    try:
        yield
    except kind:
        return
    except NotImplementedError:
        raise  # a stub has a verdict of its own
    except Exception as error:
        problem = f"{what} raises the wrong error"
        raise Mismatch(problem, kind.__name__, f"{type(error).__name__}: {error}", why) from error
    raise Mismatch(f"{what} passes silently", kind.__name__, "no error", why)
