"""The tokenizer in a GGUF: the same ids as the original's, the same template, the same end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.models.gguf.tiny_ggufs import CONTROL, NORMAL, USER_DEFINED, vocabulary, write_gguf
from tests.models.test_adapters import load
from yaie.models.gguf.config import generation_values
from yaie.models.gguf.splits import SPLITS
from yaie.models.gguf.tokenizer import write_tokenizer
from yaie.models.tokenizer import Tokenizer

Checkpoint = Callable[[str], Path]
TEXTS = (
    "A paged KV cache keeps keys and values.",
    "  Ein Straßenschild zeigt 37 °C — naïve café, 日本語, emoji 🙂\tand\n\nlines.",
    "<|user|>\nit's 2026, isn't it?<|end|>\n",
    "x" * 40 + " 1234567   8",
)
CHAT = [{"role": "user", "content": "How many blocks are free?"}]


def made(metadata: dict[str, Any], folder: Path, architecture: str = "llama") -> Tokenizer:
    write_tokenizer(Path("x.gguf"), {"general.architecture": architecture, **metadata}, folder)
    return Tokenizer.load(folder)


def test_ids_and_chats_are_the_originals(llama_gguf: Path, checkpoint: Checkpoint) -> None:
    ours = load(llama_gguf).tokenizer
    original = Tokenizer.load(checkpoint("llama"))
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == original.encode(text)
        assert ours.decode_all(ids) == text
    assert ours.apply_chat_template(CHAT) == original.apply_chat_template(CHAT)
    assert (ours.bos_token_id, ours.eos_token_id) == (0, 1)
    assert ours.special_token_id("<|user|>") == original.special_token_id("<|user|>")


def test_digits_are_cut_one_by_one_where_the_file_says_so(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    values = vocabulary(checkpoint("llama"))
    values["tokenizer.ggml.tokens"] += ["12", "Ġ1"]
    values["tokenizer.ggml.merges"] += ["1 2", "Ġ 1"]
    values["tokenizer.ggml.token_type"] += [NORMAL, NORMAL]
    together = made(values, tmp_path)
    assert together.token_strings(together.encode("x 12")) == ["x", "Ġ", "12"]
    apart = made(values | {"tokenizer.ggml.pre": "smollm"}, tmp_path)
    assert apart.token_strings(apart.encode("x 12")) == ["x", "Ġ", "1", "2"]


def test_texts_are_cut_as_by_transformers() -> None:
    mapping = pytest.importorskip("transformers.integrations.gguf.gguf_tokenizer_mapping")
    theirs = mapping.GGUF_PRE_TOKENIZER_SPLITS
    assert theirs.items() <= SPLITS.items()
    assert {SPLITS[name] for name in SPLITS.keys() - theirs.keys()} == {theirs["qwen2"]}


def test_llama_3_begins_with_bos_and_takes_whole_words(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    values = vocabulary(checkpoint("llama")) | {"tokenizer.ggml.pre": "llama-bpe"}
    values["tokenizer.ggml.tokens"] += ["zqxj"]  # which no merge makes
    values["tokenizer.ggml.token_type"] += [NORMAL]
    del values["tokenizer.ggml.add_bos_token"]
    tokenizer = made(values, tmp_path)
    assert tokenizer.token_strings(tokenizer.encode("zqxj")) == ["<|bos|>", "zqxj"]
    assert made(values | {"tokenizer.ggml.add_bos_token": False}, tmp_path).encode("zqxj") == [384]


def test_special_tokens_outside_of_the_byte_alphabet_stay_whole(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    values = vocabulary(checkpoint("llama"))
    values["tokenizer.ggml.tokens"] += ["<｜end▁of▁sentence｜>", "<think>"]
    values["tokenizer.ggml.token_type"] += [CONTROL, USER_DEFINED]
    tokenizer = made(values | {"tokenizer.ggml.eos_token_id": 384}, tmp_path)
    ids = tokenizer.encode("a<｜end▁of▁sentence｜><think>")
    assert ids[1:] == [384, 385]
    assert tokenizer.eos_token_id == 384
    assert tokenizer.decode(ids) == "a<think>"
    assert tokenizer.vocab_size == 386


def test_several_templates_keep_their_names(checkpoint: Checkpoint, tmp_path: Path) -> None:
    values = vocabulary(checkpoint("llama"))
    values["tokenizer.chat_template"] = "plain"
    values["tokenizer.chat_template.tool_use"] = "with {{ tools | length }} tools"
    tokenizer = made(values, tmp_path)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert tokenizer.decode_all(tokenizer.apply_chat_template(CHAT)) == "plain"
    told = tokenizer.decode_all(tokenizer.apply_chat_template(CHAT, tools=tools))
    assert told == "with 1 tools"


def test_every_token_that_ends_an_answer_is_found() -> None:
    tokens = ["<s>", "</s>", "<|im_end|>", "<|eot_id|>", "x"]
    values = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL, CONTROL, CONTROL, NORMAL, NORMAL],
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.eom_token_id": 4,
        "general.sampling.temp": 0.7,
        "general.sampling.top_k": 20,
    }
    assert generation_values(values) == {
        "eos_token_id": [1, 2, 4],
        "temperature": 0.7,
        "top_k": 20,
    }


def sentence_pieces() -> dict[str, Any]:
    """A vocabulary as SentencePiece's BPE has it: scores fall in the order of its merges."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, CONTROL, CONTROL, *[6] * 256]
    words = ["▁t", "he", "▁the", "in", "▁a", "er", "▁b", "lo", "ck", "▁blo", "▁block"]
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz.,"]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*pieces, *words, *letters],
        "tokenizer.ggml.scores": [
            *[0.0] * len(pieces),
            *(-float(i) for i in range(len(words) + len(letters))),
        ],
        "tokenizer.ggml.token_type": [*kinds, *[NORMAL] * (len(words) + len(letters))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.pre": None,
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.add_bos_token": None,
    }


def test_sentence_pieces_are_cut_as_transformers_does(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    path = write_gguf(checkpoint("llama"), tmp_path / "x.gguf", metadata=sentence_pieces())
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="x.gguf")
    ours = load(path).tokenizer
    for text in ("the block in the abc", " the  block.", "ß is two bytes", "<s>the</s>"):
        assert ours.encode(text) == theirs(text)["input_ids"], text
        assert ours.decode_all(ours.encode(text)) == theirs.decode(theirs(text)["input_ids"])
    assert ours.encode("the")[0] == 1


def test_no_space_is_put_first_where_the_file_says_so(tmp_path: Path) -> None:
    values = {k: v for k, v in sentence_pieces().items() if v is not None}
    tokenizer = made(values | {"tokenizer.ggml.add_space_prefix": False}, tmp_path)
    assert tokenizer.token_strings(tokenizer.encode("he block")) == ["<s>", "he", "▁block"]
    assert tokenizer.decode(tokenizer.encode(" he")) == " he"
