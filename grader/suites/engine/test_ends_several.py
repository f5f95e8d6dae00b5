"""Task 7.3: what an output says, several tokens of one request in one step, and any answer at all."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, task
from grader.kit.toy import Settings
from grader.suites.engine.bench import EOS, bench_of, tokens_of
from grader.suites.engine.ends import right_end
from yaie.core.request import FinishReason

SEVERAL = (
    "With speculative decoding a step gives a request as many tokens as drafts were accepted, and one. "
    "Each of them is treated as if it had come alone."
)
EARLY = (
    "Token 4 is the fifth of 7. When it is judged, `token_ids` of the request holds all three tokens of "
    "the step already. Each is treated as if it had come alone: count it and those before it."
)
AFTER = (
    "An answer is over with the token that ends it. What the step sampled after that is not part "
    "of it: no text, not in the output, not in the request (`drop_last`), not in the usage."
)
BELONGS = (
    "`Request.drop_last` takes back the tokens and what belongs to them. If only the tokens go, the "
    "output gets the log-probabilities of tokens that were never said."
)
DROP_FIRST = (
    "finish files the blocks for others to find: drop what was never said before you call it."
)


@task("7.3")
def test_an_output_is_a_message(part: ModuleType) -> None:
    """An output names its request and brings what a reply needs besides the text."""
    why = (
        "Callers get no Request, so the counts and the stop reason travel in the output, as they are "
        "after the last of its tokens."
    )
    bench = bench_of(part, "7.3", Settings(block_size=2))
    first = bench.say("a", prompt=[5, 6, 7, 8, 9], max_tokens=1)
    bench.run()
    request = bench.say("abcd", prompt=[5, 6, 7, 8, 9], stop=["c"])
    bench.run()
    expect_equal([bench.text(first), bench.text(request)], ["a", "ab"], "the texts")
    outputs = bench.of(request)
    counts = [output.num_output_tokens for output in outputs]
    expect_equal(counts, [1, 2, 3], "num_output_tokens, output by output", why=why)
    cached = [output.num_cached_tokens for output in outputs]
    expect_equal(cached, [4, 4, 4], "num_cached_tokens, with a prompt that was seen", why=why)
    reasons = [output.stop_reason for output in outputs]
    expect_equal(reasons, [None, None, "c"], "stop_reason, output by output", why=why)


@task("7.3")
def test_several_tokens_of_a_step_are_all_shown(part: ModuleType) -> None:
    """An output holds all tokens that the step gave its request, and their text."""
    bench = bench_of(part, "7.3")
    bench.draft(2)
    request = bench.say("abcdefg", max_tokens=7)
    bench.run()
    got = request.finish_reason, request.num_output_tokens
    why = SEVERAL
    if got == (FinishReason.LENGTH, 5):
        why = EARLY
    what = "finish_reason and number of output tokens, with max_tokens=7"
    expect_equal(got, (FinishReason.LENGTH, 7), what, why=why)
    expect_equal(bench.text(request), "abcdefg", "the text", why=SEVERAL)
    told = [output.token_ids for output in bench.outputs]
    right = [[0], [1, 2, 3], [4, 5, 6]]
    expect_equal(told, right, "the tokens, output by output", why=SEVERAL)


@task("7.3")
def test_a_character_of_several_tokens_in_one_step(part: ModuleType) -> None:
    """A character whose bytes come in one step is shown whole; one that is cut waits."""
    bench = bench_of(part, "7.3")
    bench.draft(1)
    bench.say([*tokens_of("aé🙂")], max_tokens=7)
    bench.run()
    texts = [output.text for output in bench.outputs]
    expect_equal(texts, ["a", "é", "", "🙂"], "the text, output by output", why=SEVERAL)


@task("7.3")
def test_the_end_in_the_middle_of_a_step(part: ModuleType) -> None:
    """A token that ends the request drops those that the same step sampled after it."""
    for name, said, params, reason in (
        ("an end-of-sequence token", [0, 1, EOS, 3, 4], {}, FinishReason.STOP),
        ("a stop token", [0, 1, 2, 3, 4], {"stop_token_ids": [2]}, FinishReason.STOP),
        ("max_tokens", [0, 1, 2, 3, 4], {"max_tokens": 3}, FinishReason.LENGTH),
        ("a stop string", [0, 1, 2, 3, 4], {"stop": ["c"]}, FinishReason.STOP),
    ):
        bench = bench_of(part, "7.3")
        bench.draft(3)
        request = bench.say(said, logprobs=0, **params)
        bench.run()
        text = "abc" if name == "max_tokens" else "ab"
        expect_equal(bench.text(request), text, f"the text, ended by {name}", why=AFTER)
        expect_equal(request.finish_reason, reason, f"the reason of {name}", why=AFTER)
        expect_equal(request.output_token_ids, said[:3], "the tokens of the request", why=AFTER)
        left = bench.scheduler.left.get(request)
        what = "its output tokens at the moment when `finish` tells the scheduler of the end"
        expect_equal(left, said[:3], what, why=DROP_FIRST)
        last = bench.outputs[-1]
        expect_equal(last.token_ids, said[1:3], "the tokens of the last output", why=AFTER)
        expect_equal(last.num_output_tokens, 3, "num_output_tokens of the last output", why=AFTER)
        known = [entry.token_id for entry in last.logprobs or ()]
        what = "the tokens that the last output has log-probabilities of"
        expect_equal(known, said[1:3], what, why=BELONGS)


@task("7.3")
def test_an_end_without_text(part: ModuleType) -> None:
    """A step that brings no text, as its first token ends the request, drops the others all the same."""
    bench = bench_of(part, "7.3")
    bench.draft(3)
    request = bench.say([0, EOS, 2, 3])
    bench.run()
    expect_equal(request.output_token_ids, [0, EOS], "the tokens of the request", why=AFTER)
    counted = bench.outputs[-1].num_output_tokens
    expect_equal(counted, 2, "num_output_tokens of the last output", why=AFTER)


@task("7.3")
def test_a_stop_string_across_two_tokens_of_a_step(part: ModuleType) -> None:
    """A stop string that begins and ends within one step is found at the token that completes it."""
    bench = bench_of(part, "7.3")
    bench.draft(4)
    request = bench.say("abcdeffff", stop=["cd"])
    bench.run()
    expect_equal(bench.text(request), "ab", "the text before the stop string", why=SEVERAL)
    expect_equal(request.stop_reason, "cd", "stop_reason", why=SEVERAL)
    expect_equal(request.num_output_tokens, 4, "tokens that were generated", why=AFTER)


@task("7.3")
def test_a_rejected_draft_is_never_seen(part: ModuleType) -> None:
    """Only what update has put into token_ids counts, whatever the plan had guessed."""
    bench = bench_of(part, "7.3")
    bench.draft(1, 2)
    request = bench.say("abcdef", max_tokens=6)
    bench.run()
    expect_equal(bench.text(request), "abcdef", "the text, with two wrong drafts a step")


LETTERS = st.sampled_from([*tokens_of("ab"), *tokens_of("é"), EOS])
STRINGS = st.sampled_from(["a", "b", "ab", "ba", "aab", "é", "éa"])


def some(values: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=most).map(tuple)


PARAMS: Callable[..., st.SearchStrategy[dict[str, Any]]] = st.fixed_dictionaries
ANY_PARAMS = PARAMS(
    {"max_tokens": st.integers(1, 8)},
    optional={
        "stop": some(STRINGS, 2),
        "stop_token_ids": some(LETTERS, 1),
        "ignore_eos": st.booleans(),
    },
)


@task("7.3")
@examples(100)
@given(said=st.lists(LETTERS, max_size=8), num_drafts=st.integers(0, 3), params=ANY_PARAMS)
def test_any_answer(
    part: ModuleType, said: list[int], num_drafts: int, params: dict[str, Any]
) -> None:
    """Whatever is said and asked for: text, reason and stop_reason are those of the whole text."""
    bench = bench_of(part, "7.3")
    if num_drafts:
        bench.draft(num_drafts)
    request = bench.say(said, **params)
    bench.run()
    end = right_end(said, request.params, request.max_tokens)
    expect_equal(tuple(request.output_token_ids), end.tokens, "the tokens that were generated")
    expect_equal(bench.text(request), end.text, "the text")
    expect_equal(request.finish_reason, end.reason, "finish_reason")
    expect_equal(request.stop_reason, end.stop_reason, "stop_reason")
    told = [token for output in bench.outputs for token in output.token_ids]
    expect_equal(tuple(told), end.tokens, "the tokens in the outputs")
    last = bench.outputs[-1]
    expect_equal(bench.ends(request), [end.reason], "reasons in the outputs: one")
    expect(last.finish_reason is end.reason, "the reason is not in the last output")
