"""A kernel that compiles wherever Triton can compile: if this one does not, no learner is to blame."""

import triton
import triton.language as tl


@triton.jit
def copy_kernel(source, target, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(source + columns, mask=columns < size)
    tl.store(target + columns, values, mask=columns < size)
