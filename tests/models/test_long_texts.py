"""Long texts in pieces: the pieces have the tokens of the whole, and the bound is below their number."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Rust
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from tests.models.test_token_bytes import metaspace
from yaie.models import tokenizer_splits
from yaie.models.tokenizer import Tokenizer
from yaie.models.tokenizer_splits import LONGEST_PIECE, UncutError, cuts_of

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
TEXTS = st.lists(st.sampled_from(WORDS + GAPS), max_size=60).map("".join)
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


KINDS = {
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


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return KINDS[request.param]()


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut at every place that is one."""
    monkeypatch.setattr(tokenizer_splits, "PIECE", 1)


def pieces(tokenizer: Tokenizer, text: str, add_special_tokens: bool) -> list[list[int]]:
    return list(tokenizer.long_texts.from_end(text, add_special_tokens))[::-1]


@pytest.mark.usefixtures("small_pieces")
@settings(deadline=None, max_examples=300)
@given(text=TEXTS, add_special_tokens=st.booleans())
def test_tokens_of_the_pieces_are_those_of_the_whole(
    tokenizer: Tokenizer, text: str, add_special_tokens: bool
) -> None:
    joined = list(itertools.chain(*pieces(tokenizer, text, add_special_tokens)))
    assert joined == tokenizer.encode(text, add_special_tokens)


@settings(deadline=None)
@given(text=TEXTS)
def test_no_text_has_fewer_tokens_than_the_bound(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.long_texts.fewest(text) <= len(tokenizer.encode(text, False))


def test_the_bound_grows_with_the_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.long_texts.fewest("x" * 10_000) >= 10_000 / 40


@pytest.mark.usefixtures("small_pieces")
def test_words_are_cut_apart(tokenizer: Tokenizer) -> None:
    assert len(pieces(tokenizer, "the end of the text", False)) == 5


def test_a_stretch_without_a_place_to_cut_is_not_tokenized(tokenizer: Tokenizer) -> None:
    text = "the end " + "x" * (LONGEST_PIECE + tokenizer_splits.PIECE) + " the end"
    ends = tokenizer.long_texts.from_end(text, add_special_tokens=False)
    with pytest.raises(UncutError):
        for _ in ends:
            pass


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{L}+ ?|\s+|\p{N}+",  # a space behind the letters
        r"(?<=a) b| ?\p{L}+|\s+",  # looks behind
        r"\w+|\s+",
    ],
)
def test_a_pattern_that_is_not_known_is_not_trusted(pattern: str) -> None:
    tokenizer = byte_level(pattern)
    assert cuts_of(tokenizer.of_transformers.backend_tokenizer) is None
    assert pieces(tokenizer, "the end " * 9, True) == [tokenizer.encode("the end " * 9)]
    with pytest.raises(UncutError):
        pieces(tokenizer, "the end " * LONGEST_PIECE, True)


def test_vocabularies_that_are_not_of_bytes_are_not_trusted() -> None:
    unigram = metaspace()
    assert unigram.long_texts.fewest("the end") == 0
    assert pieces(unigram, "ab cd", True) == [unigram.encode("ab cd")]


@pytest.mark.parametrize(
    "token", [AddedToken("of the", special=True), AddedToken("mask", lstrip=True, special=True)]
)
def test_added_tokens_that_a_cut_could_part_rule_out_cuts(token: AddedToken) -> None:
    rust = byte_level().of_transformers.backend_tokenizer
    rust.add_special_tokens([token])
    assert cuts_of(rust) is None


def test_a_merge_of_a_letter_and_a_space_rules_out_cuts() -> None:
    rust = Rust.from_str(
        sentence_piece(as_metaspace=False)
        .of_transformers.backend_tokenizer.to_str()
        .replace('"▁x"', '"x▁"')
        .replace('["▁","x"]', '["x","▁"]')
        .replace('"▁",\n        "x"', '"x",\n        "▁"')
    )
    assert "x▁" in rust.get_vocab()
    assert cuts_of(rust) is None
