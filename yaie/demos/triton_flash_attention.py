"""Lab 10: FlashAttention in Triton's interpreter. See `flash.py`."""

from yaie.demos.flash import compared
from yaie.demos.shown import Row, Shown, row
from yaie.demos.subject import Subject
from yaie.demos.traffic import Traffic, interpreted, of_triton


def show(subject: Subject) -> Shown:
    """The forward pass."""
    interpreted()
    forward = subject.package.FlashAttention().forward
    return compared(forward, of_triton, "in Triton's interpreter", _programs)


def _programs(own: dict[str, Traffic]) -> tuple[Row, ...]:
    return (row("programs", "", own["causal"].programs, own["window"].programs),)
