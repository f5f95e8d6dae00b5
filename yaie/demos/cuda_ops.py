"""Lab 14: the operations of a layer in CUDA C++. See `triton_ops.py`."""

from yaie.demos.cuda_traffic import WHERE, of_cuda
from yaie.demos.shown import Shown
from yaie.demos.subject import Subject
from yaie.demos.triton_ops import compared


def show(subject: Subject) -> Shown:
    """Each operation once, on a few rows."""
    ops = subject.reference("transformer_ops").TransformerOps()
    return compared(subject.package.LayerKernels(), ops, of_cuda, WHERE)
