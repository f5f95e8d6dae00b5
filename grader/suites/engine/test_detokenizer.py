"""Task 7.1: what is streamed is what the tokens say together, and no character comes in two halves."""

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, start_script, task, watch
from grader.kit.expect import claiming
from grader.suites.engine.pieces import changed, expect_pieces
from grader.suites.engine.spellings import (
    BROKEN,
    CAT,
    END,
    SPACE,
    THE,
    Decode,
    chunks,
    sentencepiece,
    stream,
    tutor,
    utf8,
)

HALVES = (
    "A character may span up to four tokens. Its first bytes alone decode to U+FFFD: wait until it is "
    "whole, then show it once."
)
NEIGHBOURS = (
    "A token's text depends on its neighbours. Decode it together with some tokens before it, and cut "
    "off what was shown already."
)
ALONE = (
    "This comes out without the space token. Alone it decodes to nothing, like a special token, but "
    "behind its neighbours it changes their text, and a special token does not: decode both ways."
)
AS_DECODED = "What the tokens decode to comes as it is, whatever characters it has."
TWICE = (
    "What was shown of the new window is what its tokens say when they are decoded by themselves. That "
    "may be less than the piece that was returned (a first space is dropped) or more (half a character)."
)
THREE = (
    "With a byte fallback each byte of an incomplete character is a U+FFFD of its own. A character has "
    "up to four bytes, so three of them may still wait for the fourth."
)
RUN = (
    "With a byte fallback an incomplete character breaks the text of the bytes before it too, those "
    "already shown included: the length of what was shown says nothing then."
)


@task("7.1")
def test_a_word_is_shown_at_once(part: ModuleType) -> None:
    """The text of a token comes with that token, not with the next one."""
    note("token 0 is 'one', 1 is ' two', 2 is ' three'")
    pieces = stream(part, chunks([b"one", b" two", b" three"]), [0, 1, 2])
    right = ["one", " two", " three", ""]
    expect_pieces(pieces, right)
    start_script()
    note("0 is 'e' and an accent that is a character (U+0301), 1 CR LF NUL, 2 U+FEFF")
    odd = ["e\u0301", "\r\n\0", "\ufeff"]
    pieces = stream(part, chunks([text.encode() for text in odd]), [0, 1, 2])
    with claiming(AS_DECODED):
        expect_pieces(pieces, [*odd, ""], changed(pieces, odd))


@task("7.1")
def test_a_character_comes_whole(part: ModuleType) -> None:
    """Nothing of a character is shown before its last byte is there; then all of it is."""
    note("each token is one byte of UTF-8")
    emoji = stream(part, utf8, list("ok🙂".encode()))
    expected = ["o", "k", "", "", "", "🙂", ""]
    expect_pieces(emoji, expected, HALVES)
    note("token 0 is 日 without its last byte, 1 that byte and the first of 本, 2 the rest of 本")
    japanese = "日本".encode()
    pieces = stream(part, chunks([japanese[:2], japanese[2:4], japanese[4:]]), [0, 1, 2])
    why = HALVES if BROKEN in "".join(pieces) else TWICE
    expect_equal("".join(pieces), "日本", "the pieces together", why=why)
    expect(BROKEN not in "".join(pieces), f"half a character was shown: {pieces}", why=HALVES)


@task("7.1")
def test_a_token_is_decoded_with_those_before_it(part: ModuleType) -> None:
    """The space between two words stays, also where a tokenizer drops the first one of a text."""
    note(
        f"token {THE} is ' the', {CAT} ' cat', {END} special; the first space of a text is dropped"
    )
    pieces = stream(part, sentencepiece(), [THE, CAT, CAT])
    expect_pieces(pieces, ["the", " cat", " cat", ""], NEIGHBOURS)
    pieces = stream(part, sentencepiece(), [THE, END, CAT])
    why = f"{NEIGHBOURS} A special token has no text, so it is no context by itself."
    what = "with a special token between"
    expect_pieces(pieces, ["the", "", " cat", ""], why, what)


@task("7.1")
def test_a_token_that_is_a_space(part: ModuleType) -> None:
    """A token that is a space, and decodes to nothing by itself, is text behind another token."""
    note(f"token {SPACE} is ' ', {THE} ' the', {CAT} ' cat'; the first space of a text is dropped")
    for token_ids, expected, skipped in (
        ([SPACE, SPACE, CAT], ["", " ", " cat", ""], ["", "", "cat", ""]),
        ([THE, SPACE, CAT], ["the", " ", " cat", ""], ["the", "", " cat", ""]),
    ):
        pieces = stream(part, sentencepiece(), token_ids)
        expect_pieces(pieces, expected, ALONE if pieces == skipped else NEIGHBOURS)


