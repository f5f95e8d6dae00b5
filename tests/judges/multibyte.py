"""Texts of many scripts, tokenizers that spell them in bytes, and a sampler that says given texts."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models

from tests.models.tiny import CHAT_TEMPLATE, VOCAB, tiny_model

NUM_TEXTS = 200
_FRAGMENTS = [
    "plain words", "naïve café", "Straßenschild 37 °C", "e\u0301a\u0308o\u0302 zerlegt", "Việt Nam",
    "Ελληνικά", "Привет, мир", "Հայերեն", "שָׁלוֹם עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "বাংলা লেখা",
    "ਪੰਜਾਬੀ", "தமிழ் எழுத்து", "తెలుగు", "ಕನ್ನಡ", "മലയാളം", "ภาษาไทย", "ພາສາລາວ", "བོད་ཡིག", "မြန်မာ",
    "ქართული", "አማርኛ", "ខ្មែរ", "ᏣᎳᎩ", "日本語テキスト", "中文和漢字", "한국어", "각", "ﾊﾝｶｸ", "𠜎𠜱𡿺",
    "👨‍👩‍👧‍👦 family", "👩🏽‍🚀🏳️‍🌈", "🇫🇷🇯🇵", "❤️‍🔥1️⃣", "🙂🙃", "𝔐𝔞𝔱𝔥 ∑∞≠", "𓀀𓁐", "Z͑ͫ̓ͪ̂a̴l͜g͟o҉", "tab\tline\nend",
    "“quotes” — …", "zero\u200bwidth\u2060", "\u2028sep\u0085nel", "rtl \u202eabc\u202c",
]  # fmt: skip
NUM_FRAGMENTS = len(_FRAGMENTS)
_WORDS = ["▁", "▁the", "e", "a", "▁words", "é", "日本", "語", "р", "ü", "🙂", "न", "▁мир", "ا"]
_SPECIAL = ["<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]

Spelling = dict[bytes, int]
"""The tokens that a text may be cut into: what each stands for, and its id."""


def texts() -> list[str]:
    """NUM_TEXTS different texts of two or three fragments each; every fragment begins some."""
    found: dict[str, None] = {}
    rng = random.Random(0)
    while len(found) < NUM_TEXTS:
        first = _FRAGMENTS[len(found) % len(_FRAGMENTS)]
        rest = rng.sample(_FRAGMENTS, rng.choice([1, 2]))
        found[" ".join([first, *rest])[:24]] = None
    return list(found)


def cut(text: str, spelling: Spelling, rng: random.Random) -> list[int]:
    """Token ids that spell `text`, at random among all ways: bytes, parts of characters, whole words."""
    rest, longest, ids = text.encode(), max(map(len, spelling)), []
    while rest:
        heads = [rest[:length] for length in range(1, longest + 1) if rest[:length] in spelling]
        head = rng.choice(heads)
        ids.append(spelling[head])
        rest = rest[len(head) :]
    return ids


def byte_level(folder: Path) -> tuple[Path, Spelling]:
    """A tiny Llama whose tokens are bytes and strings of bytes, as those of GPT-2 and Llama 3."""
    tiny_model("llama", folder)
    vocabulary = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    letters = _letters_of_bytes()
    spelling = {
        bytes(letters[letter] for letter in token): number
        for token, number in vocabulary.items()
        if token not in _SPECIAL
    }
    return folder, spelling


def _letters_of_bytes() -> dict[str, int]:
    """The letter that stands for each byte in a byte-level vocabulary (Radford et al. 2019)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


def byte_fallback(folder: Path) -> tuple[Path, Spelling]:
    """A tiny Llama whose tokens are words, and bytes for what is none, as those of Llama 2."""
    tiny_model("llama", folder)
    pieces = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *_WORDS]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    assert len(vocabulary) <= VOCAB
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    assert settings["chat_template"] == CHAT_TEMPLATE
    spelling = {bytes([byte]): len(_SPECIAL) + byte for byte in range(256)}
    return folder, spelling | {w.replace("▁", " ").encode(): vocabulary[w] for w in _WORDS}


class SayingSampler:
    """A sampler under which a request says the token ids of `scripts[its seed]`, whatever the logits."""

    def __init__(self, scripts: Sequence[Sequence[int]]) -> None:
        self._scripts = scripts

    def sample(self, logits: torch.Tensor, batch: Any) -> torch.Tensor:
        """See `yaie.core.contracts.Sampler`."""
        places = zip(batch.seeds.tolist(), batch.steps.tolist(), strict=True)
        return torch.tensor([self._scripts[seed][step] for seed, step in places])
