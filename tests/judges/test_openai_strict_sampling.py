"""The official client, strict: every parameter of how tokens are drawn has its effect.

The model is tiny and random, so its text is noise; what a parameter must do to noise is exact all the
same. `ignore_eos` keeps it from ending at once.
"""

from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.judges.asking import ENDPOINTS, Ask, chat, complete, one, text, texts
from tests.server.conftest import LiveServer

both = pytest.mark.parametrize("ask", ENDPOINTS, ids=["chat", "completions"])
HOT = {"temperature": 2, "max_tokens": 32}


@both
def test_temperature_zero_is_greedy_and_two_is_not(client: OpenAI, ask: Ask) -> None:
    greedy = one(ask(client))
    assert one(ask(client, seed=5)) == greedy
    assert one(ask(client, temperature=2, seed=5)) != greedy


@both
@pytest.mark.parametrize(
    "narrowed",
    [{"top_p": 1e-9}, {"extra": {"top_k": 1}}, {"extra": {"min_p": 1}}],
    ids=["top_p", "top_k", "min_p"],
)
def test_draws_from_the_most_likely_token_alone_are_greedy(
    client: OpenAI, ask: Ask, narrowed: dict[str, object]
) -> None:
    assert one(ask(client, **HOT, seed=5, **narrowed)) == one(ask(client, max_tokens=32))


@both
@pytest.mark.parametrize(
    "off",
    [{"top_p": 1}, {"extra": {"top_k": -1}}, {"extra": {"top_k": 0}}, {"extra": {"min_p": 0}}],
    ids=["top_p", "top_k=-1", "top_k=0", "min_p"],
)
def test_filters_that_are_off_change_nothing(
    client: OpenAI, ask: Ask, off: dict[str, object]
) -> None:
    assert one(ask(client, **HOT, seed=5, **off)) == one(ask(client, **HOT, seed=5))


@both
def test_seed_repeats_the_text_and_another_seed_does_not(client: OpenAI, ask: Ask) -> None:
    first = one(ask(client, **HOT, seed=11))
    assert one(ask(client, **HOT, seed=11)) == first
    assert one(ask(client, **HOT, seed=12)) != first
    assert len({one(ask(client, **HOT)) for _ in range(3)}) == 3


@both
def test_n_gives_different_texts_that_the_seed_repeats(client: OpenAI, ask: Ask) -> None:
    answer = ask(client, **HOT, seed=3, n=4)
    assert len(set(texts(answer))) == 4
    assert texts(ask(client, **HOT, seed=3, n=4)) == texts(answer)
    assert texts(answer)[0] == one(ask(client, **HOT, seed=3))
    assert answer.usage.completion_tokens == 4 * 32
    assert answer.usage.prompt_tokens == ask(client).usage.prompt_tokens


def test_streamed_choices_are_those_of_the_whole_answer(client: OpenAI) -> None:
    joined = ["", "", ""]
    for chunk in chat(client, **HOT, seed=3, n=3, stream=True):
        (choice,) = chunk.choices
        joined[choice.index] += text(choice)
    assert joined == texts(chat(client, **HOT, seed=3, n=3))


@both
def test_stop_strings_end_the_text_and_are_left_out(client: OpenAI, ask: Ask) -> None:
    whole = one(ask(client))
    late, early = whole[9:12], whole[4:6]
    for stop in (late, [late], [late, early, "never"]):
        answer = ask(client, stop=stop)
        wanted = min(whole.index(it) for it in ([stop] if isinstance(stop, str) else stop)
                     if it in whole)  # fmt: skip
        assert one(answer) == whole[:wanted]
        assert answer.choices[0].finish_reason == "stop"
        assert answer.choices[0].stop_reason in stop


@both
def test_stop_token_ends_the_text(client: OpenAI, live: LiveServer, ask: Ask) -> None:
    letter = live.llm.tokenizer.encode("x")[0]
    answer = ask(client, logit_bias={str(letter): 100}, extra={"stop_token_ids": [letter]})
    assert one(answer) == ""
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].stop_reason == letter
    assert answer.usage.completion_tokens == 1


