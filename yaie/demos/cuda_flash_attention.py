"""Lab 15: FlashAttention in CUDA C++. See `flash.py`."""

from yaie.demos.cuda_traffic import WHERE, of_cuda
from yaie.demos.flash import SCALE, compared, inputs
from yaie.demos.shown import Row, Shown, row
from yaie.demos.subject import Subject
from yaie.demos.traffic import Traffic


def show(subject: Subject) -> Shown:
    """The forward pass."""
    q, k, v = inputs()
    naive = subject.package.flash_attention.naive_forward
    _, slow = of_cuda(lambda: naive(q, k, v, scale=SCALE))

    def more(own: dict[str, Traffic]) -> tuple[Row, ...]:
        return (
            row("blocks of threads", "", own["causal"].programs, own["window"].programs),
            row("bytes read, a thread a query", "", slow.read, ""),
        )

    return compared(subject.package.FlashAttention().forward, of_cuda, WHERE, more)
