"""Task 7.1: what the window forgets. Special tokens, broken bytes, and the cost of a token."""

from collections.abc import Sequence
from types import ModuleType

from grader.kit import expect, expect_equal, note, start_script, task
from grader.suites.engine.spellings import (
    BROKEN,
    CAT,
    END,
    THE,
    Decode,
    sentencepiece,
    stream,
    utf8,
)

SILENT = (
    "A special token has no text, and under ignore_eos many come in a row. None of them may push the "
    "context of the next word out of the window, or bytes that wait for the rest of their character."
)
FOR_GOOD = (
    "This byte breaks the run for good. If you wait until the decoded text begins with what was shown, "
    "nothing more is ever shown: leave the run behind."
)
COST = (
    "Decoding everything again for each token makes a text of n tokens cost n * n. Only the last few "
    "tokens can change what a new one says."
)
NO_END = (
    "A window that waits for a whole character at its end grows for ever where none comes. Beyond a "
    "certain length give up waiting: keep its last few tokens, and count all but the undecided as shown."
)


KIND = "each token is one byte of UTF-8; 0xC3 and 0xF0 begin a character that the next byte breaks"
MOST_UNDECIDED = 3
"""Bytes that may become a character with the next one."""


@task("7.1")
def test_broken_bytes_without_end(part: ModuleType) -> None:
    """However many broken bytes come in a row, each is there in the end, and what follows them too."""
    for row in (
        [0x80] * 40,
        [0xC3] * 40,
        [0xC3] * 15 + [0xF0, 0xC3, 0xF0, 0xA9, 0xA9] * 6,
        [*"🙂".encode()[:3]] * 14,
    ):
        start_script()
        note(KIND)
        token_ids = [*b"ab", *row, *"é🙂🙂".encode(), *b"cd"]
        pieces = stream(part, utf8, token_ids)
        why = "A window that drops its oldest tokens must know what of the rest was shown."
        what = f"the pieces together{first_gap(pieces, token_ids)}"
        expect_equal("".join(pieces), utf8(token_ids), what, why=why)


def first_gap(pieces: Sequence[str], token_ids: Sequence[int]) -> str:
    """Where they first differ from the whole text by more than a character that may be undecided."""
    for count in range(1, len(token_ids) + 1):
        shown, whole = "".join(pieces[:count]), utf8(list(token_ids[:count]))
        if not whole.startswith(shown) or len(whole) - len(shown) > MOST_UNDECIDED:
            told = f"{len(shown)} characters were shown of {len(whole)}"
            return f" (behind push {count}, of token {token_ids[count - 1]}, {told})"
    return ""


def tokens_decoded(
    part: ModuleType, token_ids: Sequence[int], decode_all: Decode = utf8
) -> list[int]:
    """For each push: how many tokens it decoded, all calls together."""
    decoded: list[int] = []

    def decode(ids: list[int]) -> str:
        decoded[-1] += len(ids)
        return decode_all(ids)

    detokenizer = part.Detokenizer(decode)
    for token in token_ids:
        decoded.append(0)
        detokenizer.push(token)
    return decoded


@task("7.1")
def test_a_token_costs_the_same_early_and_late(part: ModuleType) -> None:
    """The work for a token does not grow with the text, not even where no character is ever whole."""
    for kind, token_ids in (
        ("letters", b"a" * 400),
        ("broken bytes", b"\x80" * 400),
        ("a letter after broken bytes", b"\x80" * 200 + b"abcd" + b"\x80" * 200 + b"abcd"),
    ):
        decoded = tokens_decoded(part, token_ids)
        half = len(decoded) // 2
        early, late = max(decoded[:half]), max(decoded[half:])
        expect(
            late <= 1.5 * early and early <= 200,
            f"{kind}: a push among the first {half} tokens decodes up to {early} of them, "
            f"one among the last {half} up to {late}",
            why=COST if kind == "letters" else NO_END,
        )


@task("7.1")
def test_a_run_of_bytes_that_stays_broken(part: ModuleType) -> None:
    """A byte that is no character breaks its run for good, and the text goes on behind it."""
    note(f"each token is one byte, but {THE} is ' the', {CAT} ' cat'; 0xFF is part of no character")
    pieces = stream(part, sentencepiece(), [*"€".encode(), 0xFF, THE, CAT])
    expected = ["", "", "€", "", f"{BROKEN} the", " cat", ""]
    expect_equal(pieces, expected, "what each push and flush returned", why=FOR_GOOD)


@task("7.1")
def test_many_special_tokens(part: ModuleType) -> None:
    """After any number of special tokens in a row, what came before them is not forgotten."""
    note(f"token b is byte b, {THE} is ' the', {CAT} ' cat', {END} special")
    silent = [END] * 20
    pieces = stream(part, sentencepiece(), [THE, *silent, CAT])
    expect_equal("".join(pieces), "the cat", "the pieces together", why=SILENT)
    *begin, end = "🙂".encode()
    pieces = stream(part, sentencepiece(), [THE, *begin, *silent, end, CAT])
    expect_equal("".join(pieces), "the🙂 cat", "the pieces together", why=SILENT)
    decoded = tokens_decoded(part, [THE] + [END] * 400, sentencepiece())
    late = max(decoded[200:])
    expect(
        late <= 200,
        f"behind 200 special tokens in a row a push decodes up to {late} tokens",
        why=f"{COST} A special token says nothing at all.",
    )
