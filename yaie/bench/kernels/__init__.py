"""`yaie bench kernels`: each operation, backend and size, beside its peers and the machine's ceilings.

`case.py` says what a case is, `timing.py` how it is timed, `ceilings.py` what the machine can do;
`layer.py`, `flash.py`, `paged.py`, `memory.py` and `drawing.py` hold the cases, `libraries.py` the
attention of other libraries; `suite.py` runs them.
"""

from .suite import run

__all__ = ["run"]
