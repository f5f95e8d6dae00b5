"""Memory that nobody has written yet, made visible."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def poisoned() -> Iterator[None]:
    """torch.empty and its like return NaN inside, integers the largest number: what is read before it is
    written, or never written at all, shows in the result."""
    # PyTorch does so in its deterministic mode, to make such mistakes repeat. Its other call for this
    # imports all of torch._inductor.
    options = torch.utils.deterministic
    before = torch.get_deterministic_debug_mode()
    filled = options.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.set_deterministic_debug_mode("warn")
    options.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
        options.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


@contextmanager
def nothing() -> Iterator[None]:
    yield
