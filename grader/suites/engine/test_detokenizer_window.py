"""Task 7.1: what the window forgets. Special tokens, broken bytes, and the cost of a token."""

from collections.abc import Sequence
from types import ModuleType

from grader.kit import expect, expect_equal, note, start_script, task
from grader.kit.siblings import telling
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


FORGOTTEN = (
    "Push {push} decodes the last {size} tokens. The {left} before them are out of the window: they "
    "spell {before} characters, of which only {shown} had been shown."
)
KIND = "each token is one byte of UTF-8; 0xC3 and 0xF0 begin a character that the next byte breaks"
MOST_UNDECIDED = 3
"""Bytes that may become a character with the next one."""


@task("7.1")
def test_broken_bytes_without_end(part: ModuleType) -> None:
    """However many broken bytes come in a row, each is there in the end, and what follows them too."""
    for unit, times in (
        ([0x80], 40),
        ([0xC3], 40),
        ([0xC3] * 15 + [0xF0, 0xC3, 0xF0, 0xA9, 0xA9], 1),
        ([0xC3] * 15 + [0xF0, 0xC3, 0xF0, 0xA9, 0xA9] * 6, 1),
        ([*"🙂".encode()[:3]], 14),
    ):
        if not comes_whole(part, unit * times):
            # The shortest row that shows it.
            fewest = next(n for n in range(1, times + 1) if not comes_whole(part, unit * n))
            expect_whole(part, unit * fewest)


def around(row: Sequence[int]) -> list[int]:
    """The row behind two letters, and before what must come whole."""
    return [*b"ab", *row, *"é🙂🙂".encode(), *b"cd"]


def comes_whole(part: ModuleType, row: Sequence[int]) -> bool:
    token_ids = around(row)
    detokenizer = part.Detokenizer(utf8)
    pieces = [detokenizer.push(token) for token in token_ids]
    return "".join([*pieces, detokenizer.flush()]) == utf8(token_ids)


def expect_whole(part: ModuleType, row: Sequence[int]) -> None:
    """The pieces join to the text; or it is told where they do not, and what the window was there."""
    start_script()
    note(KIND)
    token_ids = around(row)
    pieces = stream(part, utf8, token_ids)
    text, whole = "".join(pieces), utf8(token_ids)
    gap = first_gap(pieces, token_ids)
    with telling(lambda: forgotten(part, token_ids, gap)):
        expect_equal(text, whole, f"the pieces together{told_gap(pieces, token_ids, gap)}")


def first_gap(pieces: Sequence[str], token_ids: Sequence[int]) -> int:
    """The push behind which they first differ from the whole text by more than a character that may be
    undecided; 0 if there is none."""
    for count in range(1, len(token_ids) + 1):
        shown, whole = "".join(pieces[:count]), utf8(list(token_ids[:count]))
        if not whole.startswith(shown) or len(whole) - len(shown) > MOST_UNDECIDED:
            return count
    return 0


def told_gap(pieces: Sequence[str], token_ids: Sequence[int], gap: int) -> str:
    if not gap:
        return ""
    shown, whole = "".join(pieces[:gap]), utf8(list(token_ids[:gap]))
    told = f"{len(shown)} characters had been shown of {len(whole)}"
    return f" (behind push {gap}, of token {token_ids[gap - 1]}, {told})"


def windows_of(part: ModuleType, token_ids: Sequence[int]) -> list[list[int]]:
    """The first tokens that each push has decoded, as a list; then what it has returned is `shown`."""
    windows: list[list[int]] = []

    def decode(ids: list[int]) -> str:
        if not windows[-1]:
            windows[-1] = list(ids)
        return utf8(ids)

    detokenizer = part.Detokenizer(decode)
    for token in token_ids:
        windows.append([])
        detokenizer.push(token)
    return windows


def forgotten(part: ModuleType, token_ids: Sequence[int], gap: int) -> str:
    """What the window no longer has though it was not shown, or that something is shown twice."""
    detokenizer = part.Detokenizer(utf8)
    shown = len("".join(detokenizer.push(token) for token in token_ids[: gap - 1]))
    window = windows_of(part, token_ids[:gap])[-1]
    begin = gap - len(window)
    if list(token_ids[begin:gap]) != window:
        return ""
    before = len(utf8(list(token_ids[:begin])))
    piece = detokenizer.push(token_ids[gap - 1])
    if shown + len(piece) > len(utf8(list(token_ids[:gap]))):
        return f"Push {gap} returned {piece!r}, a part of which had been shown already."
    if before > shown:
        return FORGOTTEN.format(push=gap, size=len(window), left=begin, before=before, shown=shown)
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
