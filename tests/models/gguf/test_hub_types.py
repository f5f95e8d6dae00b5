"""ORG/REPO:TYPE: one of a repository's GGUF files, from a hub on loopback."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.models.fake_hub import FakeHub, Repository, fake_hub
from tests.models.gguf.tiny_ggufs import write_gguf
from tests.models.test_adapters import load
from tests.models.test_hub import point_to, refusing_url
from yaie.core.errors import ModelError
from yaie.models.gguf.parts import of_type
from yaie.models.hub import find_model

MODEL = "authors/tiny-GGUF"


@pytest.fixture
def hub(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    llama_gguf: Path,
    checkpoint: Callable[[str], Path],
) -> Iterator[FakeHub]:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "")
    whole = llama_gguf.read_bytes()
    first = write_gguf(checkpoint("llama"), tmp_path / "tiny-BF16.gguf", split=15)
    parts = sorted(first.parent.glob("tiny-BF16-*.gguf"))
    with fake_hub() as running:
        point_to(monkeypatch, running.url)
        running.repositories[MODEL] = Repository(
            {
                "tiny-Q8_0.gguf": whole,
                "tiny-q4_k_m.gguf": whole,
                **{f"BF16/{path.name}": path.read_bytes() for path in parts},
                "mmproj-F16.gguf": whole,
                "README.md": b"",
            }
        )
        yield running


def downloaded(hub: FakeHub) -> set[str]:
    paths = {path for method, path in hub.requests if method == "GET" and "/resolve/" in path}
    return {path.partition("/resolve/")[2].partition("/")[2] for path in paths}


def test_the_file_of_a_type_is_served_and_no_other_is_fetched(hub: FakeHub) -> None:
    model = load(Path(f"{MODEL}:Q4_K_M"))
    assert model.name == f"{MODEL}:Q4_K_M"
    assert model.architecture == "LlamaForCausalLM"
    assert downloaded(hub) == {"tiny-q4_k_m.gguf"}


def test_all_parts_are_fetched(hub: FakeHub) -> None:
    assert load(Path(f"{MODEL}:bf16")).architecture == "LlamaForCausalLM"
    assert len(downloaded(hub)) == 2


def test_a_file_name_does_as_well(hub: FakeHub) -> None:
    assert find_model(f"{MODEL}:tiny-Q8_0.gguf", None).folder.name.startswith("tiny-Q8_0-")


@pytest.mark.parametrize("name", [MODEL, f"{MODEL}:Q5_K_M"])
def test_the_types_that_are_there_are_listed(hub: FakeHub, name: str) -> None:
    with pytest.raises(ModelError, match=r"What is there: BF16, Q8_0, q4_k_m\."):
        find_model(name, None)


def test_an_earlier_download_does_without_the_hub(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = find_model(f"{MODEL}:Q8_0", None)
    point_to(monkeypatch, refusing_url())
    assert find_model(f"{MODEL}:Q8_0", None) == first
    with pytest.raises(ModelError, match="is not in the download cache"):
        find_model(f"{MODEL}:Q4_K_M", None)


def test_a_repository_that_is_not_there(hub: FakeHub) -> None:
    with pytest.raises(ModelError, match="no such model on the hub"):
        find_model("authors/none:Q8_0", None)


def test_two_models_of_one_type_are_told_apart_by_name() -> None:
    names = ["a-Q8_0.gguf", "b-Q8_0.gguf"]
    with pytest.raises(ModelError, match=r"has 2 GGUF models of the type Q8_0.*a-Q8_0\.gguf"):
        of_type("x", "Q8_0", names)
    assert of_type("x", "b-Q8_0.gguf", names) == ["b-Q8_0.gguf"]
