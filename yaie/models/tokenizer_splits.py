"""Where a text may be cut such that the tokens of the pieces, joined, are the tokens of the whole.

A long text is tokenized in pieces: the work can be given up between two of them, and none takes much
memory. A cut in the wrong place would change tokens, so `cuts_of` answers only for tokenizers whose
rules it knows; any other takes a text in one call.

BPE first splits a text into words by a pattern and then merges characters within each word, so a text
may be cut between two words if the pattern would split it there whatever else stands around. Every
pattern of KNOWN does so in two places: in front of a space between two ASCII letters, and behind a
single line break between a character that is no space and a letter. No alternative matches a letter and
a space behind it, or a line break and a letter behind it; none looks behind; and what one sees ahead of
a match ends at such a place, as it would at the end of the text.

Vocabularies of SentencePiece split nothing beforehand. There the first of the two places will do if no
entry of the vocabulary has a letter with a space behind it: then no merge can join the two.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PIECE = 1 << 14
"""Characters of a piece, at least: some 10 ms of work."""
LONGEST_PIECE = 1 << 20
"""Characters of a piece, at most. Tokenizing one takes about a second, which nothing interrupts."""
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"

_WORD = re.compile("[A-Za-z](?= [A-Za-z])")
# Letters of scripts that put no space between words are among those around a line break.
_SHOWN, _LETTERS = (
    "!-~\u0410-\u044f\u3001-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff5e",
    ("A-Za-z\u0410-\u044f\u4e00-\u9fff\uac00-\ud7a3"),
)
_WORD_OR_LINE = re.compile(f"{_WORD.pattern}|[{_SHOWN}]\n(?=[{_LETTERS}])")

_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
KNOWN = frozenset(
    [
        *_CONTRACTIONS.split("|"),
        f"(?i:{_CONTRACTIONS})",
        # GPT-2, Llama 3, Qwen
        r" ?\p{L}+", r" ?\p{N}+", r"\p{N}", r"\p{N}+", r"\p{N}{1,3}",
        r"[^\r\n\p{L}\p{N}]?\p{L}+", r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
        r" ?[^\s\p{L}\p{N}]+", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
        # GPT-4o, Mistral's tekken
        *(rf"[^\r\n\p{{L}}\p{{N}}]?{letters}{ending}"
          for letters in (f"{_UPPER}*{_LOWER}+", f"{_UPPER}+{_LOWER}*")
          for ending in ("", f"(?i:{_CONTRACTIONS})?")),
        # DeepSeek
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
        r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+", r" ?[\p{P}\p{S}]+[\r\n]*",
    ]
)  # fmt: skip
"""Alternatives of the patterns by which tokenizers split a text."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """The rules of one tokenizer. pattern: ends where a text may be cut. drops_space: a piece behind a
    cut is given without its first space, which the tokenizer puts in front of every text."""

    pattern: re.Pattern[str]
    drops_space: bool = False

    def from_end(self, text: str) -> Iterator[str]:
        """The pieces of a text, the last one first, as the tokenizer is to be given them. Raises
        UncutError when it comes to a stretch of LONGEST_PIECE characters with no place to cut."""
        end = len(text)
        while end > 0:
            start = self._start(text, end)
            yield text[start + (self.drops_space and start > 0) : end]
            end = start

    def _start(self, text: str, end: int) -> int:
        """Of the last piece of `text[:end]`."""
        low, high = max(0, end - PIECE), end
        while low > 0:
            # What is looked at ahead of a cut may lie beyond `high`.
            if (found := self.pattern.search(text, low, min(high + 2, end))) is not None:
                return found.end()
            if end - low >= LONGEST_PIECE:
                raise UncutError
            low, high = max(0, low - PIECE), low
        return 0


class UncutError(Exception):
    """A stretch of a text is too long to be tokenized in one call, and cannot be cut."""


def cuts_of(backend: Any) -> Cuts | None:
    """The places for a tokenizer of Hugging Face's `tokenizers`; None where none is known to be safe."""
    model = backend.model
    added = backend.get_added_tokens_decoder().values()
    if (
        type(model).__name__ != "BPE"
        or model.dropout
        or model.continuing_subword_prefix
        or model.end_of_word_suffix
        or not all(_stands_alone(token) for token in added)
    ):
        return None
    normalizer, splits = _state(backend.normalizer), _state(backend.pre_tokenizer)
    is_plain = normalizer in (None, {"type": "NFC"}) and '"ByteLevel"' in json.dumps(splits)
    if is_plain and _are_known(splits):
        return Cuts(_WORD_OR_LINE)
    if (drops_space := _as_sentence_piece(normalizer, splits)) is not None:
        vocabulary = backend.get_vocab(with_added_tokens=False)
        letters = {chr(code) for first in "Aa" for code in range(ord(first), ord(first) + 26)}
        # Before a token that begins with a letter, the space would be lost.
        if any(token.content[:1] in letters for token in added):
            return None
        knows_all = letters | {SPACE} <= vocabulary.keys()
        joins = re.compile(f"[A-Za-z]{SPACE}")
        if knows_all and not model.ignore_merges and not any(map(joins.search, vocabulary)):
            return Cuts(_WORD, drops_space)
    return None


def _state(part: Any) -> Any:
    """A normalizer or pre-tokenizer as tokenizer.json has it."""
    return None if part is None else json.loads(part.__getstate__())


def _stands_alone(token: Any) -> bool:
    """Whether an added token is found by its own characters, none of which a cut could part."""
    takes_more = token.lstrip or token.rstrip or token.single_word
    ends = token.content[:1] + token.content[-1:]
    return not (
        _WORD_OR_LINE.search(token.content)
        or (takes_more and any(char.isalnum() or char.isspace() for char in ends))
    )


def _are_known(splits: Any) -> bool:
    """Whether all that a pre-tokenizer does is to split by alternatives of KNOWN."""
    match splits:
        case {"type": "Sequence", "pretokenizers": steps}:
            return all(map(_are_known, steps))
        case {
            "type": "Split",
            "pattern": {"Regex": pattern},
            "behavior": "Isolated",
            "invert": False,
        }:
            return KNOWN.issuperset(_alternatives(pattern))
        case {"type": "Digits"}:
            return True
        case {"type": "ByteLevel", "add_prefix_space": False}:
            return True  # its own pattern is GPT-2's
    return False


def _alternatives(pattern: str) -> list[str]:
    """A pattern, split at the bars that are in no group and no class."""
    parts, depth, in_class, is_escaped = [""], 0, False, False
    for char in pattern:
        if char == "|" and not (depth or in_class or is_escaped):
            parts.append("")
            continue
        parts[-1] += char
        if is_escaped:
            is_escaped = False
            continue
        is_escaped = char == "\\"
        in_class = (in_class or char == "[") and char != "]"
        if not in_class:
            depth += {"(": 1, ")": -1}.get(char, 0)
    return parts


def _as_sentence_piece(normalizer: Any, splits: Any) -> bool | None:
    """Whether a space is put in front of every text, if all that happens beforehand is that spaces
    become SentencePiece's sign; None if more does."""
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    # Gemma splits at spaces when there are none any more.
    at_spaces = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                 "invert": False}  # fmt: skip
    match normalizer, splits:
        case _ if normalizer == spaces and splits in (None, at_spaces):
            return False
        case {"normalizers": [{"type": "Prepend", "prepend": "\u2581"}, step]}, None if (
            step == spaces
        ):
            return True
        case None, {
            "type": "Metaspace",
            "replacement": "\u2581",
            "split": False,
            "prepend_scheme": how,
        }:
            return bool(how != "never")
    return None
