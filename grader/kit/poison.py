"""Memory that nobody has written yet, made visible."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def poisoned() -> Iterator[None]:
    """torch.empty and its like return NaN inside, integers the largest number: what is read before it is
    written, or never written at all, shows in the result."""
    # PyTorch does so in its deterministic mode, to make such mistakes repeat.
    options = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = options.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    options.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
        options.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


@contextmanager
def nothing() -> Iterator[None]:
    yield
