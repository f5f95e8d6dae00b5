"""Tasks 7.1 and 7.2 beyond a few tokens: ids beyond 24 bits, long texts, and nothing left behind."""

from random import Random
from types import ModuleType
from typing import Any

from grader.kit import expect, expect_equal, note, start_script, task
from grader.kit.memory import expect_keeps_nothing, peak_of
from grader.suites.engine.far_tokens import FAR, first_wrong, from_far
from grader.suites.engine.spellings import BROKEN, CAT, END, SPACE, THE, sentencepiece, stream, utf8

BEHIND = 8_000
"""Tokens of a text that is long already."""
MOST = 16 << 10
"""Bytes for a few more of its tokens: a list of all of them takes four times as much."""
A_PART = (
    "A token changes the last few characters alone. A copy of all tokens before it costs as much as the "
    "text is long, at each token: take the window out of the list, and nothing else."
)


def joined(part: ModuleType, token_ids: list[int], first: int) -> str:
    """All pieces of a text whose ids begin at `first`."""
    start_script()
    note(f"{first} + b is byte b, + {THE} ' the', + {CAT} ' cat', + {END} special, + {SPACE} ' '")
    ids = [first + token for token in token_ids]
    return "".join(stream(part, from_far(sentencepiece(), first), ids))


@task("7.1")
def test_ids_of_any_size(part: ModuleType) -> None:
    """A token is its id, however large: text, spaces, bytes and special tokens beyond 24 bits too."""
    bits = "🙂".encode()
    for token_ids, text in (
        ([THE, SPACE, CAT, *bits, THE], "the  cat🙂 the"),
        ([THE, *[END] * 20, CAT], "the cat"),
        ([THE, *bits[:3], *[END] * 20, bits[3], CAT], "the🙂 cat"),
    ):

        def is_right(first: int, token_ids: list[int] = token_ids, text: str = text) -> bool:
            return joined(part, token_ids, first) == text

        if not is_right(0) or is_right(FAR):
            continue  # if it is wrong with small ids, other tests say why
        first, until = first_wrong(is_right)
        got = joined(part, token_ids, first)
        expect_equal(got, text, f"the pieces together, with ids from {first} on", why=until)


def fallback(token_ids: list[int]) -> str:
    """Each token is a byte; while one character of them is incomplete, every byte is U+FFFD."""
    try:
        return bytes(token_ids).decode()
    except UnicodeDecodeError:
        return BROKEN * len(token_ids)


def peak_of_pushes(detokenizer: Any, token_ids: bytes) -> int:
    return peak_of(lambda: [detokenizer.push(token) for token in token_ids])


@task("7.1")
def test_a_token_of_a_long_text_copies_no_text(part: ModuleType) -> None:
    """What a push or flush takes meanwhile does not grow with the tokens before it."""
    for what, decode, more in (
        ("letters", utf8, b"abcd" * 8),
        ("a character in bytes", fallback, "€".encode() * 8),
        ("broken bytes", utf8, b"\x80" * 32),
    ):
        start_script()
        note(f"a detokenizer has had {BEHIND} letters, and gets {what}")
        detokenizer = part.Detokenizer(decode)
        for _ in range(BEHIND):
            detokenizer.push(ord("a"))
        # The list of all tokens moves now and then, when it has grown: not twice in so few of them.
        peak = min(peak_of_pushes(detokenizer, more) for _ in range(2))
        problem = f"behind {BEHIND:,} tokens {len(more)} more take {peak:,} bytes at once"
        expect(peak <= MOST, problem, why=A_PART)
        peak = peak_of(detokenizer.flush)
        problem = f"behind {BEHIND:,} tokens flush takes {peak:,} bytes"
        expect(peak <= MOST, problem, why=A_PART)


@task("7.1")
def test_a_long_text_is_whole(part: ModuleType) -> None:
    """Thousands of tokens, each a byte of a character of three, join to the text that they spell."""
    start_script()
    note("each token is one byte of UTF-8: 3,000 times €")
    detokenizer, text = part.Detokenizer(utf8), "€" * 3000
    shown = [detokenizer.push(token) for token in text.encode()]
    got = "".join([*shown, detokenizer.flush()])
    right = next((at for at, letter in enumerate(text) if got[at : at + 1] != letter), len(text))
    why = "What is dropped of the tokens behind a long text may be half a character that is not shown."
    expect_equal(right, len(text), "characters that are right, from the first on", why=why)
    expect_equal(len(got), len(text), "characters of all pieces together", why=why)


def words(token_ids: list[int]) -> str:
    """Each token is a word, its number."""
    return "".join(f"word {token} " for token in token_ids)


@task("7.1")
def test_tokens_leave_nothing_behind(part: ModuleType) -> None:
    """Of a text that is over nothing is kept, and of one that goes on no more than its tokens."""
    endless, draw = part.Detokenizer(words), Random(0)

    def call() -> None:
        for _ in range(4):  # few: its tokens may stay
            endless.push(draw.randrange(1000))  # always another window
        short = part.Detokenizer(utf8)
        short.push(97)
        short.push(0xC3)
        short.flush()

    expect_keeps_nothing(call, "four pushes, and a text from its first token to flush")


SEVERAL = 48
LONG_STOP = "x" * 1500 + "END"
ANY_LENGTH = (
    "A stop string is as long as its client makes it. The end of the text that begins one is held back, "
    "a short one too, however much text stands before it."
)


@task("7.2")
def test_a_long_stop_string(part: ModuleType) -> None:
    """Behind a long text the first letters of a long stop string are held back, and lead to it."""
    start_script()
    note("checker = StopChecker(['x' * 1500 + 'END'])")
    checker = part.StopChecker([LONG_STOP])
    text = "a" * 1200
    got = checker.push(text + "xx")
    expect_equal(got, (text, None), "push('a' * 1200 + 'xx')", why=ANY_LENGTH)
    got = checker.push("x" * 1000)
    expect_equal(got, ("", None), "push('x' * 1000)", why=ANY_LENGTH)
    got = checker.push(LONG_STOP[1002:] + "b")
    expect_equal(got, ("", LONG_STOP), "push of the rest of the stop string", why=ANY_LENGTH)


@task("7.2")
def test_texts_leave_nothing_behind(part: ModuleType) -> None:
    """Of a text that is over nothing is kept, and of one that goes on only what may be a stop string."""
    endless = part.StopChecker(["END"])

    def call() -> None:
        for _ in range(SEVERAL):  # a reference to each piece would be small
            endless.push("a NEW E")
        short = part.StopChecker(["END"])
        short.push("a E")
        short.flush()

    what = f"{SEVERAL} pushes, and a text from its first piece to flush"
    expect_keeps_nothing(call, what)
