"""Task 7.3: how a request ends, and what of its text is shown."""

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

from grader.kit import expect_equal, note, task
from grader.suites.engine.bench import EOS, Bench, bench_of, decode, tokens_of
from solutions.engine import Detokenizer
from yaie.core.request import FinishReason, Request, RequestStatus

WHICH = (
    'The reason tells the client whether the answer is complete ("stop") or was cut off ("length"). A '
    "client that gets the wrong one asks for more of a finished answer, or takes half of one for whole."
)
MARK = "What ends an answer is a mark between model and engine, no part of the text."
FIRST = (
    "A token can be the last one allowed and end the answer itself. Then the answer is complete, and "
    "the reason says so."
)
FLUSH = (
    "No more text comes: what detokenizer and stop checker held back belongs to the last output."
)
CUT = "No more text comes: half a character that the detokenizer holds is shown in the last output."
TAIL = (
    "What flush gives is text like any other: it may complete a stop string, so it goes through "
    "the stop checker before it is shown."
)
BOTH = (
    "The client has asked to stop at this token, so stop_reason names it, even if it is an "
    "end-of-sequence token as well: look for stop tokens first."
)
ROOM = (
    "Request.max_tokens is how many tokens the request may have: what its client asks for, or less "
    "where the context is full. What the client asks for, in `params`, may be more, or None."
)
EACH = (
    "A push is the text of one token. With min_tokens the stop checker counts them, so a token that "
    'gives no text yet is pushed as well, as "".'
)
OVER = "A stop string ends the text: what the detokenizer holds then comes after the end."
BEFORE = "The last push returns text too: what was held back before the stop string that it found."
OVERRULED = (
    "The stop string ends the text before the stop token does, so it is what the answer stopped at."
)
MANY_STOPS = 1001


def end_of(part: ModuleType, said: str | Sequence[int], **params: Any) -> tuple[Bench, Request]:
    """A request on its own, run to its end."""
    bench = bench_of(part, "7.3")
    request = bench.say(said, **params)
    bench.run()
    return bench, request


def expect_before(got: str, right: str, what: str) -> None:
    """The text before what ended it."""
    shows_more = got != right and got.startswith(right)
    expect_equal(got, right, what, why=MARK * shows_more)


@task("7.3")
def test_a_request_ends_with_its_last_allowed_token(part: ModuleType) -> None:
    """After max_tokens tokens a request is over, with the reason "length" in its last output."""
    bench, request = end_of(part, "abcdef", max_tokens=3)
    expect_equal(bench.text(request), "abc", "the text with max_tokens=3")
    reasons = [output.finish_reason for output in bench.outputs]
    expect_equal(
        reasons, [None, None, FinishReason.LENGTH], "finish_reason, output by output", why=WHICH
    )


@task("7.3")
def test_a_request_ends_where_its_context_is_full(part: ModuleType) -> None:
    """A request ends with "length" when no more tokens fit, whatever its client has asked for."""
    asked: tuple[dict[str, Any], ...] = ({"max_tokens": 9}, {})
    for params in asked:
        bench = bench_of(part, "7.3")
        request = bench.say("abcdef", room=3, **params)
        bench.run()
        expect_equal(bench.text(request), "abc", "the text, with room for 3 tokens", why=ROOM)
        expect_equal(request.finish_reason, FinishReason.LENGTH, "finish_reason", why=ROOM)


@task("7.3")
def test_what_is_over_is_given_back(part: ModuleType) -> None:
    """The scheduler learns of the end: the request holds no blocks, and nothing is left to do."""
    bench, request = end_of(part, "abc", max_tokens=2)
    why = (
        "The scheduler gives the request's row and blocks to the next one, once finish() is called."
    )
    expect_equal(request.status, RequestStatus.FINISHED, "the request's status", why=why)
    expect_equal(request.finish_reason, FinishReason.LENGTH, "the request's finish_reason", why=why)
    expect_equal(bench.toy.cache.stats()["used_blocks"], 0, "blocks in use at the end", why=why)
    expect_equal(bench.step(), [], "what a further step returned")


@task("7.3")
def test_the_end_of_sequence_token(part: ModuleType) -> None:
    """An end-of-sequence token ends a request with "stop"; it is counted, but no part of the text."""
    bench, request = end_of(part, [*tokens_of("ab"), EOS])
    expect_equal(request.finish_reason, FinishReason.STOP, "finish_reason after EOS", why=WHICH)
    expect_before(bench.text(request), "ab", "the text before EOS")
    expect_equal(
        request.stop_reason,
        None,
        "stop_reason after EOS",
        why="stop_reason names what the client has asked to stop at; EOS is the model's.",
    )
    told = [output.token_ids for output in bench.outputs]
    why = "The model has computed it, so it counts as used." * (told[:-1] == [[0], [1]])
    why = "An output has all that its step has brought, the last one too." if not any(told) else why
    expect_equal(told, [[0], [1], [EOS]], "the tokens of each output", why=why)


