"""Resolving a model's name: folders, downloads from a hub on loopback, and all that can go wrong."""

import errno
import os
import shutil
import socket
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.models.fake_hub import COMMIT, PULL_COMMIT, FakeHub, Pull, Repository, fake_hub
from tests.models.plain_ops import PlainOps
from yaie.core.config import EngineConfig
from yaie.core.errors import ModelError
from yaie.models import ModelLoader
from yaie.models.hub import fetch_model, find_model, resolve_model

Checkpoint = Callable[[str], Path]
MODEL = "authors/tiny-llama"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub to which huggingface_hub talks, and an empty cache."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "")
    with fake_hub() as running:
        point_to(monkeypatch, running.url)
        yield running


def point_to(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )


def refusing_url() -> str:
    """An address at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_a_folder_is_served_under_its_own_name(tmp_path: Path) -> None:
    assert resolve_model(str(tmp_path), None, False) == (tmp_path, tmp_path.name)


def test_config_json_comes_before_the_weights(hub: FakeHub, checkpoint: Checkpoint) -> None:
    hub.add_folder(MODEL, checkpoint("llama"))
    source = find_model(MODEL, None)
    assert [path.name for path in source.folder.iterdir()] == ["config.json"]
    assert fetch_model(source, False) == source.folder
    assert (source.folder / "model.safetensors").is_file()


def test_a_branch_that_moves_on_between_config_and_weights_is_not_followed(
    hub: FakeHub, checkpoint: Checkpoint
) -> None:
    hub.add_folder(MODEL, checkpoint("llama"))
    source = find_model(MODEL, None)
    hub.requests.clear()
    assert fetch_model(source, False) == source.folder
    assert any(COMMIT in path for _, path in hub.requests)
    assert not any("main" in path for _, path in hub.requests)


def test_a_model_is_downloaded_and_loaded(
    hub: FakeHub, checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.add_folder(MODEL, checkpoint("llama"))
    model = ModelLoader(EngineConfig(model=MODEL, device="cpu"), False).load(PlainOps())
    assert model.name == MODEL
    assert model.num_parameters > 100_000
    assert capsys.readouterr().err == ""


def test_only_what_is_needed_is_downloaded(hub: FakeHub, checkpoint: Checkpoint) -> None:
    hub.add_folder(MODEL, checkpoint("llama"))
    extra = [
        "README.md",
        "pytorch_model.bin",
        "consolidated.safetensors",
        "onnx/model.safetensors",
        "run.py",
    ]
    hub.repositories[MODEL].files |= dict.fromkeys(extra, b"x")
    folder, _ = resolve_model(MODEL, None, False)
    assert {path.name for path in folder.rglob("*")} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_a_cached_model_needs_no_network(
    hub: FakeHub, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add_folder(MODEL, checkpoint("llama"))
    online, _ = resolve_model(MODEL, None, False)
    point_to(monkeypatch, refusing_url())
    assert resolve_model(MODEL, None, False) == (online, MODEL)


def test_a_cached_model_works_in_offline_mode(
    hub: FakeHub, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    hub.add_folder(MODEL, checkpoint("llama"))
    online, _ = resolve_model(MODEL, None, False)
    asked = len(hub.requests)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert resolve_model(MODEL, None, False) == (online, MODEL)
    assert len(hub.requests) == asked


def test_a_cached_model_survives_a_hub_that_is_down(hub: FakeHub, checkpoint: Checkpoint) -> None:
    hub.add_folder(MODEL, checkpoint("llama"))
    online, _ = resolve_model(MODEL, None, False)
    hub.repositories[MODEL].broken = True
    assert resolve_model(MODEL, None, False) == (online, MODEL)


def test_no_network_and_not_in_the_cache(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    point_to(monkeypatch, refusing_url())
    with pytest.raises(ModelError, match=r"hub cannot be reached .*yaie serve tutor"):
        resolve_model(MODEL, None, False)


def test_offline_mode_and_not_in_the_cache(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE"):
        resolve_model(MODEL, None, False)


def test_an_unknown_id_gets_the_closest_name(hub: FakeHub, checkpoint: Checkpoint) -> None:
    hub.add_folder(MODEL, checkpoint("llama"))
    with pytest.raises(ModelError, match=rf"no such model .*Did you mean {MODEL}\?"):
        resolve_model("tiny-llama", None, False)


def test_a_typo_is_compared_with_cached_models(hub: FakeHub, checkpoint: Checkpoint) -> None:
    hub.add_folder(MODEL, checkpoint("llama"))
    resolve_model(MODEL, None, False)
    with pytest.raises(ModelError, match=rf"Did you mean {MODEL}\?"):
        resolve_model("authors/tiny-lama", None, False)


def test_a_name_like_nothing_known_gets_no_hint(hub: FakeHub) -> None:
    with pytest.raises(ModelError, match="no such model") as caught:
        resolve_model("nobody/zzz", None, False)
    assert "Did you mean" not in caught.value.message


def test_what_is_neither_folder_nor_id(hub: FakeHub) -> None:
    with pytest.raises(ModelError, match="no hub id either"):
        resolve_model("/no/such/folder", None, False)
    assert hub.requests == []


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"")
    with pytest.raises(ModelError, match="is a file"):
        resolve_model(str(tmp_path / "notes.txt"), None, False)


def test_a_gated_model_says_how_to_get_it(hub: FakeHub, checkpoint: Checkpoint) -> None:
    hub.add_folder(MODEL, checkpoint("llama"), gated=True)
    with pytest.raises(ModelError, match=r"is gated.*accept their licence.*HF_TOKEN"):
        resolve_model(MODEL, None, False)


def test_an_unknown_revision(hub: FakeHub, checkpoint: Checkpoint) -> None:
    hub.add_folder(MODEL, checkpoint("llama"))
    with pytest.raises(ModelError, match="no revision 'v9'"):
        resolve_model(MODEL, "v9", False)
    with pytest.raises(ModelError, match="no revision 'v9'"):
        ModelLoader(EngineConfig(model=MODEL, revision="v9", device="cpu"), False)


def test_pickle_only_weights_are_refused_before_any_download(hub: FakeHub) -> None:
    hub.repositories[MODEL] = Repository({"config.json": b"{}", "pytorch_model.bin": b"evil"})
    with pytest.raises(ModelError, match=r"only as pickle .*runs whatever code"):
        resolve_model(MODEL, None, False)
    assert not any("pytorch_model.bin" in path for method, path in hub.requests if method == "GET")


def offer_conversion(hub: FakeHub, folder: Path, **changes: str) -> None:
    """The model with pickle on its main branch, and the bot's pull request with safetensors."""
    hub.add_folder(MODEL, folder)
    files = hub.repositories[MODEL].files
    pull = Pull({"model.safetensors": files.pop("model.safetensors")}, **changes)
    files["pytorch_model.bin"] = b"evil"
    hub.repositories[MODEL].pull = pull


