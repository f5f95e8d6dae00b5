"""The products of tiles that a kernel computes: their precision, and how many of them it masks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import triton.runtime.interpreter as interpreter

from grader.kit.expect import Fault
from grader.kit.triton_frames import line_here

TF32_WHY = (
    "Without input_precision tl.dot multiplies float32 tiles as TF32: a GPU's tensor cores then keep 10 "
    "of the 23 bits behind the point, and results are off in the fourth digit. Triton's interpreter "
    'does not show it. Say input_precision="ieee"; other dtypes are not affected.'
)


@dataclass(slots=True)
class Products:
    """Shapes of all results of tl.dot and of all two-dimensional selections (tl.where), in order.

    wide: how many of the products multiply two float32 tiles. lines: where these are.
    """

    dots: list[tuple[int, ...]] = field(default_factory=list)
    selects: list[tuple[int, ...]] = field(default_factory=list)
    wide: int = 0
    lines: list[tuple[str, int, str]] = field(default_factory=list)

    @property
    def score_tiles(self) -> int:
        """Products like the first one, which is that of queries and keys."""
        return self.dots.count(self.dots[0]) if self.dots else 0

    @property
    def masked_tiles(self) -> int:
        """Of those, tiles in which something is chosen by a mask."""
        return self.selects.count(self.dots[0]) if self.dots else 0


@contextmanager
def observed(*, exact: bool = False) -> Iterator[Products]:
    """Note the products of every kernel that runs inside `watching`.

    exact: two float32 tiles that are multiplied in TF32 are a Fault.
    """
    builder: Any = interpreter.InterpreterBuilder
    dot, select = builder.create_dot, builder.create_select
    found = Products()

    def noted_dot(self: Any, a: Any, b: Any, acc: Any, input_precision: Any, *rest: Any) -> Any:
        name = str(getattr(input_precision, "name", input_precision)).lower()
        is_wide = a.get_element_ty().is_fp32() and b.get_element_ty().is_fp32()
        if exact and name == "tf32" and is_wide:
            problem = f"tl.dot multiplies two float32 tiles with input_precision {name!r}"
            raise Fault(problem, why=TF32_WHY)
        found.dots.append((a.data.shape[0], b.data.shape[-1]))
        if is_wide:
            found.wide += 1
            found.lines.append(line_here())
        return dot(self, a, b, acc, input_precision, *rest)

    def noted_select(self: Any, condition: Any, *rest: Any) -> Any:
        if condition.data.ndim == 2:
            found.selects.append(condition.data.shape)
        return select(self, condition, *rest)

    builder.create_dot, builder.create_select = noted_dot, noted_select
    try:
        yield found
    finally:
        builder.create_dot, builder.create_select = dot, select
