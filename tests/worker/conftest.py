"""What the tests of a worker have in common."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tensors of a few numbers gain nothing from more, and wait for busy cores."""
    torch.set_num_threads(1)
