"""Tiny checkpoints, made once in a session, and a double for the part that adapters compute with."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.models.tiny import tiny_model


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a family's tiny checkpoint. Read only: copy it to change it."""
    root = tmp_path_factory.mktemp("tiny")

    def make(family: str) -> Path:
        folder = root / family
        return folder if folder.exists() else tiny_model(family, folder)

    return make
