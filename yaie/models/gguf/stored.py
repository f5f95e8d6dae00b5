"""Tensors of a GGUF, under the names that they have in safetensors: read and dequantized as far as they
are asked for.

`described` writes the list of them, GGUF_LIST, into a model's folder; `yaie.models.weights` finds it
there.
"""

import json
import mmap
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from yaie.core.errors import ModelError
from yaie.models.gguf.blocks import dequantized, row_bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of a file. file: its number. start: where in it, in bytes. shape, kind: as in
    `header.TensorInfo`. heads: of llama.cpp's order of rows, in which both halves of a head's rotary
    pairs alternate; 0 if rows are in order. shift: to be added to each number. transposed: the wanted
    tensor is [..., columns, rows]."""

    file: int
    start: int
    shape: tuple[int, ...]
    kind: int
    heads: int = 0
    shift: float = 0.0
    transposed: bool = False

    @property
    def result_shape(self) -> tuple[int, ...]:
        if not self.transposed:
            return self.shape
        *before, rows, columns = self.shape
        return (*before, columns, rows)


@dataclass(frozen=True, slots=True)
class Entry:
    """What one wanted tensor is made of: pieces, joined along `axis`, or, interleaved, along the last
    one with a number of each in turn. shape: it has then."""

    pieces: tuple[Piece, ...]
    axis: int = 0
    shape: tuple[int, ...] = ()
    interleaved: bool = False


@dataclass(frozen=True, slots=True)
class TensorList:
    """files: (path, bytes, time of the last change in ns) of each. tensors: by name."""

    files: tuple[tuple[str, int, int], ...]
    tensors: dict[str, Entry]

    def write(self, path: Path) -> None:
        tensors = {name: asdict(entry) for name, entry in self.tensors.items()}
        path.write_text(json.dumps({"files": self.files, "tensors": tensors}), "utf-8")

    @classmethod
    def read(cls, path: Path) -> "TensorList":
        """Raises ValueError, KeyError or TypeError for anything but what `write` writes."""
        stored = json.loads(path.read_text("utf-8"))
        tensors = {name: _entry(values) for name, values in stored["tensors"].items()}
        return cls(tuple((one[0], one[1], one[2]) for one in stored["files"]), tensors)


def _entry(values: dict[str, Any]) -> Entry:
    pieces = (Piece(**(one | {"shape": tuple(one["shape"])})) for one in values["pieces"])
    return Entry(tuple(pieces), values["axis"], tuple(values["shape"]), values["interleaved"])


class GgufTensor:
    """See `layout.Stored`. What is read comes as float32, or as it is stored if that is F16 or BF16."""

    def __init__(self, entry: Entry, maps: list[mmap.mmap], read: Callable[[int], None]) -> None:
        """maps: of the files. read: called with the bytes in the file of each part that is read."""
        self._entry, self._maps, self._read = entry, maps, read
        self.shape = entry.shape

    def numel(self) -> int:
        return prod(self.shape)

    def __getitem__(self, index: tuple[slice, ...]) -> Tensor:
        pieces, axis = self._entry.pieces, self._entry.axis
        if len(pieces) == 1:
            return self._piece(pieces[0], index)
        whole = [self._piece(one, (slice(None),) * len(one.shape)) for one in pieces]
        if self._entry.interleaved:
            return torch.stack(whole, -1).flatten(-2)[index]
        return torch.cat(whole, axis)[index]

    def blocks(self, kinds: Container[int]) -> tuple[int, Tensor] | None:
        """(ggml's number of its type, its blocks [rows, bytes] uint8) of a matrix that is stored in one
        of these types and wanted as it is, but for the order of its rows; else None. The blocks may be
        the file itself."""
        piece = self._entry.pieces[0]
        if len(self._entry.pieces) > 1 or len(piece.shape) != 2 or piece.kind not in kinds:
            return None
        if piece.shift or piece.transposed:
            return None
        rows = self._bytes(piece)
        self._read(rows.numel())
        return piece.kind, rows[_row_order(piece)] if piece.heads else rows

    def expert_blocks(self, kinds: Container[int]) -> tuple[int, Tensor] | None:
        """(ggml's number of their type, their blocks [experts, out, bytes of a row] uint8) of experts
        [experts, in, out] that are stored in one of these types, each output's numbers in a row; else
        None."""
        pieces, is_one = self._entry.pieces, len(self._entry.pieces) == 1
        kind = pieces[0].kind
        if kind not in kinds or {piece.kind for piece in pieces} != {kind}:
            return None
        if not all(piece.transposed and len(piece.shape) == 3 for piece in pieces):
            return None
        if not (is_one or self._entry.interleaved):
            return None
        rows = [self._bytes(piece) for piece in pieces]
        self._read(sum(one.numel() for one in rows))
        # Numbers that take turns in the last axis are rows that do.
        return kind, rows[0] if is_one else torch.stack(rows, 2).flatten(1, 2)

    def _bytes(self, piece: Piece) -> Tensor:
        """[..., bytes of a row] uint8: the file itself."""
        size = row_bytes(piece.kind, piece.shape[-1])
        data = torch.frombuffer(
            self._maps[piece.file],
            dtype=torch.uint8,
            count=prod(piece.shape[:-1]) * size,
            offset=piece.start,
        )
        return data.view(*piece.shape[:-1], size)

    def _piece(self, piece: Piece, index: tuple[slice, ...]) -> Tensor:
        """Rows are read as far as they are wanted; of a row, all."""
        if piece.transposed:
            index = (*index[:-2], index[-1], index[-2])
        rows = self._bytes(piece)
        if piece.heads:
            # A vector (a bias) is one row in the file: its numbers are what is permuted.
            order = _row_order(piece)
            if len(piece.shape) == 1:
                return self._numbers(rows, piece)[order][index]
            rows = rows[order[index[0]]]
        else:
            rows = rows[index[:-1]]
        numbers = self._numbers(rows, piece)[..., index[-1]]
        return numbers.mT if piece.transposed else numbers

    def _numbers(self, rows: Tensor, piece: Piece) -> Tensor:
        """[..., bytes of a row] to [..., columns]."""
        self._read(rows.numel())
        flat = dequantized(rows.reshape(-1, rows.shape[-1]), piece.kind)
        numbers = flat.view(*rows.shape[:-1], piece.shape[-1])
        return numbers.float() + piece.shift if piece.shift else numbers


def _row_order(piece: Piece) -> Tensor:
    """For each row as transformers has it, its place in the file.

    llama.cpp rotates neighbours, transformers a row and that half a head further on: of a head's rows
    the file has 0, d/2, 1, d/2 + 1, ...
    """
    total = piece.shape[0]
    half = total // piece.heads // 2
    return torch.arange(total).view(piece.heads, half, 2).transpose(1, 2).reshape(-1)


def read_listed(path: Path, advance: Callable[[int], None]) -> Iterator[tuple[str, GgufTensor]]:
    """(name, tensor) of every tensor in the list at `path`.

    advance: called with the bytes that are read. Raises ModelError if a file is gone, or is another
    one by now.
    """
    listed = TensorList.read(path)
    with ExitStack() as stack:
        maps = [_mapped(Path(name), size, stack) for name, size, _ in listed.files]
        for name, entry in listed.tensors.items():
            yield name, GgufTensor(entry, maps, advance)


def gguf_files(path: Path) -> list[Path]:
    """The files in the list at `path`. Raises ModelError if one is gone."""
    files = [Path(name) for name, _, _ in TensorList.read(path).files]
    for file in files:
        if not file.is_file():
            raise ModelError(f"{file} is gone since this start began: start again.")
    return files


def _mapped(path: Path, size: int, stack: ExitStack) -> mmap.mmap:
    try:
        file = stack.enter_context(path.open("rb"))
        if path.stat().st_size != size:
            raise ModelError(f"{path} has changed since it was read last: start again.")
        # A private copy of pages that are written to, of which there are none: PyTorch warns of memory
        # that it may not write to.
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise ModelError(f"{path} cannot be read any more: {error.strerror or error}.") from None