@task("7.1")
def test_bytes_in_a_row_arrive(part: ModuleType) -> None:
    """Characters spelt in bytes, one behind the other, arrive one by one."""
    note("each token is one byte; while a run of bytes is incomplete, all of it decodes to U+FFFD")
    pieces = stream(part, sentencepiece(), [*"🙂".encode(), THE])
    expected = ["", "", "", "🙂", " the", ""]
    expect_pieces(pieces, expected, THREE)
    pieces = stream(part, sentencepiece(), [*"🙂日".encode(), THE])
    expected = ["", "", "", "🙂", "", "", "日", " the", ""]
    expect_pieces(pieces, expected, RUN)


@task("7.1")
def test_flush_gives_what_is_left(part: ModuleType) -> None:
    """A character that stays incomplete shows as a replacement character at the end, once."""
    note("each token is one byte of UTF-8")
    detokenizer = watch(part.Detokenizer(utf8), "detokenizer")
    shown = "".join(detokenizer.push(token) for token in "ok🙂".encode()[:-1])
    expect_equal(shown, "ok", "the text before flush", why=HALVES)
    why = "No more tokens come: what was waited for will not, and the reader learns that it is missing."
    expect_equal(detokenizer.flush(), BROKEN, "what flush returned", why=why)
    expect_equal(detokenizer.flush(), "", "what a second flush returned")


@task("7.1")
def test_broken_bytes_do_not_stop_the_text(part: ModuleType) -> None:
    """Bytes that are no character show as U+FFFD as soon as what follows decides it."""
    note("each token is one byte of UTF-8; 0x80 begins no character")
    pieces = stream(part, utf8, [*b"a", 0x80, *b"bc"])
    expect_equal("".join(pieces), f"a{BROKEN}bc", "the pieces together")
    expect_equal(
        pieces[2:],
        [f"{BROKEN}b", "c", ""],
        "what came after the broken byte",
        why="Waiting for a character that can no longer come would show nothing more.",
    )


TEXTS = st.text(st.sampled_from("ab \n,éüß日本語🙂🙃👩\u200d\u0301\ufffd"), max_size=12)
CUTS = st.lists(st.integers(1, 4), min_size=1, max_size=6)


@task("7.1")
@examples(80)
@given(text=TEXTS, cuts=CUTS)
def test_any_text_cut_anywhere(part: ModuleType, text: str, cuts: list[int]) -> None:
    """However the bytes of a text are cut into tokens, the pieces join to it, complete at each step."""
    whole = text.encode()
    pieces: list[bytes] = []
    while rest := whole[sum(map(len, pieces)) :]:
        pieces.append(rest[: cuts[len(pieces) % len(cuts)]])
    check(part, chunks(pieces), list(range(len(pieces))), f"token i is item i of {pieces}")


@task("7.1")
@examples(100)
@given(
    token_ids=st.lists(st.sampled_from([*b"ab", *"é日🙂".encode(), 0x80, 0xC3, 0xFF]), max_size=30)
)
def test_any_bytes(part: ModuleType, token_ids: list[int]) -> None:
    """Whatever bytes come, the pieces join to what decoding all of them at once gives."""
    check(part, utf8, token_ids, "each token is one byte of UTF-8")


@task("7.1")
@examples(60)
@given(
    words=st.lists(st.sampled_from(["a", "é", "日", "🙂", "\n", THE, CAT, END, SPACE]), max_size=8)
)
def test_any_words_and_bytes_in_a_row(part: ModuleType, words: list[str | int]) -> None:
    """With words, special tokens and characters spelt in bytes, the pieces join to the whole text."""
    token_ids: list[int] = []
    for word in words:
        token_ids += [word] if isinstance(word, int) else word.encode()
    header = f"token b is byte b, {THE} ' the', {CAT} ' cat', {END} special, {SPACE} ' '"
    check(part, sentencepiece(), token_ids, header)


@task("7.1")
@examples(40)
@given(text=TEXTS, others=st.lists(st.integers(0, 1000), max_size=12))
def test_the_tutors_tokenizer(part: ModuleType, text: str, others: list[int]) -> None:
    """With the tutor's tokenizer, any text and any tokens at all join to what decoding at once gives."""
    encode, decode = tutor()
    check(part, decode, encode(text) + others, "the tutor's tokenizer")


def check(part: ModuleType, decode: Decode, token_ids: list[int], header: str) -> None:
    """Against decoding everything at once, after each token and at the end."""
    note(header)
    detokenizer = watch(part.Detokenizer(decode), "detokenizer")
    whole, shown = decode(token_ids), ""
    for count, token in enumerate(token_ids, start=1):
        piece = detokenizer.push(token)
        shown += piece
        expect(BROKEN not in piece or BROKEN in whole, f"half a character: {piece!r}", why=HALVES)
        so_far = decode(token_ids[:count])
        if not so_far.endswith(BROKEN):
            why = spaces_apart(shown, so_far)
            expect_equal(shown, so_far, f"the text after {count} tokens", why=why)
    shown += detokenizer.flush()
    expect_equal(shown, whole, "the whole text, with flush", why=spaces_apart(shown, whole))


def spaces_apart(shown: str, right: str) -> str:
    """Why spaces are lost, if nothing else is wrong."""
    return NEIGHBOURS * (shown.replace(" ", "") == right.replace(" ", ""))
