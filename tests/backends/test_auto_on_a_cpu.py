"""What `auto` takes on a CPU: attention in C++, unless something stands against it, which is said."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.learner import hand_in, record_pass
from yaie.backends import Choice, choose_backend, decide
from yaie.backends import choice as choice_module
from yaie.backends.cpu import build as cpu_build
from yaie.core.config import EngineConfig
from yaie.core.errors import KernelError
from yaie.engine.llm_engine import LLMEngine
from yaie.models.tutor import TUTOR_PATH

CPU = torch.device("cpu")
needs_compiler = pytest.mark.skipif(bool(cpu_build.missing()), reason=cpu_build.missing())


def chosen(**settings: Any) -> Choice:
    return decide(EngineConfig(**settings), CPU, (64,))


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were a compiler."""
    monkeypatch.setattr(cpu_build, "missing", lambda: "")


@pytest.mark.usefixtures("compiles")
def test_auto_is_attention_in_cpp_on_a_cpu() -> None:
    for dtype in ("auto", "float32", "bfloat16"):
        assert chosen(mine="none", dtype=dtype) == chosen(mine="none", backend="cpu")


@pytest.mark.usefixtures("compiles")
@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({"deterministic": True}, "attention in PyTorch, as --deterministic needs it"),
        (
            {"dtype": "float16"},
            choice_module.SLOWER.format("attention in C++ does not compute in float16"),
        ),
        ({"mine": "transformer_ops"}, "attention in PyTorch, where your transformer_ops runs"),
        ({"mine": "all"}, "attention in PyTorch, where your radix_attention runs"),
    ],
)
def test_auto_is_torch_where_something_stands_against_cpp_and_says_what(
    settings: dict[str, Any], note: str
) -> None:
    choice = chosen(**settings)
    assert (choice.kind.name, choice.note) == ("torch", note)
    assert choice.labs == chosen(backend="torch").labs


def test_auto_is_torch_without_a_compiler_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_build, "find_host_compiler", lambda: None)
    choice = chosen(mine="none")
    assert choice.kind.name == "torch"
    assert choice.note.startswith(
        "attention in PyTorch, which is slower, because there is no C++ co"
    )
    assert "install g++" in choice.note


@pytest.mark.usefixtures("compiles")
@pytest.mark.parametrize("lab", ["radix_attention", "transformer_ops"])
def test_a_passed_part_that_attends_goes_before_cpp(lab: str, labs: Path) -> None:
    hand_in(labs, lab)
    assert chosen().kind.name == "cpu"
    record_pass(labs, lab)
    choice = chosen()
    assert choice.roles["attention"] == ("radix_attention",)
    assert choice.note == f"attention in PyTorch, where your {lab} runs"
    assert chosen(mine="none").kind.name == "cpu"


@needs_compiler
def test_a_passed_pool_stores_what_cpp_attends_to(
    labs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in(labs, "paged_cache")
    record_pass(labs, "paged_cache")
    engine = LLMEngine(model=str(TUTOR_PATH), device="cpu", num_blocks=16)
    assert engine.backend.name == "cpu"
    pool = engine.backend.parts["paged_cache"].KVPool
    assert pool.__module__.startswith("labs.paged_cache")
    written: list[int] = []
    write = pool.write

    def record(self: object, layer: int, *rest: object) -> None:
        written.append(layer)
        write(self, layer, *rest)

    monkeypatch.setattr(pool, "write", record)
    engine.generate([[5, 6, 7]], max_tokens=1)
    assert written == list(range(len(engine.model.adapter.kv_layers)))


@pytest.mark.usefixtures("compiles")
@pytest.mark.parametrize(
    "error", [KernelError("g++ does not compile: no such instruction."), OSError(5, "disk broke")]
)
def test_auto_falls_back_to_torch_where_cpp_cannot_be_built(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr(choice_module, "library", fails)
    backend = choose_backend(EngineConfig(mine="none"), CPU)
    assert backend.name == "torch"
    assert backend.note.startswith("attention in PyTorch, which is slower, because ")
    assert backend.note.endswith(("no such instruction", "disk broke"))
    monkeypatch.setattr("yaie.backends.cpu.backend.library", fails)
    backend = choose_backend(EngineConfig(mine="none", backend="cpu"), CPU)
    with pytest.raises(type(error)):
        backend.prepare(CPU)
