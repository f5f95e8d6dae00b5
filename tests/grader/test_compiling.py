"""What is compiled before a test's time begins."""

from pathlib import Path

import pytest

from grader.compiling import _compiled_references, compile_others, compiled_references
from grader.machine import CUDA
from grader.selfcheck import farm
from yaie.cuda.on_cpu.build import Built
from yaie.cuda.on_cpu.symbols import Symbols
from yaie.curriculum.manifest import ROOT, load_curriculum


class Builds:
    """In the place of the compiler: notes the folders."""

    def __init__(self) -> None:
        self.folders: list[Path] = []

    def __call__(self, folder: Path) -> Built:
        self.folders.append(folder)
        library = folder / f"{folder.name}.so"
        return Built(library, Path("runtime.so"), Symbols(library), (Path(f"{folder.name}.o"),))


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Builds:
    found = Builds()
    monkeypatch.setattr("yaie.cuda.on_cpu.build.build", found)
    return found


def cuda_labs() -> set[str]:
    return {lab.key for lab in load_curriculum().labs if CUDA in lab.verify}


def test_the_engine_finds_the_other_cuda_parts_compiled(builds: Builds) -> None:
    """Each takes a compiler seconds, and the engine's test has ten for all that it does."""
    compile_others(load_curriculum()["cuda_ops"])
    others = cuda_labs() - {"cuda_ops"}
    assert len(others) >= 3
    assert set(builds.folders) == {ROOT / "solutions" / key for key in others}


def test_all_references_are_compiled_once(builds: Builds) -> None:
    """Four farms of a selfcheck would compile each four times."""
    _compiled_references.cache_clear()
    try:
        files = compiled_references()
        assert compiled_references() == files
    finally:
        _compiled_references.cache_clear()
    assert sorted(folder.name for folder in builds.folders) == sorted(cuda_labs())
    kinds = ("{}.so", "{}.json", "{}.o")
    wanted = {kind.format(key) for key in cuda_labs() for kind in kinds} | {"runtime.so"}
    assert {file.name for file in files} == wanted


def test_a_farm_begins_with_what_was_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "library.so"
    library.write_text("compiled")
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: None)
    monkeypatch.setattr(farm, "compiled_references", lambda: [library, library])
    for lab, kept in (("cuda_ops", ["library.so"]), ("radix_tree", [])):
        begun = farm.Farm(lab, 1)
        assert [file.name for file in Path(begun._cache.name).glob("cuda/cpu/*")] == kept
