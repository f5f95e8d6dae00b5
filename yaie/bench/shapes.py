"""Checkpoints of random weights in a known shape: speed does not depend on what the numbers are.

`--shape llama-3.1-8b` measures a model of that size without a download. Weights are drawn tensor by
tensor, on the GPU if there is one, and written as they come; shards are written side by side. No more
than a tensor for each shard is in memory at a time. `llama-3.1-8b-int4` is the same shape with the
layers' products in four bits, as GPTQ packs them, and `llama-3.1-8b-fp8` with them in FP8.
"""

import json
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor

from yaie.bench.known_shapes import SHAPES
from yaie.core.errors import ConfigError
from yaie.models.tutor import TUTOR_PATH
from yaie.models.weights import INDEX_FILE
from yaie.system.files import cannot_write, write_whole

INT4 = "-int4"
"""Ends the name of a shape whose layers' products are packed in four bits."""
FP8 = "-fp8"
"""The same in floating-point numbers of eight bits."""
PACKED = ("qwen3-0.6b", "llama-3.1-8b", "llama-3.1-70b", "tiny")
NAMES = (*SHAPES, *(name + kind for name in PACKED for kind in (INT4, FP8)))
GROUP_SIZE = 32
SHARD_BYTES = 4 << 30
WRITERS = 4
SPREAD = 0.02
DTYPE = torch.bfloat16
CODES_SPREAD = (255 / 12) ** 0.5
"""Standard deviation of whole numbers 0 to 15 that come alike often."""
FP8_SPREAD = 16.0
"""Of weights in FP8 before they are scaled."""
ZEROS = -0x77777778
"""Eight times the four bits of 8."""
DTYPE_NAMES = {
    torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.int32: "I32",
    torch.float8_e4m3fn: "F8_E4M3",
}  # fmt: skip
HEADER_UNIT = 8
"""Bytes: the safetensors format aligns its data so."""


class _Kind(NamedTuple):
    """Of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype = DTYPE

    @property
    def num_bytes(self) -> int:
        return self.dtype.itemsize * prod(self.shape)


@dataclass(frozen=True, slots=True)
class _Shard:
    """A file of the checkpoint. tensors: by name."""

    name: str
    tensors: dict[str, _Kind]

    @property
    def header(self) -> bytes:
        """The file's beginning: how long the table is, and where each tensor lies behind it."""
        table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, kind in self.tensors.items():
            begin, end = end, end + kind.num_bytes
            table[name] = {
                "dtype": DTYPE_NAMES[kind.dtype], "shape": kind.shape, "data_offsets": [begin, end],
            }  # fmt: skip
        text = json.dumps(table).encode()
        text += b" " * (-len(text) % HEADER_UNIT)
        return len(text).to_bytes(8, "little") + text

    @property
    def num_bytes(self) -> int:
        return len(self.header) + sum(kind.num_bytes for kind in self.tensors.values())


@contextmanager
def checkpoint(shape: str, folder: str | None) -> Iterator[Path]:
    """A folder with a checkpoint in this shape: `folder`, or a temporary one that is deleted afterwards.

    Raises ConfigError if there is no such shape, or if `folder` holds something else.
    """
    if shape not in NAMES:
        raise ConfigError(
            f"--shape is one of {', '.join(NAMES)}; there is no {shape!r}", param="shape"
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
    is_complete = False
    if (folder / "config.json").is_file():
        if _told((folder / "config.json").read_text("utf-8")) != _told(text):
            raise ConfigError(
                f"{folder} holds another model than {shape}: name an empty folder",
                param="shape-folder",
            )
        is_complete = _is_complete(folder, shards)
    elif folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty and holds no model", param="shape-folder")
    try:
        if not is_complete:
            _write_all(folder, text, shards)
        _write_tokenizer(folder, config.vocab_size)
    except OSError as error:
        for name in () if is_complete else (*(shard.name for shard in shards), INDEX_FILE):
            with suppress(OSError):
                (folder / name).unlink()
        raise ConfigError(cannot_write(folder, error), param="shape-folder") from None
    return folder


def _write_all(folder: Path, config: str, shards: list[_Shard]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "config.json", config)
    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(partial(_write, folder), shards))
    weight_map = {name: shard.name for shard in shards for name in shard.tensors}
    total = sum(kind.num_bytes for shard in shards for kind in shard.tensors.values())
    # Last: a checkpoint without its index is not complete.
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_whole(folder / INDEX_FILE, json.dumps(index))


def _write_tokenizer(folder: Path, vocab_size: int) -> None:
    """The tutor's, with a word for every further id of the model: what random weights draw is then text,
    as it is of a real model, and each token a piece of a stream. No text is encoded as these words."""
    for path in TUTOR_PATH.glob("tokenizer*"):
        text = path.read_text("utf-8")
        if path.name == "tokenizer.json":
            contents = json.loads(text)
            vocab = contents["model"]["vocab"]
            vocab |= {f"Ġ{number}": number for number in range(len(vocab), vocab_size)}
            text = json.dumps(contents)
        there = folder / path.name
        if not there.is_file() or there.read_text("utf-8") != text:
            write_whole(there, text)