@task("7.3")
def test_the_end_of_sequence_token_can_be_ignored(part: ModuleType) -> None:
    """With ignore_eos a request goes on after an end-of-sequence token."""
    bench, request = end_of(part, [0, EOS, 1], ignore_eos=True, max_tokens=3)
    expect_equal(bench.text(request), "ab", "the text")
    expect_equal(
        request.finish_reason,
        FinishReason.LENGTH,
        "finish_reason",
        why="ignore_eos asks for as many tokens as max_tokens says.",
    )


@task("7.3")
def test_a_model_has_several_ends_of_sequence(part: ModuleType) -> None:
    """Each of a model's end-of-sequence tokens ends a request."""
    why = "Models have more than one: the end of a turn is another token than the end of a text."
    for end in (EOS, 7):
        bench = bench_of(part, "7.3", eos=frozenset({EOS, 7}))
        note(f"the end-of-sequence tokens are {EOS} and 7")
        request = bench.say([0, 1, end])
        bench.run()
        expect_equal(
            request.finish_reason, FinishReason.STOP, f"finish_reason after token {end}", why=why
        )
        expect_before(bench.text(request), "ab", f"the text before token {end}")


@task("7.3")
def test_a_stop_token(part: ModuleType) -> None:
    """One of the request's stop tokens ends it with "stop"; it is named and not shown."""
    for ignore_eos in (False, True):
        bench, request = end_of(part, "abcd", stop_token_ids=[2, 3], ignore_eos=ignore_eos)
        why = (
            "ignore_eos is about the model's end-of-sequence tokens. The client has asked for these."
            if ignore_eos
            else WHICH
        )
        what = f"finish_reason after a stop token, with ignore_eos={ignore_eos}"
        expect_equal(request.finish_reason, FinishReason.STOP, what, why=why)
        expect_before(bench.text(request), "ab", "the text before the stop token")
        expect_equal(
            request.stop_reason,
            2,
            "stop_reason",
            why="Of several stop tokens the client learns which one it was.",
        )


@task("7.3")
def test_the_last_of_many_stop_tokens(part: ModuleType) -> None:
    """Each of a thousand stop tokens ends a request, the last one too."""

    def stopped_at(count: int) -> str | int | None:
        others = range(300, 300 + count - 1)
        _, request = end_of(part, "abcd", stop_token_ids=[*others, 2], max_tokens=4)
        return request.stop_reason

    if stopped_at(MANY_STOPS) == 2:
        return
    count = next(n for n in range(1, MANY_STOPS + 1) if stopped_at(n) != 2)
    why = "A client may send many stop tokens. Each of them ends the answer."
    why += f" With {count - 1} of them the last one did, with {count} it does not." * (count > 1)
    what = f"stop_reason when token 2 is drawn, number {count} of the stop tokens"
    expect_equal(stopped_at(count), 2, what, why=why)


@task("7.3")
def test_a_stop_token_that_is_an_end_of_sequence_token(part: ModuleType) -> None:
    """A stop token is named even if it is an end-of-sequence token as well."""
    for ignore_eos in (False, True):
        bench, request = end_of(part, [0, 1, EOS], stop_token_ids=[EOS], ignore_eos=ignore_eos)
        expect_equal(request.finish_reason, FinishReason.STOP, "finish_reason", why=BOTH)
        expect_equal(request.stop_reason, EOS, "stop_reason", why=BOTH)
        expect_before(bench.text(request), "ab", "the text before it")


@task("7.3")
def test_a_stop_string(part: ModuleType) -> None:
    """A stop string ends the request at the token that completes it; it is named and not shown."""
    bench, request = end_of(part, "abcdeffff", stop=["de", "zz"])
    expect_before(bench.text(request), "abc", "the text before the stop string")
    expect_equal(request.finish_reason, FinishReason.STOP, "finish_reason", why=WHICH)
    expect_equal(request.stop_reason, "de", "stop_reason")
    expect_equal(
        request.num_output_tokens,
        5,
        "tokens that were generated",
        why="Every further token is computed in vain.",
    )


@task("7.3")
def test_the_stop_checker_hears_of_every_token(part: ModuleType) -> None:
    """With min_tokens=3 the fourth token may complete a stop string, whatever text came before."""
    bench = bench_of(part, "7.3")
    request = bench.say(tokens_of("éabcd"), stop=["ab"], min_tokens=3, max_tokens=9)
    bench.run()
    expect_equal(bench.text(request), "é", "the text; é is two tokens", why=EACH)
    expect_equal(request.stop_reason, "ab", "stop_reason", why=EACH)


