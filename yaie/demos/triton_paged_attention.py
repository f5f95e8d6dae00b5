"""Lab 11: decode over block tables in Triton's interpreter. See `paged.py`."""

from yaie.demos.paged import compared
from yaie.demos.shown import Row, Shown, row
from yaie.demos.subject import Subject
from yaie.demos.traffic import Traffic, interpreted, of_triton


def show(subject: Subject) -> Shown:
    """One step of decodes."""
    interpreted()
    decode = subject.package.PagedAttention().decode
    return compared(decode, of_triton, "in Triton's interpreter", _programs)


def _programs(own: Traffic) -> tuple[Row, ...]:
    return (row("programs", "", own.programs),)
