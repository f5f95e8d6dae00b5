"""Text out of bytes is the text that lab 7's detokenizer gives, for the tokenizers that join bytes."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as Rust

from solutions.engine import Detokenizer
from tests.models.test_token_bytes import metaspace, sentence_piece
from tests.models.tiny import tiny_tokenizer
from yaie.engine.step.byte_text import ByteDetokenizer, TokenTable
from yaie.models.tokenizer import Tokenizer
from yaie.models.tutor import TUTOR_PATH

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
SENTENCES = [
    "A paged KV cache keeps keys and values in blocks.",
    "naïve café, Straßenschild 37 °C",
    "日本語のテキスト, emoji 🙂 and 👨‍👩‍👧‍👦",
    "\n\n\ttabs and\r\nlines   ",
    "",
]


def tiny(folder: Path) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer(folder))


def tutor(folder: Path) -> Tokenizer:
    return Tokenizer.load(TUTOR_PATH)


def with_added_tokens(folder: Path) -> Tokenizer:
    """Words that were added whole, one with a space in it, and a call's marker, which a text shows."""
    path = tiny_tokenizer(folder) / "tokenizer.json"
    rust = Rust.from_file(str(path))
    rust.add_tokens([AddedToken("block table"), AddedToken("prefix_cache")])
    rust.add_special_tokens([AddedToken("<tool_call>", special=True)])
    rust.save(str(path))
    return Tokenizer.load(folder)


@pytest.fixture(
    scope="module", params=[tiny, tutor, with_added_tokens], ids=lambda make: make.__name__
)
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    make: Callable[[Path], Tokenizer] = request.param
    return make(tmp_path_factory.mktemp("tokenizer"))


def pieces(detokenizer: ByteDetokenizer | Detokenizer, ids: Sequence[int]) -> list[str]:
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


def by_bytes(tokenizer: Tokenizer) -> ByteDetokenizer:
    return ByteDetokenizer(TokenTable(tokenizer.token_bytes))


@pytest.mark.parametrize("text", SENTENCES)
def test_a_text_arrives_as_it_is_without_half_characters(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    shown = pieces(by_bytes(tokenizer), ids)
    assert "".join(shown) == text
    assert not any(REPLACEMENT in piece for piece in shown)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_tokens_give_the_text_of_lab_7_s_detokenizer(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    """Special tokens, ids beyond the vocabulary and bytes that are no text included."""
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 3), max_size=40))
    text = "".join(pieces(by_bytes(tokenizer), ids))
    assert text == "".join(pieces(Detokenizer(tokenizer.decode), ids))
    assert text == tokenizer.decode(ids)


@pytest.fixture(scope="module")
def single_bytes(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """(tokens of one byte each, those among them that are a part of a character)."""
    found = {id: tokenizer.token_bytes(id) or b"" for id in range(tokenizer.vocab_size)}
    single = [id for id, own in found.items() if len(own) == 1]
    return single, [id for id in single if found[id][0] > 0x7F]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_broken_bytes_give_the_text_of_lab_7_s_detokenizer(
    tokenizer: Tokenizer, single_bytes: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    """Tokens of single bytes alone, most of which continue no character."""
    single, high = single_bytes
    assert len(high) == 128
    token = st.one_of(st.sampled_from(high), st.sampled_from(single))
    ids = data.draw(st.lists(token, max_size=30))
    text = "".join(pieces(by_bytes(tokenizer), ids))
    assert text == "".join(pieces(Detokenizer(tokenizer.decode), ids))
    assert text == tokenizer.decode(ids)


@pytest.mark.parametrize("text", SENTENCES)
def test_each_character_is_shown_with_its_last_token(tokenizer: Tokenizer, text: str) -> None:
    """Not later than lab 7's shows it."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    ours, theirs = pieces(by_bytes(tokenizer), ids), pieces(Detokenizer(tokenizer.decode), ids)
    assert ours == theirs


def test_special_tokens_are_left_out_and_markers_of_calls_are_not(tmp_path: Path) -> None:
    tokenizer = with_added_tokens(tmp_path)
    marker = tokenizer.special_token_id("<tool_call>")
    assert marker is not None
    a, b = (tokenizer.encode(letter, add_special_tokens=False)[0] for letter in "ab")
    assert pieces(by_bytes(tokenizer), [a, 1, b, marker, a]) == [
        "a",
        "",
        "b",
        "<tool_call>",
        "a",
        "",
    ]


def test_character_that_stays_incomplete_ends_as_a_replacement(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path)
    first = next(id for id in range(384) if tokenizer.token_bytes(id) == b"\xe6")
    assert pieces(by_bytes(tokenizer), [first]) == ["", REPLACEMENT]


def test_bytes_of_a_token_are_looked_up_once() -> None:
    asked = []

    def token_bytes(token_id: int) -> bytes | None:
        asked.append(token_id)
        return None if token_id == 1 else b"x"

    table = TokenTable(token_bytes)
    for _ in range(2):
        assert pieces(ByteDetokenizer(table), [1, 2, 2]) == ["", "x", "x", ""]
    assert asked == [1, 2]


def test_detokenizers_of_one_table_do_not_share_an_unfinished_character() -> None:
    table = TokenTable(lambda token_id: bytes([token_id]))
    one, other = ByteDetokenizer(table), ByteDetokenizer(table)
    assert (one.push(0xC3), other.push(0x41), one.push(0xA9)) == ("", "A", "é")


@pytest.mark.parametrize("make", [sentence_piece, metaspace])
def test_sentence_piece_vocabularies_join_no_bytes(make: Callable[[], Tokenizer]) -> None:
    assert not make().joins_bytes


def test_byte_level_vocabulary_joins_bytes(tokenizer: Tokenizer) -> None:
    assert tokenizer.joins_bytes


def test_decoder_that_does_more_than_join_bytes_joins_none(tmp_path: Path) -> None:
    """Among other steps: what those do to a text cannot be told token by token."""
    path = tiny_tokenizer(tmp_path) / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    content["decoder"] = {"type": "Sequence", "decoders": [content["decoder"], strip]}
    path.write_text(json.dumps(content), "utf-8")
    assert not Tokenizer.load(tmp_path).joins_bytes
