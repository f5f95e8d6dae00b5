"""Lab 16: decode over block tables in CUDA C++. See `paged.py`."""

from yaie.demos.cuda_traffic import WHERE, of_cuda
from yaie.demos.paged import compared
from yaie.demos.shown import Row, Shown, row
from yaie.demos.subject import Subject
from yaie.demos.traffic import Traffic


def show(subject: Subject) -> Shown:
    """One step of decodes."""
    return compared(subject.package.PagedAttention().decode, of_cuda, WHERE, _blocks)


def _blocks(own: Traffic) -> tuple[Row, ...]:
    return (row("blocks of threads", "", own.programs),)
