"""Tasks 7.1 and 7.2 beyond a few tokens: ids beyond 24 bits, long texts, and nothing left behind."""

from collections.abc import Callable
from functools import partial
from random import Random
from types import ModuleType
from typing import Any

from grader.kit import Fault, Mismatch, expect, expect_equal, note, start_script, task
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
    windows: list[list[int]] = []

    def decode(ids: list[int]) -> str:
        windows[-1].append(len(ids))
        return utf8(ids)

    detokenizer, text = part.Detokenizer(decode), "€" * 3000
    right = ["", "", "€"] * len(text)
    for count, token in enumerate(text.encode(), start=1):
        windows.append([])
        piece = detokenizer.push(token)
        if piece != right[count - 1]:
            sizes = [" + ".join(map(str, each)) or "0" for each in windows[-2:]]
            why = DECODED.format(push=count, now=sizes[-1], before=sizes[0])
            if piece.endswith(right[count - 1]) and len(piece) > 1 and count % 3 == 0:
                why += " What it returned before the last character had been shown already."
            expect_equal(piece, right[count - 1], f"what push {count:,} returned, byte "
                         f"{(count - 1) % 3 + 1} of the three of a €", why=why)  # fmt: skip
    windows.append([])
    expect_equal(detokenizer.flush(), "", "what flush returned")


DECODED = (
    "Up to there each third push returned a €. Push {push:,} decoded {now} tokens, the one before it "
    "{before}."
)


NOT_NEEDED = (
    "A text may be as long as a context. Its token ids may stay; the text that was shown and windows "
    "that were decoded are never needed again."
)
NOT_HELD = (
    "A text may be as long as a context. A later push needs only the end of it that may begin a stop "
    "string: drop what was shown."
)


def words(token_ids: list[int]) -> str:
    """Each token is a word, its number."""
    return "".join(f"word {token} " for token in token_ids)


@task("7.1")
def test_tokens_leave_nothing_behind(part: ModuleType) -> None:
    """Of a text that is over nothing is kept, and of one that goes on no more than its tokens."""
    draw = Random(0)

    def go_on(endless: Any) -> None:
        for _ in range(4):  # few: its tokens may stay
            endless.push(draw.randrange(1000))  # always another window

    def one_text() -> None:
        short = part.Detokenizer(utf8)
        short.push(97)
        short.push(0xC3)
        short.flush()

    new = partial(part.Detokenizer, words)
    expect_neither_keeps(new, go_on, "a round of four pushes", NOT_NEEDED, one_text)


def expect_neither_keeps(
    new: Callable[[], Any],
    go_on: Callable[[Any], None],
    what: str,
    why: str,
    one_text: Callable[[], None],
) -> None:
    """new: an object for a text that goes on, go_on: pushes to it, `what` names them. one_text: all of a
    text."""

    def both(endless: Any) -> None:
        go_on(endless)
        one_text()

    try:
        expect_keeps_nothing(partial(both, new()), f"{what}, and a text from push to flush,")
    except Fault:  # each by itself, if one of them is enough
        expect_keeps_nothing(partial(go_on, new()), f"{what}, in a text that goes on,", why=why)
        expect_keeps_nothing(one_text, "a text from its first push to flush")
        raise


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
    note("checker.push('a' * 1200 + 'xx')")
    shown, stop = checker.push("a" * 1200 + "xx")
    expect_equal(stop, None, "the stop string found in it", why=ANY_LENGTH)
    expect_held(part, shown, "a" * 1200, 1202)
    note("checker.push('x' * 1000)")
    shown, stop = checker.push("x" * 1000)
    expect_equal(stop, None, "the stop string found in it", why=ANY_LENGTH)
    expect_held(part, shown, "", 1002)
    got = checker.push(LONG_STOP[1002:] + "b")
    expect_equal(got, ("", LONG_STOP), "push of the rest of the stop string", why=ANY_LENGTH)


def expect_held(part: ModuleType, shown: str, right: str, num_letters: int) -> None:
    """What a push shows of so many letters, told by their number."""
    if shown == right:
        return
    wanted, got = (
        f"{len(text)} letters are shown, {num_letters - len(text)} are held back"
        for text in (right, shown)
    )
    if wanted == got or not shown.startswith(right):
        expect_equal(shown, right, "the text that is shown", why=ANY_LENGTH)
    longest = next((n for n in range(1, 1002) if part.StopChecker([LONG_STOP]).push("x" * n)[0]), 0)
    most = f" Up to {longest - 1} letters are held back, of {longest} or more not all." * bool(
        longest
    )
    raise Mismatch("the start of the stop string is shown", wanted, got, ANY_LENGTH + most)


@task("7.2")
def test_texts_leave_nothing_behind(part: ModuleType) -> None:
    """Of a text that is over nothing is kept, and of one that goes on only what may be a stop string."""
    new = partial(part.StopChecker, ["END"])

    def go_on(endless: Any) -> None:
        for _ in range(SEVERAL):  # a reference to each piece would be small
            endless.push("a NEW E")

    def one_text() -> None:
        short = new()
        short.push("a E")
        short.flush()

    expect_neither_keeps(new, go_on, f"a round of {SEVERAL} pushes", NOT_HELD, one_text)
