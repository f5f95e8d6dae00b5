"""Checkpoints of random weights in a known shape: speed does not depend on what the numbers are.

`--shape llama-3.1-8b` measures a model of that size without a download. Weights are drawn tensor by
tensor, on the GPU if there is one, and written as they come; shards are written side by side. No more
than a tensor for each shard is in memory at a time.
"""

import json
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from yaie.core.errors import ConfigError
from yaie.core.files import cannot_write, write_whole
from yaie.models.weights import INDEX_FILE
from yaie.tutor import TUTOR_PATH

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3-0.6b": (
        "Qwen3",
        {
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 151936,
            "max_position_embeddings": 40960,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            "tie_word_embeddings": True,
        },
    ),
    "llama-3.1-8b": (
        "Llama",
        {
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
            "tie_word_embeddings": False,
        },
    ),
    "llama-100m": (
        "Llama",
        {
            "hidden_size": 1024,
            "intermediate_size": 2816,
            "num_hidden_layers": 8,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "vocab_size": 8192,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
        },
    ),
    "tiny": (
        "Llama",
        {
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 12288,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": True,
        },
    ),
}
"""Family, and what its config.json says. The first two are those of the models with these names; the
third is for CPUs."""
SHARD_BYTES = 4 << 30
WRITERS = 4
SPREAD = 0.02
DTYPE, DTYPE_NAME = torch.bfloat16, "BF16"
HEADER_UNIT = 8
"""Bytes: the safetensors format aligns its data so."""


@dataclass(frozen=True, slots=True)
class _Shard:
    """A file of the checkpoint. tensors: shapes by name."""

    name: str
    tensors: dict[str, tuple[int, ...]]

    @property
    def header(self) -> bytes:
        """The file's beginning: how long the table is, and where each tensor lies behind it."""
        table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, shape in self.tensors.items():
            begin, end = end, end + _bytes(shape)
            table[name] = {"dtype": DTYPE_NAME, "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(table).encode()
        text += b" " * (-len(text) % HEADER_UNIT)
        return len(text).to_bytes(8, "little") + text

    @property
    def num_bytes(self) -> int:
        return len(self.header) + sum(map(_bytes, self.tensors.values()))


@contextmanager
def checkpoint(shape: str, folder: str | None) -> Iterator[Path]:
    """A folder with a checkpoint in this shape: `folder`, or a temporary one that is deleted afterwards.

    Raises ConfigError if there is no such shape, or if `folder` holds something else.
    """
    if shape not in SHAPES:
        raise ConfigError(
            f"--shape is one of {', '.join(SHAPES)}; there is no {shape!r}", param="shape"
        )
    if folder is not None:
        yield make_checkpoint(shape, Path(folder).expanduser())
        return
    with TemporaryDirectory(prefix="yaie-shape-") as temporary:
        yield make_checkpoint(shape, Path(temporary) / shape)


def make_checkpoint(shape: str, folder: Path) -> Path:
    """Write the checkpoint into `folder`, unless it is there already and complete. Returns the folder.

    Raises ConfigError if the folder holds something else, which is left as it is, or cannot be written;
    then what was written is removed.
    """
    config = _config(shape)
    shards = _shards(_tensors(config))
    text = config.to_json_string(use_diff=False)
    if (folder / "config.json").is_file():
        if _told((folder / "config.json").read_text("utf-8")) != _told(text):
            raise ConfigError(
                f"{folder} holds another model than {shape}: name an empty folder",
                param="shape-folder",
            )
        if _is_complete(folder, shards):
            return folder
    elif folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty and holds no model", param="shape-folder")
    try:
        _write_all(folder, text, shards)
    except OSError as error:
        for name in (*(shard.name for shard in shards), INDEX_FILE):
            with suppress(OSError):
                (folder / name).unlink()
        raise ConfigError(cannot_write(folder, error), param="shape-folder") from None
    return folder


def _write_all(folder: Path, config: str, shards: list[_Shard]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "config.json", config)
    for path in TUTOR_PATH.glob("tokenizer*"):
        (folder / path.name).write_bytes(path.read_bytes())
    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(partial(_write, folder), shards))
    weight_map = {name: shard.name for shard in shards for name in shard.tensors}
    total = sum(_bytes(size) for shard in shards for size in shard.tensors.values())
    # Last: a checkpoint without its index is not complete.
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_whole(folder / INDEX_FILE, json.dumps(index))


def _config(shape: str) -> Any:
    import transformers

    family, values = SHAPES[shape]
    config = getattr(transformers, f"{family}Config")(**values, dtype="bfloat16")
    config.architectures = [f"{family}ForCausalLM"]
    return config


def _told(text: str) -> dict[str, Any]:
    """A config.json without the version of what wrote it."""
    values: dict[str, Any] = json.loads(text)
    return values | {"transformers_version": None}


def _tensors(config: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of all that a checkpoint of the model holds, by name. No memory is taken for them."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=DTYPE)
    # A tied weight has one name here: parameters are listed once.
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _shards(tensors: dict[str, tuple[int, ...]]) -> list[_Shard]:
    """Files of at most SHARD_BYTES, but at least WRITERS of them if the model has as many tensors."""
    most = min(SHARD_BYTES, max(1, sum(map(_bytes, tensors.values())) // WRITERS))
    groups: list[dict[str, tuple[int, ...]]] = [{}]
    for name, shape in tensors.items():
        if groups[-1] and sum(map(_bytes, groups[-1].values())) + _bytes(shape) > most:
            groups.append({})
        groups[-1][name] = shape
    count = len(groups)
    return [
        _Shard(f"model-{number:05}-of-{count:05}.safetensors", group)
        for number, group in enumerate(groups, 1)
    ]


def _write(folder: Path, shard: _Shard) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with (folder / shard.name).open("wb") as file:
        file.write(shard.header)
        for name, shape in shard.tensors.items():
            values = _drawn(name, shape, device).cpu().view(torch.uint8)
            file.write(values.numpy().data)


def _drawn(name: str, shape: tuple[int, ...], device: str) -> Tensor:
    """Normal around 0; a norm's weights are 1. The same for the same name on the same device."""
    values = torch.empty(shape, dtype=DTYPE, device=device)
    if len(shape) == 1:
        return values.fill_(1)
    seed = zlib.crc32(name.encode())
    return values.normal_(0, SPREAD, generator=torch.Generator(device).manual_seed(seed))


def _is_complete(folder: Path, shards: list[_Shard]) -> bool:
    files = [(folder / shard.name, shard.num_bytes) for shard in shards]
    return (folder / INDEX_FILE).is_file() and all(
        path.is_file() and path.stat().st_size == size for path, size in files
    )


def _bytes(shape: tuple[int, ...]) -> int:
    return DTYPE.itemsize * prod(shape)
