"""Vocabularies whose tokens do not end where characters and words do; decoded at once, and streamed."""

from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType

from grader.kit import note, watch
from yaie.curriculum.manifest import ROOT

Decode = Callable[[list[int]], str]

BROKEN = "\N{REPLACEMENT CHARACTER}"


def utf8(token_ids: list[int]) -> str:
    """Each token is one byte."""
    return bytes(token_ids).decode("utf-8", "replace")


def chunks(pieces: Sequence[bytes]) -> Decode:
    """Token i is pieces[i], as in a byte-level BPE."""
    return lambda token_ids: b"".join(pieces[i] for i in token_ids).decode("utf-8", "replace")


THE, CAT, END, SPACE = 257, 258, 259, 260


@cache
def sentencepiece() -> Decode:
    """As Llama 2 decodes: token b is byte b; words carry the space before them, and the first space of
    a text is left out; END is a special token, SPACE a space by itself."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    pieces = [*(f"<0x{byte:02X}>" for byte in range(256)), "a", "▁the", "▁cat", "</s>", "▁"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    space = decoders.Replace("▁", " ")
    steps = [space, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    decode: Decode = tokenizer.decode
    return decode


@cache
def tutor() -> tuple[Callable[[str], list[int]], Decode]:
    """(encode, decode) of the model that comes with the project: a byte-level BPE."""
    from tokenizers import Tokenizer

    file = ROOT / "yaie" / "models" / "tutor" / "weights" / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.decode


def stream(part: ModuleType, decode: Decode, token_ids: Sequence[int]) -> list[str]:
    """What each token adds to the text, and at the end what flush adds."""
    note("detokenizer = Detokenizer(decode)")
    detokenizer = watch(part.Detokenizer(decode), "detokenizer")
    return [*(detokenizer.push(token) for token in token_ids), detokenizer.flush()]
