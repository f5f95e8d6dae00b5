"""Which labs an engine runs on, by backend, device and whose parts there are."""

from pathlib import Path

import pytest
import torch

from tests.learner import hand_in, record_pass
from yaie.core.batch import KVLayerSpec
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.engine.backends import Backend, choice, choose_backend, fitted

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
SHARED = ("paged_cache", "radix_tree", "scheduler", "engine", "api_server")


@pytest.fixture(autouse=True)
def _triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Triton were installed, and nothing said that it should be interpreted."""
    monkeypatch.setattr(choice, "_has_triton", lambda: True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def chosen(device: torch.device = GPU, **settings: str) -> Backend:
    return choose_backend(EngineConfig(**settings), device)  # type: ignore[arg-type]


def test_auto_is_torch_on_a_cpu_and_shows_no_kernel_labs() -> None:
    backend = chosen(CPU)
    assert backend.name == "torch"
    assert backend.note == ""
    assert set(backend.labs) == {*SHARED, "sampler", "transformer_ops", "radix_attention"}


def test_auto_is_triton_on_a_gpu_and_torch_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen().name == "triton"
    monkeypatch.setattr(choice, "_has_triton", lambda: False)
    assert chosen().name == "torch"


def test_triton_takes_the_place_of_the_labs_that_it_replaces() -> None:
    assert chosen(backend="triton", mine="none").labs == (
        *SHARED,
        "triton_ops",
        "triton_flash_attention",
        "triton_paged_attention",
        "triton_sampling",
    )


def test_cuda_draws_with_triton_on_a_gpu_and_with_lab_1_on_a_cpu() -> None:
    labs = ("cuda_memory_ops", "cuda_ops", "cuda_flash_attention", "cuda_paged_attention")
    assert chosen(backend="cuda").labs == (*SHARED, "triton_sampling", *labs)
    assert chosen(CPU, backend="cuda").labs == ("sampler", *SHARED, *labs)


def test_triton_on_a_cpu_asks_for_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="TRITON_INTERPRET=1") as error:
        chosen(CPU, backend="triton")
    assert error.value.param == "backend"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "slowly" in chosen(CPU, backend="triton").note


def test_triton_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_has_triton", lambda: False)
    with pytest.raises(ConfigError, match=r"pip install 'yaie\[gpu\]'"):
        chosen(backend="triton")


def test_cuda_on_a_cpu_needs_a_compiler_and_says_that_it_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "slowly" in chosen(CPU, backend="cuda").note
    monkeypatch.setattr(choice, "find_host_compiler", lambda: None)
    with pytest.raises(ConfigError, match=r"install g\+\+"):
        chosen(CPU, backend="cuda")


def test_a_plain_part_that_is_named_replaces_the_kernels() -> None:
    backend = chosen(backend="triton", mine="sampler")
    assert "sampler" in backend.labs
    assert "triton_sampling" not in backend.labs
    assert "triton_ops" in backend.labs


def test_lab_5_brings_lab_2_along() -> None:
    backend = chosen(backend="triton", mine="radix_attention")
    assert {"radix_attention", "transformer_ops", "triton_ops"} <= set(backend.labs)
    assert "triton_paged_attention" not in backend.labs


def test_no_lab_is_listed_that_nothing_calls() -> None:
    backend = chosen(backend="triton", mine="radix_attention,transformer_ops")
    assert "triton_ops" not in backend.labs


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"mine": "cuda_ops"}, "--backend cuda"),
        ({"mine": "triton_ops", "backend": "torch"}, "--backend triton"),
        ({"mine": "radix_attention,triton_paged_attention"}, "leave it out"),
    ],
)
def test_a_named_part_that_would_not_run_is_refused(settings: dict[str, str], fix: str) -> None:
    with pytest.raises(ConfigError, match=fix) as error:
        chosen(**settings)
    assert error.value.param == "mine"


def test_heads_too_wide_for_the_kernels_are_attended_by_lab_5() -> None:
    wide = [KVLayerSpec(2, 64), KVLayerSpec(1, 512)]
    backend = fitted(chosen(), EngineConfig(), wide)
    assert backend.roles["attention"] == ("radix_attention",)
    assert {"transformer_ops", "triton_ops"} <= set(backend.labs)
    assert fitted(chosen(), EngineConfig(), wide[:1]) == chosen()


def test_wide_heads_on_a_backend_that_was_asked_for_are_refused() -> None:
    config = EngineConfig(backend="triton")
    with pytest.raises(ConfigError, match="512 dimensions") as error:
        fitted(choose_backend(config, GPU), config, [KVLayerSpec(1, 512)])
    assert error.value.param == "backend"


def test_on_a_gpu_a_passed_part_goes_before_kernels_of_the_reference(labs: Path) -> None:
    hand_in(labs, "sampler")
    record_pass(labs, "sampler")
    assert chosen().roles["sampler"] == ("sampler",)
    assert chosen().roles["ops"] == ("triton_ops",)
    assert chosen(mine="none").roles["sampler"] == ("triton_sampling",)


def test_a_backend_that_was_asked_for_runs_its_kernels(labs: Path) -> None:
    hand_in(labs, "sampler")
    record_pass(labs, "sampler")
    assert chosen(backend="triton").roles["sampler"] == ("triton_sampling",)


def test_a_passed_kernel_goes_before_a_passed_plain_part(labs: Path) -> None:
    for lab in ("radix_attention", "triton_paged_attention"):
        hand_in(labs, lab)
        record_pass(labs, lab)
    assert "triton_paged_attention" in chosen().labs
