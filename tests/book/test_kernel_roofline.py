"""The figure of kernels under the roof counts what `yaie bench kernels` counts."""

import pytest

from book.tools.evidence import load
from book.tools.traces.kernel_roofline import COUNTS, counted

CASES = [
    (operation, size, case)
    for operation, sizes in load("kernels")["operations"].items()
    for size, case in sizes.items()
    if operation in COUNTS
]


@pytest.mark.parametrize(("operation", "size", "case"), CASES, ids=lambda each: str(each)[:40])
def test_its_bytes_or_operations_are_those_that_the_bench_divides_by(operation, size, case):
    flops, moved = counted(operation, size)
    assert case["work"] == (moved if case["unit"] == "GB/s" else flops)


def test_a_decode_has_as_many_operations_for_a_byte_as_a_group_has_heads():
    flops, moved = counted("paged_decode", "64x4096_32on8")
    assert flops / moved == pytest.approx(4, rel=2e-3)
