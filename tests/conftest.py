"""What every test run has in common."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu`, with the reason, where there is no CUDA GPU."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU, and this machine has none"))


def has_gpu() -> bool:
    """Asked only when a test needs it: importing torch takes seconds."""
    import torch

    return torch.cuda.is_available()
