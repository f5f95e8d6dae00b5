"""YAIE's cache in a folder of the test's own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.models.gguf.tiny_ggufs import write_gguf


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("YAIE_CACHE", str(folder))
    return folder / "gguf"


@pytest.fixture(scope="session")
def llama_gguf(tmp_path_factory: pytest.TempPathFactory, checkpoint: Callable[[str], Path]) -> Path:
    """Of the tiny Llama, in float32. Read only: copy it to change it."""
    return write_gguf(checkpoint("llama"), tmp_path_factory.mktemp("gguf") / "tiny-llama.F32.gguf")
