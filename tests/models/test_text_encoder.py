"""Ids are those of transformers, other threads go on meanwhile, and no text has fewer than the bound."""

import sys
import threading
import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Rust
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

import yaie
from tests.models.test_token_bytes import metaspace
from yaie.models.text_bounds import COMPOSED, MAX_BYTES, MAX_BYTES_IN_PYTHON
from yaie.models.tokenizer import PromptText, Tokenizer

WORDS = (
    "the The HTTPServer we've don't x 12345 1 2024-05 éclair e\u0301 das 東京。 語 한국어 ... :\n /* 🙂"
).split()
GAPS = [
    " ",
    " ",
    " ",
    "  ",
    "\n",
    "\n",
    "\n\n",
    " \n ",
    "\t",
    "",
    "'s ",
    "\r\n",
    "\u00a0",
    "/\n",
    "<|end|>",
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(WORDS + GAPS), max_size=60).map("".join),
    st.text(max_size=40),
    st.builds(
        str.__mul__, st.sampled_from(["x", " ", "\n", "1", "<|end|>", *WORDS]), st.integers(0, 999)
    ),
)
CORPUS = [
    " ".join(WORDS) * 3,
    "the test of don't we've the\nthen  the   end 12345 2024\n\nthe end",
] * 9

GPT2 = None
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace("{1,3}", "")
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    (
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
)


def byte_level(*patterns: str, nfc: bool = False, ignore_merges: bool = False) -> Tokenizer:
    """Byte-level BPE behind these patterns, or behind GPT-2's; with a BOS and an EOS around a text."""
    rust = Rust(models.BPE(ignore_merges=ignore_merges))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not patterns)
    rust.pre_tokenizer = pre_tokenizers.Sequence([*splits, last]) if patterns else last
    if nfc:
        rust.normalizer = normalizers.NFC()
    rust.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=500,
        special_tokens=["<s>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rust.train_from_iterator(CORPUS, trainer)
    rust.post_processor = processors.TemplateProcessing(
        single="<s> $A <|end|>", special_tokens=[("<s>", 0), ("<|end|>", 1)]
    )
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=rust, eos_token="<|end|>"))


def sentence_piece(*, as_metaspace: bool, prepends: bool = True) -> Tokenizer:
    """Merges over whole texts, as Llama 2 (a normalizer), Mistral (Metaspace) and Gemma have them."""
    letters = [chr(code) for first in "Aa" for code in range(ord(first), ord(first) + 26)]
    merges = [
        ("t", "h"),
        ("th", "e"),
        ("▁", "the"),
        ("▁", "▁"),
        ("▁▁", "▁"),
        ("d", "o"),
        ("do", "n"),
    ]
    merges += [("▁", "x"), ("e", "n"), ("en", "d")]
    pieces = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *letters]
    pieces += [left + right for left, right in merges]
    vocabulary = {piece: id for id, piece in enumerate(pieces)}
    rust = Rust(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    if as_metaspace:
        scheme = "first" if prepends else "never"
        rust.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    else:
        replace = normalizers.Replace(" ", "▁")
        steps = [normalizers.Prepend("▁"), replace] if prepends else [replace]
        rust.normalizer = normalizers.Sequence(steps) if prepends else replace
        if not prepends:
            rust.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    rust.add_special_tokens([AddedToken("<s>", special=True), AddedToken("<|end|>", special=True)])
    rust.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocabulary["<s>"])]
    )
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=rust, eos_token="<|end|>"))


def word_piece() -> Tokenizer:
    """As BERT's: lower case, and one token for a word that it does not know."""
    pieces = [
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "<|end|>",
        "the",
        "end",
        "t",
        "##h",
        "##e",
        "12",
        "##3",
        ".",
    ]
    rust = Rust(models.WordPiece({piece: id for id, piece in enumerate(pieces)}, unk_token="[UNK]"))
    rust.normalizer = normalizers.BertNormalizer()
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=rust, eos_token="<|end|>"))


BOUNDED = {
    "gpt2": lambda: byte_level(),
    "llama3": lambda: byte_level(LLAMA3, ignore_merges=True),
    "qwen": lambda: byte_level(QWEN, nfc=True),
    "gpt4o": lambda: byte_level(GPT4O),
    "deepseek": lambda: byte_level(*DEEPSEEK),
    "llama2": lambda: sentence_piece(as_metaspace=False),
    "mistral": lambda: sentence_piece(as_metaspace=True),
    "gemma": lambda: sentence_piece(as_metaspace=False, prepends=False),
    "metaspace without a space before": lambda: sentence_piece(as_metaspace=True, prepends=False),
}
KINDS = {**BOUNDED, "unigram": metaspace, "wordpiece": word_piece}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return KINDS[request.param]()


@pytest.fixture(scope="module", params=BOUNDED)
def bounded(request: pytest.FixtureRequest) -> Tokenizer:
    return BOUNDED[request.param]()


def fewest(tokenizer: Tokenizer, text: str) -> int:
    return tokenizer.fewest(PromptText([text]))


@settings(deadline=None, max_examples=200)
@given(text=TEXTS, add_special_tokens=st.booleans())
def test_ids_are_those_of_transformers(
    tokenizer: Tokenizer, text: str, add_special_tokens: bool
) -> None:
    theirs = tokenizer.of_transformers.encode(text, add_special_tokens=add_special_tokens)
    assert tokenizer.encode(text, add_special_tokens) == theirs


