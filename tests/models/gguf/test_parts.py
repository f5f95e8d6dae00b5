"""A model in several files: any of them names all."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.models.gguf.tiny_ggufs import write_gguf
from tests.models.test_adapters import assert_same_logits, load
from yaie.core.errors import ModelError
from yaie.models.gguf.parts import base_name, models_among, part_names, read_model

Checkpoint = Callable[[str], Path]


@pytest.fixture
def parts(checkpoint: Checkpoint, tmp_path: Path) -> list[Path]:
    first = write_gguf(checkpoint("llama"), tmp_path / "tiny.gguf", split=8)
    found = sorted(first.parent.glob("tiny-*.gguf"))
    assert len(found) == 3
    return found


def test_any_part_is_the_whole_model(parts: list[Path], checkpoint: Checkpoint) -> None:
    for part in parts[:2]:
        model = load(part)
        assert model.name == "tiny"
        assert_same_logits(model.adapter, checkpoint("llama"))


def test_a_missing_part_is_named(parts: list[Path]) -> None:
    parts[1].unlink()
    with pytest.raises(ModelError, match=r"lacks 1 of the 3 parts of tiny: tiny-00002-of"):
        load(parts[0])


def test_a_part_by_another_name_is_found_out(parts: list[Path]) -> None:
    with pytest.raises(ModelError, match="is part of a model in 3 files"):
        load(parts[0].rename(parts[0].with_name("mine.gguf")))


def test_parts_of_two_models_do_not_mix(parts: list[Path]) -> None:
    shutil.copyfile(parts[2], parts[1])
    with pytest.raises(ModelError, match=r"are of several models.*is in two of its parts"):
        read_model(parts[0])


def test_names_of_parts() -> None:
    assert base_name("a-Q4_K_M-00002-of-00003.gguf") == "a-Q4_K_M"
    assert base_name("a.GGUF") == "a"
    assert part_names("b-00001-of-00002.gguf") == ["b-00001-of-00002.gguf", "b-00002-of-00002.gguf"]
    names = ["a.gguf", "mmproj-a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf", "README"]
    assert models_among(names) == {
        "a": ["a.gguf"],
        "b": ["b-00001-of-00002.gguf", "b-00002-of-00002.gguf"],
    }
