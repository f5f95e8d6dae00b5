"""Lab 7, text: what is streamed is what the whole text is, however it is cut."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solutions.engine import Detokenizer, StopChecker
from tests.models.tiny import tiny_model
from yaie.models.tokenizer import Tokenizer

TEXTS = [
    "plain words, and a few more of them",
    "emoji 🙂🙃 and a family 👨‍👩‍👧‍👦, a flag 🇫🇷",
    "日本語のテキストと中文",
    "naïve café e\u0301 ü Straßenschild 37 °C",
    "\n\n\ttabs and\r\nlines   ",
    "",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama"))


def stream(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer.decode)
    return [detokenizer.push(token) for token in ids] + [detokenizer.flush()]


@pytest.mark.parametrize("text", TEXTS)
def test_the_pieces_of_a_text_join_to_it(tokenizer: Tokenizer, text: str) -> None:
    assert "".join(stream(tokenizer, tokenizer.encode(text, add_special_tokens=False))) == text


@pytest.mark.parametrize("text", TEXTS)
def test_no_piece_holds_half_a_character(tokenizer: Tokenizer, text: str) -> None:
    pieces = stream(tokenizer, tokenizer.encode(text, add_special_tokens=False))
    assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(ids=st.lists(st.integers(0, 383), max_size=60))
def test_any_tokens_at_all_join_to_what_decoding_them_at_once_gives(
    tokenizer: Tokenizer, ids: list[int]
) -> None:
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


def sentencepiece() -> Callable[[list[int]], str]:
    """As Llama 2 decodes: 0 is special, 1..256 are bytes, the rest are words with "▁" for a space."""
    from tokenizers import AddedToken, decoders, models
    from tokenizers import Tokenizer as RustTokenizer

    pieces = ["</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁the", "a"]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = RustTokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    decode: Callable[[list[int]], str] = tokenizer.decode
    return decode


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    chunks=st.lists(
        st.sampled_from(
            [[257], [258], [259], [0], *([b + 1 for b in c.encode()] for c in "é日🙂\n")]
        ),
        max_size=12,
    )
)
def test_characters_in_a_row_that_are_spelt_in_bytes_arrive_whole(chunks: list[list[int]]) -> None:
    decode = sentencepiece()
    ids = [token for chunk in chunks for token in chunk]
    detokenizer = Detokenizer(decode)
    pieces = [detokenizer.push(token) for token in ids] + [detokenizer.flush()]
    assert "".join(pieces) == decode(ids)
    assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces)


def test_a_special_token_between_words_keeps_the_space() -> None:
    detokenizer = Detokenizer(sentencepiece())
    assert [detokenizer.push(token) for token in (258, 0, 258)] == ["the", "", " the"]


def test_a_character_cut_short_by_the_end_shows_as_one_replacement(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("ok 🙂", add_special_tokens=False)[:-1]
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


def test_a_token_costs_the_same_however_long_the_text(tokenizer: Tokenizer) -> None:
    widths: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        widths.append(len(ids))
        return tokenizer.decode(ids)

    detokenizer = Detokenizer(decode)
    ids = tokenizer.encode("word after word " * 100, add_special_tokens=False)
    for token in ids:
        detokenizer.push(token)
    assert len(widths) <= 2 * len(ids)
    assert max(widths) <= 8


def letter_by_letter(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The definition: read on until the text ends with a stop string; the longest such one counts."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            stop = max(ended, key=len)
            return text[: end - len(stop)], stop
    return text, None


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(
    pieces=st.lists(st.text("abc", max_size=5), max_size=8),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
)
def test_stop_strings_are_found_as_if_letters_came_one_by_one(
    pieces: list[str], stops: list[str]
) -> None:
    checker = StopChecker(stops)
    shown, found = "", None
    for piece in pieces:
        text, found = checker.push(piece)
        shown += text
        if found is not None:
            break
    else:
        shown += checker.flush()
    assert (shown, found) == letter_by_letter("".join(pieces), stops)


def test_what_may_become_a_stop_string_is_held_back_and_nothing_else() -> None:
    checker = StopChecker(["END"])
    assert checker.push("one E") == ("one ", None)
    assert checker.push("N") == ("", None)
    assert checker.push("X two") == ("ENX two", None)
    assert checker.push(" EN") == (" ", None)
    assert checker.push("D three") == ("", "END")


def test_without_stop_strings_text_passes_at_once() -> None:
    checker = StopChecker(())
    assert checker.push("anything") == ("anything", None)
    assert checker.flush() == ""