def test_pickle_only_weights_come_from_the_bots_conversion_if_there_is_one(
    hub: FakeHub, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_conversion(hub, checkpoint("gpt2"))
    folder, name = resolve_model(MODEL, None, False)
    assert (folder.name, name) == (PULL_COMMIT, MODEL)
    assert (folder / "model.safetensors").exists()
    assert not (folder / "pytorch_model.bin").exists()
    point_to(monkeypatch, refusing_url())
    assert resolve_model(MODEL, None, False) == (folder, MODEL)


@pytest.mark.parametrize(
    "changes",
    [{"author": "mallory"}, {"title": "Better weights"}, {"parent": "0" * 40}],
    ids=["by another author", "of another title", "on an older main branch"],
)
def test_other_pull_requests_are_not_trusted(
    changes: dict[str, str], hub: FakeHub, checkpoint: Checkpoint
) -> None:
    offer_conversion(hub, checkpoint("gpt2"), **changes)
    with pytest.raises(ModelError, match="only as pickle"):
        resolve_model(MODEL, None, False)


def test_gguf_only_and_adapter_only_repositories_are_told_apart(hub: FakeHub) -> None:
    hub.repositories["a/gguf"] = Repository({"model.gguf": b""})
    hub.repositories["a/lora"] = Repository({"adapter_model.safetensors": b""})
    hub.repositories["a/data"] = Repository({"vocab.txt": b""})
    for name, message in (
        ("gguf", r"only as GGUF: say which type, as in yaie serve a/gguf:Q4_K_M.*: model\.gguf\."),
        ("lora", "LoRA adapter"),
        ("data", "has no weights"),
    ):
        with pytest.raises(ModelError, match=message):
            resolve_model(f"a/{name}", None, False)


def test_a_model_larger_than_the_disk_is_refused_before_any_download(
    hub: FakeHub, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add_folder(MODEL, checkpoint("llama"), claimed_sizes={"model.safetensors": 2**50})
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**40, 0, 2**40))
    with pytest.raises(ModelError, match=r"no space .*1048576.0 GiB and 1024.0 are free.*HF_HOME"):
        resolve_model(MODEL, None, False)
    assert not any("resolve" in path for method, path in hub.requests if method == "GET")


def test_a_disk_that_fills_up_on_the_way(
    hub: FakeHub, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    hub.add_folder(MODEL, checkpoint("llama"))
    whole = huggingface_hub.snapshot_download

    def full(**options: object) -> object:
        if options.get("dry_run"):
            return whole(**options)  # type: ignore[arg-type]
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", full)
    with pytest.raises(ModelError, match="the disk ran full"):
        resolve_model(MODEL, None, False)


def test_the_commit_that_was_asked_for_is_the_one_served(
    hub: FakeHub, checkpoint: Checkpoint
) -> None:
    hub.add_folder(MODEL, checkpoint("llama"))
    folder, _ = resolve_model(MODEL, COMMIT, False)
    assert folder.name == COMMIT


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_cache_that_may_not_be_written_is_named_with_what_to_do(
    hub: FakeHub, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    import huggingface_hub

    hub.add_folder(MODEL, checkpoint("llama"))
    whole = huggingface_hub.snapshot_download

    def refused(**options: object) -> object:
        if options.get("dry_run"):
            return whole(**options)  # type: ignore[arg-type]
        raise OSError(number, os.strerror(number), "/somewhere/blobs")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refused)
    with pytest.raises(ModelError, match=r"cannot write .*cache: .*Set HF_HOME to a folder"):
        resolve_model(MODEL, None, False)


def test_named_templates_are_fetched_and_no_other_folder_is(
    hub: FakeHub, checkpoint: Checkpoint
) -> None:
    hub.add_folder(MODEL, checkpoint("llama"))
    others = ("a", "ad", "onnx", "additional", "additional_chat_templates2", "z", "_")
    hub.repositories[MODEL].files.update(
        {
            "additional_chat_templates/tool_use.jinja": b"{{ tools }}",
            "additional_chat_templates/more/x.jinja": b"",
            **{f"{folder}/model.safetensors": b"" for folder in others},
        }
    )
    folder, _ = resolve_model(MODEL, None, False)
    below = [path for path in folder.rglob("*") if path.parent != folder]
    assert [path.relative_to(folder).as_posix() for path in below] == [
        "additional_chat_templates/tool_use.jinja"
    ]
    assert (folder / "model.safetensors").is_file()
