"""What a file says before its weights, and the sentence for one that is no whole GGUF."""

import random
import struct
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest

from yaie.core.errors import ModelError
from yaie.models.gguf.header import read_header
from yaie.models.lookalikes import POINTER

PIECES = 40


def test_metadata_and_tensors_are_those_of_the_gguf_packages_reader(llama_gguf: Path) -> None:
    ours, theirs = read_header(llama_gguf), gguf.GGUFReader(llama_gguf)
    fields = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert ours.metadata == fields
    assert [
        (one.name, one.shape, one.kind, one.start, one.size) for one in ours.tensors.values()
    ] == [
        (t.name, tuple(t.shape.tolist()[::-1]), t.tensor_type, t.data_offset, t.n_bytes)
        for t in theirs.tensors
    ]


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(None, "llama")
    values = {
        "a": ("uint8", 200), "b": ("int8", -3), "c": ("uint16", 60000), "d": ("int16", -300),
        "e": ("uint32", 1 << 31), "f": ("int32", -5), "g": ("float32", 0.5), "h": ("bool", True),
        "i": ("string", "straße"), "j": ("uint64", 1 << 40), "k": ("int64", -(1 << 40)),
        "l": ("float64", 0.1), "m": ("array", [1, 2, 3]), "n": ("array", ["x", "日本"]),
        "o": ("array", [True, False]), "p": ("array", [0.5, 1.5]),
    }  # fmt: skip
    for key, (kind, value) in values.items():
        getattr(writer, f"add_{kind}")(key, value)
    writer.write_header_to_file(tmp_path / "x.gguf")
    writer.write_kv_data_to_file()
    writer.close()
    read = read_header(tmp_path / "x.gguf").metadata
    assert read == {"general.architecture": "llama"} | {
        key: value for key, (_, value) in values.items()
    }


def test_a_file_that_was_cut_short_says_so(llama_gguf: Path, tmp_path: Path) -> None:
    whole = llama_gguf.read_bytes()
    path = tmp_path / "cut.gguf"
    ends = [4, 7, 23, 24, 30, *range(100, len(whole), len(whole) // PIECES), len(whole) - 1]
    for end in ends:
        path.write_bytes(whole[:end])
        with pytest.raises(ModelError, match=r"cut\.gguf is not a whole GGUF file.*fetch it again"):
            read_header(path)


def test_damage_never_ends_in_a_traceback(llama_gguf: Path, tmp_path: Path) -> None:
    whole = bytearray(llama_gguf.read_bytes())
    header = read_header(llama_gguf)
    end = min(info.start for info in header.tensors.values())
    path = tmp_path / "damaged.gguf"
    generator = random.Random(3)
    for _ in range(150):
        damaged = bytearray(whole)
        for at in generator.sample(range(4, end), 3):
            damaged[at] = generator.randrange(256)
        path.write_bytes(damaged)
        with suppress(ModelError):
            read_header(path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"not one at all" * 9, "is called .gguf and is none"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "is a GGUF of version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian byte order"),
        (POINTER, "is a Git LFS pointer"),
    ],
)
def test_what_is_no_gguf_that_is_read(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=told):
        read_header(tmp_path / "x.gguf")


def test_a_type_of_tensors_that_is_not_read_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(None, "llama")
    data = np.zeros((2, 66), np.uint8)
    writer.add_tensor("blk.0.attn_q.weight", data, raw_dtype=gguf.GGMLQuantizationType.IQ2_XXS)
    writer.write_header_to_file(tmp_path / "x.gguf")
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(
        ModelError, match=r"blk\.0\.attn_q\.weight of .* is of type IQ2_XXS.*Q4_K_M"
    ):
        read_header(tmp_path / "x.gguf")