@both
def test_end_of_sequence_ends_the_text_unless_ignored(
    client: OpenAI, live: LiveServer, ask: Ask
) -> None:
    ending = {str(live.llm.tokenizer.eos_token_id): 100}
    ended = ask(client, logit_bias=ending, extra={"ignore_eos": False})
    assert (one(ended), ended.choices[0].finish_reason) == ("", "stop")
    ignored = ask(client, logit_bias=ending, extra={"ignore_eos": True})
    assert ignored.usage.completion_tokens == 24
    assert ignored.choices[0].finish_reason == "length"


@both
def test_length_ends_the_text_after_exactly_so_many_tokens(client: OpenAI, ask: Ask) -> None:
    for limit in (1, 7):
        answer = ask(client, max_tokens=limit)
        assert answer.usage.completion_tokens == limit
        assert answer.choices[0].finish_reason == "length"


def test_max_completion_tokens_does_what_max_tokens_did(client: OpenAI) -> None:
    answer = chat(client, max_tokens=openai.omit, max_completion_tokens=5)
    assert answer.usage.completion_tokens == 5


def test_without_a_limit_a_completion_has_sixteen_tokens_and_a_chat_what_fits(
    client: OpenAI, live: LiveServer
) -> None:
    assert complete(client, max_tokens=openai.omit).usage.completion_tokens == 16
    ending = {str(live.llm.tokenizer.eos_token_id): -100}
    usage = chat(client, "x " * 400, max_tokens=openai.omit, logit_bias=ending).usage
    assert usage.total_tokens == live.llm.max_model_len


@both
def test_logit_bias_forces_and_forbids_tokens(client: OpenAI, live: LiveServer, ask: Ask) -> None:
    letters = {letter: str(live.llm.tokenizer.encode(letter)[0]) for letter in "xyz"}
    assert one(ask(client, logit_bias={letters["x"]: 100})) == "x" * 24
    among = {letters["x"]: 100, letters["y"]: 100, letters["z"]: 100}
    assert set(one(ask(client, **HOT, seed=1, logit_bias=among))) <= set("xyz")
    without = {**among, letters["y"]: -100}
    assert set(one(ask(client, **HOT, seed=1, logit_bias=without))) <= set("xz")


@both
def test_logit_bias_of_an_equal_amount_for_all_changes_nothing(
    client: OpenAI, live: LiveServer, ask: Ask
) -> None:
    everything = {str(token): 5 for token in range(live.llm.tokenizer.vocab_size)}
    assert one(ask(client, logit_bias=everything)) == one(ask(client))


@both
@pytest.mark.parametrize(
    ("penalty", "reward"),
    [
        ({"presence_penalty": 2}, {"presence_penalty": -2}),
        ({"frequency_penalty": 2}, {"frequency_penalty": -2}),
        ({"extra": {"repetition_penalty": 3}}, {"extra": {"repetition_penalty": 0.5}}),
    ],
    ids=["presence", "frequency", "repetition"],
)
def test_penalties_make_a_text_more_varied_and_rewards_less(
    client: OpenAI, ask: Ask, penalty: dict[str, Any], reward: dict[str, Any]
) -> None:
    def variety(**options: Any) -> int:
        answer = ask(client, temperature=1, seed=4, max_tokens=64, n=8, **options)
        return sum(len(set(said)) for said in texts(answer))

    assert variety(**penalty) > variety() > variety(**reward)


def test_truncated_prompt_is_its_end(client: OpenAI, live: LiveServer) -> None:
    ids = live.llm.tokenizer.encode("a prompt that is much longer than ten tokens are", False)
    answer = complete(client, ids, extra={"truncate_prompt_tokens": 10})
    assert answer.usage.prompt_tokens == 10
    assert one(answer) == one(complete(client, ids[-10:]))
    asked = chat(client, "a prompt that is much longer " * 3, extra={"truncate_prompt_tokens": 10})
    assert asked.usage.prompt_tokens == 10


def test_truncation_to_what_fits_saves_a_prompt_that_is_too_long(
    client: OpenAI, live: LiveServer
) -> None:
    ids = [7, 8, 9] * live.llm.max_model_len
    with pytest.raises(openai.BadRequestError):
        complete(client, ids)
    usage = complete(client, ids, extra={"truncate_prompt_tokens": -1}).usage
    assert usage.total_tokens <= live.llm.max_model_len
    assert usage.completion_tokens == 24
