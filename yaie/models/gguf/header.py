"""What a GGUF file says before its weights: metadata by key, and where each tensor lies.

The `gguf` package's own reader makes several arrays of each of a vocabulary's hundred thousand texts,
which takes seconds; this one takes tenths, and says in a sentence what is wrong with a file.
"""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from yaie.core.errors import ModelError
from yaie.models.lookalikes import refuse_pointer

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
"""Bytes, where `general.alignment` gives no other number."""
MOST_DIMS = 4

_STRING, _ARRAY = 8, 9
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. shape: as PyTorch orders it, rows before columns. kind: number of its type
    (`blocks.KINDS`). start, size: in the file, in bytes."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Header:
    """metadata: by key; arrays are lists. tensors: by name."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]


class _Cut(Exception):
    """The file ends before what it announces."""


def read_header(path: Path) -> Header:
    """Read metadata and the table of tensors; no weight.

    Raises ModelError: no GGUF, a version or a type of tensors that is not read, cut short, damaged.
    """
    from yaie.models.gguf.blocks import KINDS, row_bytes

    refuse_pointer(path)
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size < 24:
                raise _not_gguf(path) if file.read(4) != MAGIC else _cut_short(path)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                reader = _Reader(data, path)
                metadata, table, end = reader.header()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from None
    except _Cut:
        raise _cut_short(path) from None
    except (UnicodeDecodeError, struct.error, ValueError, OverflowError, MemoryError) as error:
        raise _damaged(path, str(error)) from None
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise _damaged(path, f"general.alignment is {alignment!r}")
    base = -(-end // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, shape, kind, offset in table:
        if kind not in KINDS:
            known = ", ".join(one.name for one in KINDS.values())
            raise ModelError(
                f"the tensor {name} of {path} is of type {kind_name(kind)}, which is not read here. "
                f"Take a file of another type of the same model, such as Q4_K_M or Q8_0 (what is read: "
                f"{known})."
            )
        if shape and shape[-1] % KINDS[kind].values:
            raise _damaged(
                path, f"{name} has rows of {shape[-1]} numbers, which are no whole blocks"
            )
        length = prod(shape[:-1]) * row_bytes(kind, shape[-1]) if shape else KINDS[kind].bytes
        if base + offset + length > size:
            raise _cut_short(path, f"{name} ends at byte {base + offset + length:,} of {size:,}")
        tensors[name] = TensorInfo(name, shape, kind, base + offset, length)
    return Header(path, metadata, tensors)


def kind_name(kind: int) -> str:
    """As llama.cpp writes it; the number of one that this installation of gguf does not know."""
    from gguf import GGMLQuantizationType

    try:
        return GGMLQuantizationType(kind).name
    except ValueError:
        return str(kind)


class _Reader:
    """Reads from the front to the back. Every length is compared with what is left of the file before
    it is believed."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data, self._path, self._at = data, path, 0

    def header(self) -> tuple[dict[str, Any], list[tuple[str, tuple[int, ...], int, int]], int]:
        """(metadata, (name, shape, type, offset) of each tensor, where this ends)."""
        if self._data[:4] != MAGIC:
            raise _not_gguf(self._path)
        self._at = 4
        version = self._number("I")
        if version not in VERSIONS:
            turned = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            how = "in big-endian byte order" if turned else f"of version {version}"
            raise ModelError(
                f"{self._path} is a GGUF {how}, and versions 2 and 3 in little-endian order are read. "
                "Take a newer file of the same model."
            )
        num_tensors, num_keys = self._number("Q"), self._number("Q")
        metadata = {}
        for _ in range(num_keys):
            key = self._string()
            metadata[key] = self._value(self._number("I"))
        table = []
        for _ in range(num_tensors):
            name, dims = self._string(), self._number("I")
            if dims > MOST_DIMS:
                raise ValueError(f"{name} has {dims} dimensions")
            shape = tuple(self._number("Q") for _ in range(dims))[::-1]
            table.append((name, shape, self._number("I"), self._number("Q")))
        return metadata, table, self._at

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._number(_format(kind))
        kind, count = self._number("I"), self._number("Q")
        if kind == _ARRAY:
            raise ValueError("a list of lists is in its metadata")
        if kind == _STRING:
            return [self._string() for _ in range(count)]
        values = f"<{count}{_format(kind)}"
        return list(struct.unpack(values, self._take(count * struct.calcsize(f"<{_format(kind)}"))))

    def _number(self, letter: str) -> Any:
        layout = f"<{letter}"
        return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]

    def _string(self) -> str:
        return self._take(self._number("Q")).decode("utf-8")

    def _take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise _Cut
        return self._data[start : self._at]


def _format(kind: int) -> str:
    if kind not in _NUMBERS:
        raise ValueError(f"a value of type {kind} is in its metadata")
    return _NUMBERS[kind]


def _not_gguf(path: Path) -> ModelError:
    return ModelError(
        f"{path} is called .gguf and is none: its first bytes are not GGUF. Fetch the file again."
    )


def _cut_short(path: Path, detail: str = "it ends within its header") -> ModelError:
    return ModelError(
        f"{path} is not a whole GGUF file ({detail}): its download or copy was cut short. Delete it and "
        "fetch it again."
    )


def _damaged(path: Path, detail: str) -> ModelError:
    return ModelError(f"{path} is a damaged GGUF file ({detail}). Delete it and fetch it again.")
