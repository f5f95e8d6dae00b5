"""How many threads a CPU computes with."""

from collections.abc import Iterator

import pytest
import torch

from yaie import LLMEngine
from yaie.engine import loaded
from yaie.worker import threads


@pytest.fixture(autouse=True)
def _four_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_a_thread_for_each_core_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 3)
    threads.use_threads(None)
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("cores", [8, None])
def test_never_more_than_pytorch_has_already(
    cores: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: cores)
    threads.use_threads(None)
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("name", threads.VARIABLES)
def test_the_environment_goes_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "4")
    monkeypatch.setattr(threads, "usable_cores", lambda: 1)
    threads.use_threads(None)
    assert torch.get_num_threads() == 4


def test_the_setting_goes_before_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLES[0], "4")
    threads.use_threads(5)
    assert torch.get_num_threads() == 5


def test_an_engine_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it measures how many of them are worth having."""
    monkeypatch.setattr(threads, "usable_cores", lambda: 2)
    monkeypatch.setattr(loaded, "governor_for", lambda *args, **options: None)
    LLMEngine(num_blocks=8, device="cpu", mine="none")
    assert torch.get_num_threads() == 2
