"""`yaie build-kernels`."""

from pathlib import Path

import pytest

from tests.cli.conftest import Yaie
from yaie.cli import build_kernels
from yaie.core.errors import ConfigError, KernelError
from yaie.cuda import nvcc
from yaie.cuda.compiler import Built

LABS = ("cuda_memory_ops", "cuda_ops", "cuda_flash_attention", "cuda_paged_attention")


@pytest.fixture(autouse=True)
def _compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes no time, for all labs but the second."""

    def build(folder: Path, names: tuple[str, ...]) -> Built:
        if folder.name == "cuda_ops":
            raise KernelError("cuda_ops does not compile: norm.cu, line 3: expected a [;]")
        path = tmp_path / f"{folder.name}.so"
        path.write_bytes(b"0" * 2**20)
        return Built(path, "13.0", names)

    monkeypatch.setattr("yaie.cuda.compiler.build", build)
    found = nvcc.Nvcc(Path("/opt/nvcc"), "13.0", "PATH")
    monkeypatch.setattr("yaie.cuda.nvcc.find_nvcc", lambda: found)
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)


def test_every_lab_has_a_row_and_what_failed_its_reason(yaie: Yaie) -> None:
    ran = yaie("build-kernels", "--arch", "80;90")
    assert ran.code == 1
    assert "nvcc 13.0 (/opt/nvcc), for sm_80, sm_90" in ran.out
    rows = {line.split()[0]: line.split()[1:] for line in ran.out.splitlines() if line}
    assert {rows[lab][0] for lab in LABS if lab != "cuda_ops"} == {"built"}
    assert rows["cuda_memory_ops"][2] == "1.0"
    assert "norm.cu, line 3: expected a [;]" in ran.out


def test_the_engines_own_kernels_are_built_where_they_run(yaie: Yaie) -> None:
    assert "packed_cuda" in yaie("build-kernels", "--arch", "80;90").out
    assert "packed_cuda" in yaie("build-kernels", "--arch", "90a").out
    assert "packed_cuda" not in yaie("build-kernels", "--arch", "75;90").out
    assert "packed_cuda" not in yaie("build-kernels", "--arch", "90", "--yours").out


def test_what_is_to_write_is_counted(yaie: Yaie) -> None:
    ran = yaie("build-kernels", "--yours")
    (line,) = (line for line in ran.out.splitlines() if line.startswith("cuda_memory_ops"))
    assert "functions still to write" in line


def test_without_a_compiler_it_says_what_to_install(
    yaie: Yaie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaie.cuda.nvcc.find_nvcc", lambda: None)
    ran = yaie("build-kernels")
    assert ran.code == 2
    assert "pip install nvidia-cuda-nvcc" in ran.err


def test_architectures_come_from_the_flag_the_environment_or_the_usual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert build_kernels.architectures(None) == ("80", "90")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.6+PTX")
    assert build_kernels.architectures(None) == ("86",)
    assert build_kernels.architectures("sm_90") == ("90",)
    with pytest.raises(ConfigError) as error:
        build_kernels.architectures("hopper")
    assert error.value.param == "arch"
