"""Ranks that are forked from a process which has imported all that they need.

A rank's process takes 2.5 s of a core to import torch and the rest, as often as a test starts one. Here
one process does that for all tests of a file, and each rank is a fork of it. It is imported there, and
what it changes is seen by the forks alone. How ranks of their own start and end is the subject of
`test_rank_processes.py`.
"""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path

import pytest
import torch

from yaie.worker.parallel import processes

ROOT = Path(__file__).parents[2]


@contextmanager
def warm_ranks() -> Iterator[None]:
    """Meanwhile ranks of engines in this process are such forks. It gets back the threads that torch
    had, of which rank 0 takes a share."""
    threads = torch.get_num_threads()
    multiprocessing.set_forkserver_preload([__name__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "START", "forkserver")
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("WARM_RANKS", "1")
        try:
            yield
        finally:
            forkserver._forkserver._stop()  # type: ignore[attr-defined]  # or it stays
            multiprocessing.set_forkserver_preload([])
            torch.set_num_threads(threads)


def _warm() -> None:
    """In the process that is forked."""
    from yaie.worker.parallel import rank_process

    # The kernel would end a rank with the process that it is a fork of, which is not control's. At the
    # end of its pipe it still ends by itself.
    rank_process.end_with_parent = lambda: None
    from transformers import AutoConfig, LlamaConfig  # noqa: F401

    import yaie.backends.torch  # noqa: F401


if os.environ.get("WARM_RANKS"):
    _warm()