@settings(deadline=None)
@given(text=TEXTS)
def test_no_text_has_fewer_tokens_than_the_bound(tokenizer: Tokenizer, text: str) -> None:
    assert fewest(tokenizer, text) <= len(tokenizer.encode(text, False))


def test_the_bound_grows_with_the_text(bounded: Tokenizer) -> None:
    assert fewest(bounded, "x" * 10_000) >= 10_000 / 40
    assert fewest(bounded, "语" * 10_000) >= 10_000 / 40 / COMPOSED


def test_no_character_is_composed_of_more() -> None:
    every = map(chr, range(sys.maxunicode + 1))
    assert max(len(unicodedata.normalize("NFD", char)) for char in every) == COMPOSED


@pytest.mark.parametrize("make", [metaspace, word_piece])
def test_where_a_token_may_stand_for_any_number_of_characters_there_is_no_bound(make: Any) -> None:
    assert fewest(make(), "the end") == 0


@pytest.mark.parametrize("text", ["the end " * 90, "语言" * 200, "x" * 700])
def test_an_end_has_the_last_tokens_of_the_whole(
    tokenizer: Tokenizer, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = PromptText([text], add_special_tokens=False)
    assert tokenizer.end(whole, 3) == whole
    monkeypatch.setattr(tokenizer._bounds, "max_bytes", 500)
    end = tokenizer.end(whole, 3)
    assert 0 < end.num_bytes <= 500
    assert tokenizer.encode_parts(end)[-3:] == tokenizer.encode_parts(whole)[-3:]


def _with(change: str) -> Tokenizer:
    rust = byte_level().of_transformers.backend_tokenizer
    if change == "takes spaces":
        rust.add_special_tokens([AddedToken("mask", lstrip=True, special=True)])
    elif change == "removes":
        removed = pre_tokenizers.Split(" ", "removed")
        rust.pre_tokenizer = pre_tokenizers.Sequence([removed, rust.pre_tokenizer])
    elif change == "strips":
        rust.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])
    elif change == "replaces many":
        rust.normalizer = normalizers.Replace("ab", "c")
    elif change == "has no spaces":
        rust.pre_tokenizer = pre_tokenizers.Whitespace()
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=rust, eos_token="<|end|>"))


@pytest.mark.parametrize(
    ("change", "is_bounded"),
    [
        ("nothing", True),
        ("takes spaces", False),
        ("removes", False),
        ("strips", False),
        ("replaces many", False),
        ("has no spaces", False),
    ],
)
def test_where_characters_may_be_left_out_there_is_no_bound(change: str, is_bounded: bool) -> None:
    assert (fewest(_with(change), "the end") > 0) == is_bounded


def test_the_bound_knows_a_long_added_token() -> None:
    rust = byte_level().of_transformers.backend_tokenizer
    rust.add_special_tokens([AddedToken("é" * 400, special=True)])
    tokenizer = Tokenizer(PreTrainedTokenizerFast(tokenizer_object=rust, eos_token="<|end|>"))
    text = "é" * 400 * 9
    assert len(tokenizer.encode(text, False)) == 9
    assert 0 < fewest(tokenizer, text) <= 9


class Watched:
    """A tokenizer in Rust that notes how it is called."""

    def __init__(self, rust: Any) -> None:
        self._rust = rust
        self.calls: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        def called(texts: Any, **options: Any) -> Any:
            self.calls.append((name, len(texts)))
            return getattr(self._rust, name)(texts, **options)

        return called


def test_a_text_is_given_alone_to_the_call_that_gives_up_the_gil(tokenizer: Tokenizer) -> None:
    rust, tokenizer._backend = tokenizer._backend, Watched(tokenizer._backend)
    try:
        tokenizer.encode("the end " * 9000)
        assert tokenizer._backend.calls == [("encode_batch_fast", 1)]
    finally:
        tokenizer._backend = rust


def test_a_tokenizer_in_rust_may_be_given_more_than_one_in_python(tokenizer: Tokenizer) -> None:
    class InPython:
        """As transformers' own, where nothing in Rust is below."""

        eos_token_id = bos_token_id = None

        def __init__(self) -> None:
            self.added_tokens_decoder: dict[int, Any] = {}
            self.busy = 0

        def __len__(self) -> int:
            return 9

        def encode(self, text: str, **_: Any) -> list[int]:
            self.busy += 1
            time.sleep(0.001)
            assert self.busy == 1, "it has two callers"
            self.busy -= 1
            return [7] * len(text)

    assert tokenizer.max_bytes == MAX_BYTES
    slow = Tokenizer(InPython())
    assert slow.max_bytes == MAX_BYTES_IN_PYTHON
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(slow.encode("abc"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[7, 7, 7]] * 4
    assert fewest(slow, "the end") == 0


GAP = 0.005
"""Seconds for which a text of 920 kB may keep another thread waiting: its ids become a list at once."""


@pytest.mark.nightly
@pytest.mark.quiet
def test_another_thread_goes_on_while_a_long_text_is_tokenized() -> None:
    tokenizer = Tokenizer.load(Path(yaie.__file__).parent / "models" / "tutor" / "weights")
    text = "The scheduler admits a request when blocks are free. " * (920_000 // 53)
    assert min(_longest_gap(tokenizer, text) for _ in range(20)) < GAP


def _longest_gap(tokenizer: Tokenizer, text: str) -> float:
    """Seconds between two turns of this thread while another one tokenizes."""
    other = threading.Thread(target=tokenizer.encode, args=[text])
    other.start()
    longest, before = 0.0, time.perf_counter()
    while other.is_alive():
        time.sleep(0.0001)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    return longest
