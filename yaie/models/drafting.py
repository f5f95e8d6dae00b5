"""What guesses at a model's tokens: a small model of its own, or a head on its states."""

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from yaie.core.config import EMBEDDED, EngineConfig
from yaie.core.contracts import TransformerOps
from yaie.core.errors import ConfigError, ModelError
from yaie.core.gemm import PackedGemm
from yaie.models.adapter import ModelAdapter
from yaie.models.config import read_config
from yaie.models.draft_head import DraftHead
from yaie.models.fields import check_config
from yaie.models.hub import find_model
from yaie.models.json_files import read_json
from yaie.models.llama import LlamaAdapter
from yaie.models.loader import LoadedModel, ModelLoader
from yaie.models.lookalikes import no_config
from yaie.models.mtp import MtpHead
from yaie.models.packing import read_format
from yaie.models.tutor import TUTOR_DIR
from yaie.models.weights import checkpoint_files, read_stored, read_tensors, stored_shapes

if TYPE_CHECKING:
    from yaie.models.qwen3_5_mtp import Gate


def draft_is_packed(config: EngineConfig) -> bool:
    """Whether the model that makes drafts has weights in few bits, as its config.json says: the engine
    then runs on the part that multiplies them, whatever the weights of its own model are.

    Raises as `load_draft_model` does."""
    if config.speculate != "draft":
        return False
    folder = find_model(_named(config, "draft"), None).folder
    return read_format(folder, read_config(folder)) is not None


def load_draft_model(
    config: EngineConfig,
    target: LoadedModel,
    ops: TransformerOps,
    dtypes: Collection[torch.dtype],
    products: Callable[[], PackedGemm],
) -> ModelAdapter:
    """The model that `config.draft_model` names, or that of the tutor and its sibling.

    Raises ConfigError if there is none, or if it has another vocabulary, ModelError if it cannot be had.
    """
    name = _named(config, "draft")
    length = target.max_length
    own = replace(config, model=name, revision=None, dtype="auto", max_model_len=None)
    loader = ModelLoader(own)
    if loader.keeps_states:
        raise ConfigError(
            f"draft_model {name} keeps states beside keys and values, and what drafts has no place for "
            "them as yet: give a model that attends in every layer",
            param="draft_model",
        )
    if loader.max_length > length:
        loader = ModelLoader(replace(own, max_model_len=length))
    adapter, folder = loader.load_adapter(ops, dtypes, products)
    if adapter.vocab_size != target.adapter.vocab_size or _differ(folder, target.folder):
        raise ConfigError(
            f"draft_model {name} has another vocabulary than {target.name}: its drafts would be other "
            "words. Give a smaller model of the same family",
            param="draft_model",
        )
    if adapter.max_length < length:
        raise ConfigError(
            f"draft_model {name} takes texts of {adapter.max_length} tokens and {target.name} of "
            f"{length}: set max_model_len to {adapter.max_length}",
            param="draft_model",
        )
    return adapter


def load_mtp_head(config: EngineConfig, target: LoadedModel) -> DraftHead:
    """The head that `config.draft_model` names, or the tutor's own.

    Raises ConfigError if there is none, or if the target cannot carry it, ModelError if it does not fit.
    """
    folder = Path(_named(config, "mtp")).expanduser()
    if type(target.adapter) is not LlamaAdapter:
        raise ConfigError(
            f"speculate 'mtp' needs a model of the Llama family, and {target.name} is "
            f"{target.architecture}: take 'ngram', or 'draft' with a smaller model of its family",
            param="speculate",
        )
    described = _config_of(folder)
    if described.get("architectures") != ["MtpHead"]:
        raise ConfigError(
            f"draft_model {folder} is no head that `python -m book.tutor.distill --kind mtp` wrote",
            param="draft_model",
        )
    head = MtpHead(target.adapter, described)
    head.load_weights(read_tensors(checkpoint_files(folder), lambda _: None))
    return head


def check_own_head(config: EngineConfig, loader: ModelLoader) -> None:
    """Of a model whose checkpoint may have a head: whether it does, before any weight is read.

    Raises ConfigError if there is none, ModelError for one that is not read.
    """
    from yaie.models.qwen3_5_mtp import check_names

    if config.draft_model is not None:
        raise ConfigError(
            f"draft_model {config.draft_model!r} has no effect here: the head of {loader.name} is in "
            "its own checkpoint. Leave it out",
            param="draft_model",
        )
    names = stored_shapes(checkpoint_files(loader.fetch()))
    check_names(loader.name, names)


def load_own_head(target: LoadedModel, gate: "Gate") -> DraftHead:
    """The head in the target's own checkpoint. gate: `StateOps.sigmoid_gate`. Raises ModelError if it
    does not fit."""
    from yaie.models.qwen3_5 import HEAD, Qwen35Adapter
    from yaie.models.qwen3_5_mtp import Qwen35Head

    assert isinstance(target.adapter, Qwen35Adapter)
    head = Qwen35Head(target.adapter, gate)
    stored = read_stored(checkpoint_files(target.folder), lambda _: None)
    head.load_weights((name, tensor) for name, tensor in stored if name.startswith(HEAD))
    return head


def _named(config: EngineConfig, kind: str) -> str:
    if config.draft_model is not None:
        return config.draft_model
    if config.model not in EMBEDDED:
        raise ConfigError(
            f"speculate {kind!r} needs draft_model, what guesses for {config.model}: only the tutor and "
            "its sibling have one. Or take 'ngram', which needs none",
            param="speculate",
        )
    folder = TUTOR_DIR / kind
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{folder} is not there: `python -m book.tutor.distill --kind {kind}` writes it",
            param="speculate",
        )
    return str(folder)


def _config_of(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise no_config(folder) if folder.is_dir() else ModelError(f"there is no folder {folder}")
    values = read_json(path)
    check_config(path, values)
    return values


def _differ(one: Path, other: Path) -> bool:
    """Whether both folders have a tokenizer.json, of different vocabularies."""
    vocabularies = []
    for folder in (one, other):
        try:
            text = (folder / "tokenizer.json").read_text(encoding="utf-8")
            vocabularies.append(json.loads(text)["model"]["vocab"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False
    return bool(vocabularies[0] != vocabularies[1])