@task("7.3")
def test_stop_beats_length(part: ModuleType) -> None:
    """If the last allowed token ends the answer by itself, the reason is "stop"."""
    for said, params in (
        ("abc", {"stop": ["c"]}),
        ("abc", {"stop": ["bc"]}),
        ("abc", {"stop_token_ids": [2]}),
        ([0, 1, EOS], {}),
    ):
        bench, request = end_of(part, said, max_tokens=3, **params)
        expect_equal(request.finish_reason, FinishReason.STOP, "finish_reason", why=FIRST)
        expect_equal(
            bench.ends(request), [FinishReason.STOP], "the reason in the output", why=FIRST
        )


@task("7.3")
def test_what_was_held_back_is_shown(part: ModuleType) -> None:
    """The start of a stop string that never came is shown when the request ends otherwise."""
    for said in ("ab", [0, 1, EOS], "abd"):
        bench, request = end_of(part, said, stop=["bc"], stop_token_ids=[3], max_tokens=len(said))
        expect_equal(bench.text(request), "ab", "the text, with 'b' held back for 'bc'", why=FLUSH)


@task("7.3")
def test_a_character_cut_by_the_end(part: ModuleType) -> None:
    """A character that the end cuts in two shows as one U+FFFD, not before the end."""
    for said in (tokens_of("aé")[:2], [*tokens_of("aé")[:2], EOS]):
        flushed: list[str] = []
        bench = bench_of(part, "7.3", detokenizer=partial(Counted, flushed))
        note(f"token {said[1]} is the first byte of é, which has two")
        bench.say(said, max_tokens=len(said))
        bench.run()
        texts = [output.text for output in bench.outputs]
        unasked = "" if flushed else " `flush` of the detokenizer was not called."
        why = (CUT + unasked) * ("".join(texts) == "a")
        first = ["a", ""] if len(said) == 3 else ["a", "\ufffd"]
        expect_equal(texts[:2], first, "the first two texts", why=why)
        expect_equal("".join(texts), "a\ufffd", "the whole text", why=why)


class Counted(Detokenizer):
    """flushed: gets an entry for each call of `flush`."""

    def __init__(self, flushed: list[str]) -> None:
        super().__init__(decode)
        self._flushed = flushed

    def flush(self) -> str:
        self._flushed.append("flush")
        return super().flush()


class Lagging:
    """A detokenizer that is sure of a letter only when the next token has come."""

    def __init__(self) -> None:
        self._letter = ""

    def push(self, token_id: int) -> str:
        letter, self._letter = self._letter, chr(ord("a") + token_id)
        return letter

    def flush(self) -> str:
        letter, self._letter = self._letter, ""
        return letter


@task("7.3")
def test_a_stop_string_completed_by_the_last_text(part: ModuleType) -> None:
    """A stop string that only the flushed end of the text completes is found, and not shown."""
    for said in ("abc", [0, 1, 2, EOS]):
        bench = bench_of(part, "7.3", detokenizer=Lagging)
        request = bench.say(said, stop=["bc"], max_tokens=len(said))
        bench.run()
        expect_equal(
            bench.text(request), "a", "the text; the detokenizer is a token behind", why=TAIL
        )
        expect_equal(request.finish_reason, FinishReason.STOP, "finish_reason", why=TAIL)
        expect_equal(request.stop_reason, "bc", "stop_reason", why=TAIL)
    bench = bench_of(part, "7.3", detokenizer=Lagging)
    request = bench.say("abcd", stop=["bc"], stop_token_ids=[3])
    bench.run()
    expect_equal(bench.text(request), "a", "the text, ended by a stop token", why=TAIL)
    expect_equal(request.stop_reason, "bc", "stop_reason", why=OVERRULED)
    bench = bench_of(part, "7.3", detokenizer=Lagging)
    request = bench.say("ab", stop=["a"], max_tokens=2)
    bench.run()
    expect_equal(bench.text(request), "", "the text; 'b' is flushed behind the stop 'a'", why=OVER)
    bench = bench_of(part, "7.3", detokenizer=Lagging)
    request = bench.say("abc", stop=["bd", "c"], max_tokens=3)
    bench.run()
    expect_equal(bench.text(request), "ab", "the text, with 'b' held back for 'bd'", why=BEFORE)
    bench = bench_of(part, "7.3", detokenizer=Lagging)
    request = bench.say("abc", stop=["bd"], max_tokens=3)
    bench.run()
    expect_equal(
        bench.text(request),
        "abc",
        "the text, with 'b' held back and 'c' flushed",
        why="What was held back comes before what flush adds.",
    )


@task("7.3")
def test_requests_have_their_own_ends(part: ModuleType) -> None:
    """Two requests in one batch end each in its own way, with texts of their own."""
    bench = bench_of(part, "7.3")
    first = bench.say("abcdef", stop=["de"])
    second = bench.say("xaybdcd", stop_token_ids=[2], max_tokens=9)
    bench.run()
    expect_equal([bench.text(first), bench.text(second)], ["abc", "xaybd"], "the texts")
    reasons = [first.stop_reason, second.stop_reason]
    expect_equal(reasons, ["de", 2], "what each of them stopped at")
