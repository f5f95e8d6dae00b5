"""The bytes of tokens join to the text of their sequence, however the vocabulary is written."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Rust
from transformers import PreTrainedTokenizerFast

from tests.models.tiny import tiny_tokenizer
from yaie.models.tokenizer import Tokenizer

TEXTS = st.text(st.sampled_from("ab cd.éß日🙂\n"), max_size=12)


def sentence_piece() -> Tokenizer:
    """As Llama 2's: a sign for the space, bytes for what the vocabulary lacks."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "a", "b", "c", "d", "▁a", "ab", "▁ab", "é", ".", "▁abcab", "<0xab", "<0xabc>"]
    vocabulary = {piece: id for id, piece in enumerate(pieces)}
    merges = [("▁", "a"), ("a", "b"), ("▁a", "b")]
    rust = Rust(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    rust.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    rust.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    special = [AddedToken(text, special=True) for text in ("<s>", "</s>", "[TOOL_CALLS]")]
    rust.add_special_tokens(special)
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=rust, eos_token="</s>"))


def metaspace() -> Tokenizer:
    """As Gemma's or a Unigram model's: the same sign, and a decoder that says so itself."""
    scores = [("<unk>", 0.0), ("▁", -2.0), ("▁ab", -2.5), *((c, -3.0) for c in "abcdé.ß日🙂\n")]
    rust = Rust(models.Unigram(scores, unk_id=0))
    rust.pre_tokenizer = pre_tokenizers.Metaspace()
    rust.decoder = decoders.Metaspace()
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=rust, eos_token="</s>"))


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def joined(tokenizer: Tokenizer, ids: list[int]) -> bytes:
    return b"".join(tokenizer.token_bytes(id) or b"" for id in ids)


@given(text=TEXTS)
def test_bytes_of_a_byte_level_vocabulary_join_to_the_text(
    byte_level: Tokenizer, text: str
) -> None:
    assert joined(byte_level, byte_level.encode(text)) == text.encode()


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 383), max_size=8))
def test_bytes_of_any_byte_level_tokens_join_to_their_text(
    byte_level: Tokenizer, ids: list[int]
) -> None:
    assert joined(byte_level, ids).decode(errors="replace") == byte_level.decode(ids)


@pytest.mark.parametrize("make", [sentence_piece, metaspace])
@settings(deadline=None, max_examples=50)
@given(text=TEXTS)
def test_bytes_of_pieces_join_to_the_text_and_the_space_before_it(make: object, text: str) -> None:
    assert callable(make)
    tokenizer = make()
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert joined(tokenizer, ids).removeprefix(b" ").decode() == tokenizer.decode(ids)


def test_a_piece_of_one_byte_is_that_byte_and_what_looks_like_it_is_not() -> None:
    tokenizer = sentence_piece()
    vocabulary = tokenizer.of_transformers.get_vocab()
    told = {piece: tokenizer.token_bytes(id) for piece, id in vocabulary.items()}
    for byte in range(256):
        assert told[f"<0x{byte:02X}>"] == bytes([byte])
    assert told["▁abcab"] == b" abcab"  # as long as the name of a byte
    assert (told["<0xab"], told["<0xabc>"]) == (b"<0xab", b"<0xabc>")


def test_a_special_token_has_a_name_and_no_bytes(byte_level: Tokenizer) -> None:
    assert byte_level.token_bytes(1) is None
    assert byte_level.token_name(1) == "<|end|>"
    assert byte_level.special_token_id("<|end|>") == 1
    assert byte_level.special_token_id("the") is None


def test_a_token_that_only_the_model_knows_is_nothing(byte_level: Tokenizer) -> None:
    for id in (10_000, 2**40):
        assert byte_level.token_bytes(id) == b""
        assert byte_level.token_name(id) == ""


def test_markers_of_calls_are_decoded_between_pieces() -> None:
    tokenizer = sentence_piece()
    marker = tokenizer.special_token_id("[TOOL_CALLS]")
    assert marker is not None
    ids = tokenizer.encode("ab", add_special_tokens=False)
    assert tokenizer.decode([1, *ids, marker, *ids, 2]) == "ab[TOOL_CALLS]ab"
    assert tokenizer.decode([marker]) == "[TOOL_CALLS]"
    assert tokenizer.decode([]) == ""


def test_chat_templates_are_told_as_text(byte_level: Tokenizer, tmp_path: Path) -> None:
    assert "<|assistant|>" in byte_level.chat_template
    assert Tokenizer.load(tiny_tokenizer(tmp_path, chat_template=False)).chat_template == ""