def _config(shape: str) -> Any:
    import transformers

    family, values = SHAPES[shape.removesuffix(INT4).removesuffix(FP8)]
    # A family that also sees has a config of its own for the text model.
    kind = getattr(transformers, f"{family}TextConfig", None) or getattr(
        transformers, f"{family}Config"
    )
    config = kind(**values, dtype="bfloat16")
    config.architectures = [f"{family}ForCausalLM"]
    if shape.endswith(INT4):
        config.quantization_config = {
            "quant_method": "gptq", "bits": 4, "group_size": GROUP_SIZE, "desc_act": False,
            "sym": True, "checkpoint_format": "gptq_v2",
        }  # fmt: skip
    if shape.endswith(FP8):
        config.quantization_config = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    return config


def _told(text: str) -> dict[str, Any]:
    """A config.json without the version of what wrote it."""
    values: dict[str, Any] = json.loads(text)
    return values | {"transformers_version": None}


def _tensors(config: Any) -> dict[str, _Kind]:
    """All that a checkpoint of the model holds, by name. No memory is taken for it."""
    from transformers import AutoModelForCausalLM

    plain = deepcopy(config)
    how = plain.__dict__.pop("quantization_config", None)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(plain, dtype=DTYPE)
    found: dict[str, _Kind] = {}
    # A tied weight has one name here: parameters are listed once.
    for name, parameter in model.named_parameters():
        if how and name.endswith("_proj.weight"):
            pack = _in_fp8 if how["quant_method"] == "fp8" else _packed
            found |= pack(name.removesuffix(".weight"), *parameter.shape)
        else:
            found[name] = _Kind(tuple(parameter.shape))
    return found


def _packed(name: str, outputs: int, inputs: int) -> dict[str, _Kind]:
    """What GPTQ's tools write for a product."""
    groups = inputs // GROUP_SIZE
    return {
        f"{name}.qweight": _Kind((inputs // 8, outputs), torch.int32),
        f"{name}.qzeros": _Kind((groups, outputs // 8), torch.int32),
        f"{name}.scales": _Kind((groups, outputs), torch.float16),
    }


def _in_fp8(name: str, outputs: int, inputs: int) -> dict[str, _Kind]:
    return {
        f"{name}.weight": _Kind((outputs, inputs), torch.float8_e4m3fn),
        f"{name}.weight_scale": _Kind((1,), torch.float32),
    }


def _shards(tensors: dict[str, _Kind]) -> list[_Shard]:
    """Files of at most SHARD_BYTES, but at least WRITERS of them if the model has as many tensors."""
    total = sum(kind.num_bytes for kind in tensors.values())
    most = min(SHARD_BYTES, max(1, total // WRITERS))
    groups: list[dict[str, _Kind]] = [{}]
    for name, kind in tensors.items():
        if groups[-1] and sum(one.num_bytes for one in groups[-1].values()) + kind.num_bytes > most:
            groups.append({})
        groups[-1][name] = kind
    count = len(groups)
    return [
        _Shard(f"model-{number:05}-of-{count:05}.safetensors", group)
        for number, group in enumerate(groups, 1)
    ]


def _write(folder: Path, shard: _Shard) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with (folder / shard.name).open("wb") as file:
        file.write(shard.header)
        for name, kind in shard.tensors.items():
            values = _drawn(name, kind, device).cpu().view(torch.uint8)
            file.write(values.numpy().data)


def _drawn(name: str, kind: _Kind, device: str) -> Tensor:
    """The same for the same name on the same device: normal around 0, or all codes alike often around
    a zero of 8; a norm's weights are 1."""
    values = torch.empty(kind.shape, dtype=kind.dtype, device=device)
    if kind.dtype == torch.float32:
        return values.fill_(SPREAD / FP8_SPREAD)
    if len(kind.shape) == 1:
        return values.fill_(1)
    if kind.dtype == torch.float16:
        return values.fill_(SPREAD / CODES_SPREAD)
    if name.endswith(".qzeros"):
        return values.fill_(ZEROS)
    generator = torch.Generator(device).manual_seed(zlib.crc32(name.encode()))
    if kind.dtype == torch.int32:
        return values.random_(-(2**31), 2**31, generator=generator)
    if kind.dtype == torch.float8_e4m3fn:
        return values.to(DTYPE).normal_(0, FP8_SPREAD, generator=generator).to(kind.dtype)
    return values.normal_(0, SPREAD, generator=generator)


def _is_complete(folder: Path, shards: list[_Shard]) -> bool:
    files = [(folder / shard.name, shard.num_bytes) for shard in shards]
    return (folder / INDEX_FILE).is_file() and all(
        path.is_file() and path.stat().st_size == size for path, size in files
    )
