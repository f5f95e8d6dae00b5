"""Which labs an engine runs on, by backend, device and whose parts there are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests.learner import hand_in, record_pass
from yaie.backends import Choice, choose_backend, decide, triton
from yaie.backends.cpu import build as cpu_build
from yaie.core.batch import KVLayerSpec
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.cuda import compiler, nvcc
from yaie.engine.llm_engine import LLMEngine
from yaie.parts import Part, load_parts

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
SHARED = ("paged_cache", "radix_tree", "scheduler", "engine", "api_server")
LATER = ("cuda_graphs", "speculative", "structured_output")
"""What every engine runs on."""


needs_compiler = pytest.mark.skipif(bool(cpu_build.missing()), reason=cpu_build.missing())


@pytest.fixture(autouse=True)
def _triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Triton were installed, and nothing said that it should be interpreted."""
    monkeypatch.setattr(triton, "has_triton", lambda: True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def chosen(device: torch.device = GPU, head_dims: Sequence[int] = (64,), **settings: Any) -> Choice:
    return decide(EngineConfig(**settings), device, head_dims)


def test_torch_shows_no_kernel_labs() -> None:
    backend = chosen(CPU, backend="torch")
    assert backend.note == ""
    assert set(backend.labs) == {*SHARED, *LATER, "sampler", "transformer_ops", "radix_attention"}


def test_lab_22_is_there_for_models_whose_layers_keep_a_state() -> None:
    for backend, device in (("torch", CPU), ("triton", GPU), ("cuda", CPU)):
        plain, hybrid = (
            decide(EngineConfig(backend=backend, mine="none"), device, (64,), stateful=stateful)
            for stateful in (False, True)
        )
        assert set(hybrid.labs) - set(plain.labs) == {"state_cache"}
    with pytest.raises(ConfigError, match="state_cache, and no layer of the model keeps a state"):
        chosen(CPU, mine="state_cache")


def test_auto_is_triton_on_a_gpu_and_torch_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen().kind.name == "triton"
    monkeypatch.setattr(triton, "has_triton", lambda: False)
    assert chosen().kind.name == "torch"


def test_triton_takes_the_place_of_the_labs_that_it_replaces() -> None:
    assert chosen(backend="triton", mine="none").labs == (
        *SHARED,
        "triton_ops",
        "triton_flash_attention",
        "triton_paged_attention",
        "triton_sampling",
        *LATER,
    )


def test_cuda_draws_with_triton_on_a_gpu_and_with_lab_1_on_a_cpu() -> None:
    labs = ("cuda_memory_ops", "cuda_ops", "cuda_flash_attention", "cuda_paged_attention")
    assert chosen(backend="cuda").labs == (*SHARED, "triton_sampling", *labs, *LATER)
    assert chosen(CPU, backend="cuda").labs == ("sampler", *SHARED, *labs, *LATER)


def test_cuda_compiles_the_labs_that_are_written_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(nvcc, "device_architecture", lambda index: "90")
    monkeypatch.setattr(Part, "folder", property(lambda part: part.lab))  # nothing is imported
    monkeypatch.setattr(compiler, "library_for", lambda lab, _: compiled.append(lab))
    choice = chosen(backend="cuda", mine="none")
    parts = load_parts("none", labs=choice.labs)
    choice.kind(parts, choice.roles).prepare(GPU)
    assert compiled == [
        "cuda_memory_ops",
        "cuda_ops",
        "cuda_flash_attention",
        "cuda_paged_attention",
    ]


@needs_compiler
def test_cpu_has_attention_of_its_own_and_yields_it_to_labs_that_are_named() -> None:
    backend = chosen(CPU, backend="cpu")
    assert backend.roles["attention"] == ()
    assert set(backend.labs) == {*SHARED, *LATER, "sampler", "transformer_ops"}
    assert "C++" in backend.note
    for lab in ("radix_attention", "transformer_ops"):  # lab 5 calls lab 2
        yielded = chosen(CPU, backend="cpu", mine=lab)
        assert yielded.roles["attention"] == ("radix_attention",)
        assert yielded.note == ""


def test_cpu_without_a_compiler_or_on_a_gpu_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_build, "missing", lambda: "")
    with pytest.raises(ConfigError, match=r"computes on a CPU.*leave the backend to auto"):
        chosen(GPU, backend="cpu")
    monkeypatch.setattr(
        cpu_build, "missing", lambda: f"there is no C++ compiler: {cpu_build.INSTALL}"
    )
    with pytest.raises(ConfigError, match=r"install g\+\+") as error:
        chosen(CPU, backend="cpu")
    assert error.value.param == "backend"


@needs_compiler
def test_cpu_computes_in_float32_and_bfloat16_alone() -> None:
    backend = choose_backend(EngineConfig(backend="cpu", mine="none"), CPU, [64])
    with pytest.raises(ConfigError, match="choose a dtype from float32, bfloat16"):
        backend.make_pool([KVLayerSpec(1, 64)], 2, 4, torch.float16, CPU, 0)


def test_triton_on_a_cpu_asks_for_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="TRITON_INTERPRET=1") as error:
        chosen(CPU, backend="triton")
    assert error.value.param == "backend"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "slowly" in chosen(CPU, backend="triton").note


def test_triton_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "has_triton", lambda: False)
    with pytest.raises(ConfigError, match=r"pip install 'yaie\[gpu\]'"):
        chosen(backend="triton")


def test_cuda_on_a_cpu_needs_a_compiler_and_says_that_it_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "slowly" in chosen(CPU, backend="cuda").note
    monkeypatch.setattr(nvcc, "find_host_compiler", lambda: None)
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
    backend = chosen(head_dims=(64, 512))
    assert backend.kind.name == "triton"
    assert backend.roles["attention"] == ("radix_attention",)
    assert {"transformer_ops", "triton_ops"} <= set(backend.labs)
    assert chosen(head_dims=(64, 256)) == chosen(head_dims=())


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_a_cpu_takes_heads_of_any_size(backend: str) -> None:
    assert chosen(CPU, head_dims=(4096,), backend=backend) == chosen(CPU, backend=backend)


@pytest.mark.parametrize(
    ("settings", "param", "fix"),
    [
        ({"backend": "triton"}, "backend", "leave the backend to auto"),
        ({"mine": "triton_paged_attention"}, "mine", "leave triton_paged_attention out"),
    ],
)
def test_wide_heads_on_kernels_that_were_asked_for_are_refused(
    settings: dict[str, str], param: str, fix: str
) -> None:
    with pytest.raises(ConfigError, match=f"512 dimensions .* at most 256: {fix}") as error:
        chosen(head_dims=(512,), **settings)
    assert error.value.param == param


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


# --- the object ---


def test_the_parts_of_a_backend_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from yaie import parts
    from yaie.backends import choice

    calls: list[tuple[str, ...]] = []

    def load(mine: str, *, labs: tuple[str, ...]) -> parts.Parts:
        calls.append(labs)
        return parts.load_parts(mine, labs=labs)

    monkeypatch.setattr(choice, "load_parts", load)
    backend = choose_backend(EngineConfig(mine="none"), GPU, [512])
    assert calls == [chosen(head_dims=[512], mine="none").labs]
    assert backend.parts.labs == calls[0]


def test_a_backend_makes_what_a_step_runs_on() -> None:
    backend = choose_backend(EngineConfig(mine="none", backend="torch"), CPU, [8])
    layers = [KVLayerSpec(2, 8)]
    pool = backend.make_pool(layers, 6, 4, torch.float32, CPU, 2)
    assert (pool.num_blocks, pool.block_size) == (6, 4)
    for made, lab in (
        (pool, "paged_cache"),
        (backend.make_ops(), "transformer_ops"),
        (backend.make_attention(pool), "radix_attention"),
        (backend.make_sampler(), "sampler"),
    ):
        assert type(made).__module__.startswith(f"solutions.{lab}")


def test_kernels_fill_the_roles_of_a_backend_that_has_them() -> None:
    backend = choose_backend(EngineConfig(backend="cuda", mine="none"), CPU, [64])
    pool = backend.make_pool([KVLayerSpec(1, 64)], 2, 4, torch.float16, CPU, 0)
    assert type(pool).__name__ == "KernelPool"
    assert type(backend.make_ops()).__name__ == "KernelOps"
    assert type(backend.make_attention(pool)).__name__ == "KernelAttention"


def test_heads_wider_than_the_config_said_are_refused_before_they_reach_a_kernel() -> None:
    backend = choose_backend(EngineConfig(backend="cuda", mine="none"), CPU, [64])
    layers = [KVLayerSpec(1, 64), KVLayerSpec(1, 320)]
    with pytest.raises(ConfigError, match=r"320 dimensions, more than .* --backend torch") as error:
        backend.make_pool(layers, 2, 4, torch.float32, CPU, 0)
    assert error.value.param == "backend"
    plain = choose_backend(EngineConfig(mine="none"), CPU, [64])
    assert plain.make_pool(layers, 2, 4, torch.float32, CPU, 0).num_blocks == 2


def test_a_dtype_that_a_backend_does_not_compute_in_is_refused() -> None:
    backend = choose_backend(EngineConfig(mine="none", backend="torch"), CPU, [8])
    with pytest.raises(ConfigError, match="'torch' does not compute in float64") as error:
        backend.make_pool([KVLayerSpec(1, 8)], 2, 4, torch.float64, CPU, 0)
    assert error.value.param == "dtype"


@pytest.mark.parametrize(
    ("settings", "head_dim", "captured"),
    [
        ({"backend": "triton"}, 64, True),
        ({"backend": "cuda"}, 64, True),
        ({"backend": "torch"}, 64, False),
        ({"backend": "auto"}, 512, False),
    ],
)
def test_a_step_may_be_captured_if_kernels_compute_it(
    settings: dict[str, str], head_dim: int, captured: bool
) -> None:
    config = EngineConfig(mine="none", **settings)  # type: ignore[arg-type]
    assert choose_backend(config, GPU, [head_dim]).may_be_captured is captured


@pytest.mark.parametrize("graphs", ["on", "lazy"])
def test_graphs_are_refused_without_a_gpu(graphs: Any) -> None:
    with pytest.raises(ConfigError, match="graphs need a GPU") as caught:
        LLMEngine(graphs=graphs, num_blocks=8, device="cpu")
    assert caught.value.param == "graphs"


def test_padding_is_refused_where_lengths_are_read_on_the_host() -> None:
    with pytest.raises(ConfigError, match="PyTorch computes attention") as caught:
        LLMEngine(graphs="padded", backend="torch", num_blocks=8, device="cpu")
    assert caught.value.param == "graphs"
    assert "--backend triton (on a CPU with TRITON_INTERPRET=1" in caught.value.message


def test_a_registered_class_is_a_backend_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from yaie.backends import base
    from yaie.backends.torch import TorchBackend

    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))

    @base.register_backend("library")
    class Library(TorchBackend):
        """Attends by itself, with no lab."""

        kernels: ClassVar[base.Roles] = {**base.PLAIN, "attention": ()}

    config = EngineConfig(mine="none")
    monkeypatch.setattr(EngineConfig, "backend", "library", raising=False)
    assert config.backend == "library"
    backend = choose_backend(config, CPU)
    assert isinstance(backend, Library)
    assert "radix_attention" not in backend.parts.labs
    assert backend.has_kernels("attention")
