"""LLMEngine as its callers see it."""

import pickle
from collections.abc import Iterator
from dataclasses import fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.errors import (
    ConfigError,
    ContextLengthError,
    EngineOverloadedError,
    InvalidRequestError,
    KVPoolTooSmallError,
    ModelError,
)
from yaie.core.output import Submitted
from yaie.core.request import FinishReason, Request

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture
def engine(folder: Path) -> LLMEngine:
    return LLMEngine(model=str(folder), num_blocks=64, max_waiting=20)


def run(engine: LLMEngine) -> None:
    while engine.has_work:
        engine.step()
        engine.check()


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_is_refused(engine: LLMEngine, prompt: Any) -> None:
    with pytest.raises(InvalidRequestError, match="prompt is empty"):
        engine.add_request(prompt)


@pytest.mark.parametrize("token", [-1, 384, 1.0, "a", True])
def test_a_token_that_the_model_does_not_have_is_refused(engine: LLMEngine, token: Any) -> None:
    with pytest.raises(InvalidRequestError, match="0 to 383"):
        engine.add_request([1, token])


def test_a_prompt_beyond_the_context_names_both_numbers(engine: LLMEngine) -> None:
    with pytest.raises(
        ContextLengthError, match=r"maximum context length is 1024 .*1024 in the prompt"
    ):
        engine.add_request([5] * 1024)
    with pytest.raises(ContextLengthError, match=r"1024 .*requested 1025 .*10 in the prompt, 1015"):
        engine.add_request([5] * 10, SamplingParams(max_tokens=1015))


def test_a_request_that_the_pool_could_never_hold_is_refused_at_once(folder: Path) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=4)
    with pytest.raises(KVPoolTooSmallError, match="64"):
        engine.add_request([5] * 40, SamplingParams(max_tokens=26))
    engine.add_request([5] * 40, SamplingParams(max_tokens=25, ignore_eos=True))
    run(engine)  # the last token needs no slot: this fits to the token


def test_without_max_tokens_the_output_is_as_long_as_fits(folder: Path) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=4)
    (request,) = engine.add_request([5] * 40, SamplingParams(ignore_eos=True))
    run(engine)
    assert request.num_output_tokens == 25
    assert request.finish_reason is FinishReason.LENGTH


def test_a_full_queue_refuses_and_keeps_nothing(engine: LLMEngine) -> None:
    for _ in range(20):
        engine.add_request([5], GREEDY)
    with pytest.raises(EngineOverloadedError):
        engine.add_request([5], GREEDY)
    assert engine.stats()["num_waiting"] == 20
    run(engine)


@pytest.mark.parametrize("length", [5, 16, 31, 32, 33])
def test_n_outputs_compute_their_prompt_once(engine: LLMEngine, length: int) -> None:
    params = SamplingParams(temperature=1, seed=3, n=4, max_tokens=6, ignore_eos=True)
    requests = engine.add_request(list(range(5, 5 + length)), params)
    run(engine)
    assert [request.num_cached_tokens for request in requests] == [0] + 3 * [length - 1]
    assert len({tuple(request.output_token_ids) for request in requests}) == 4
    assert engine.stats()["used_blocks"] == 0


def test_n_outputs_are_those_of_single_requests_with_their_seeds(folder: Path) -> None:
    params = SamplingParams(temperature=1, seed=3, n=3, max_tokens=10, ignore_eos=True)
    together = LLMEngine(model=str(folder), num_blocks=64)
    siblings = together.add_request(list(range(40)), params)
    run(together)
    for sibling in siblings:
        alone = LLMEngine(model=str(folder), num_blocks=64)
        single = SamplingParams(temperature=1, seed=sibling.seed, max_tokens=10, ignore_eos=True)
        (request,) = alone.add_request(list(range(40)), single)
        run(alone)
        assert request.output_token_ids == sibling.output_token_ids


def test_a_seeded_draw_does_not_depend_on_the_batch(engine: LLMEngine) -> None:
    seeded = SamplingParams(temperature=0.9, top_p=0.9, top_k=40, seed=11, max_tokens=20)
    (alone,) = engine.add_request([7, 8, 9], seeded)
    run(engine)
    engine.reset_prefix_cache()
    for index in range(8):
        other = SamplingParams(temperature=1.5, seed=index, presence_penalty=1, max_tokens=9)
        engine.add_request([index + 20] * (index + 1), other)
    (crowded,) = engine.add_request([7, 8, 9], seeded)
    run(engine)
    assert crowded.output_token_ids == alone.output_token_ids


def test_requests_without_a_seed_repeat_with_the_engine_s(folder: Path) -> None:
    def draw(seed: int) -> list[str]:
        engine = LLMEngine(model=str(folder), num_blocks=64, seed=seed)
        return engine.generate(["a b", "a b"], temperature=1, max_tokens=16, ignore_eos=True)

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert len(set(draw(1))) == 2


def test_generate_takes_a_text_tokens_or_a_list_of_either(engine: LLMEngine) -> None:
    ids = engine.tokenizer.encode("A paged KV")
    one = engine.generate("A paged KV", GREEDY)
    assert len(one) == 1
    assert engine.generate(ids, GREEDY) == one
    assert engine.generate([ids, "A paged KV"], GREEDY) == one * 2
    assert len(engine.generate(["x", "y"], temperature=1, n=3, max_tokens=4)) == 6


def test_generate_takes_parameters_for_each_prompt(engine: LLMEngine) -> None:
    few, more = (SamplingParams(temperature=0, max_tokens=number) for number in (2, 5))
    prompts = [[5, 6, 7], [8] * 9]
    alone = [engine.generate(prompts[0], few), engine.generate(prompts[1], more)]
    assert engine.generate(prompts, [few, more]) == [*alone[0], *alone[1]]
    assert engine.generate([5, 6, 7], [few]) == alone[0]
    with pytest.raises(InvalidRequestError, match="2 entries for 1 prompts"):
        engine.generate([5, 6, 7], [few, more])
    for wrong in ({"max_tokens": 3}, [few, "greedy"]):
        with pytest.raises(InvalidRequestError, match="give SamplingParams, or its fields by name"):
            engine.generate(prompts, wrong)  # type: ignore[arg-type]
    assert not engine.has_work


def test_generate_refuses_all_if_one_prompt_is_bad(engine: LLMEngine) -> None:
    with pytest.raises(InvalidRequestError):
        engine.generate(["good", ""], GREEDY)
    assert not engine.has_work


def test_a_parameter_that_does_not_exist_is_named(engine: LLMEngine) -> None:
    with pytest.raises(InvalidRequestError, match="temprature"):
        engine.generate("x", temprature=0)


MESSAGES = [{"role": "user", "content": "Hello"}]


def test_a_streamed_chat_is_the_whole_one_in_pieces(engine: LLMEngine) -> None:
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 30}
    whole = engine.chat_completion(MESSAGES, **options)
    chunks = list(engine.chat_completion_stream(MESSAGES, **options))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    text = "".join(delta.get("content") or "" for delta in deltas)
    assert text == whole["choices"][0]["message"]["content"]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + [whole["choices"][0]["finish_reason"]]


def test_usage_counts_prompt_output_and_cached_tokens(engine: LLMEngine) -> None:
    long = [{"role": "user", "content": "Hello " * 40}]
    engine.chat_completion(long, temperature=0, max_tokens=4)
    usage = engine.chat_completion(long, temperature=0, max_tokens=4)["usage"]
    assert usage["completion_tokens"] <= 4
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert cached == (usage["prompt_tokens"] - 1) // 16 * 16


def test_closing_a_stream_ends_its_request(engine: LLMEngine) -> None:
    stream = engine.chat_completion_stream(MESSAGES, temperature=0, ignore_eos=True)
    next(iter(stream))
    stream.close()  # type: ignore[attr-defined]
    assert not engine.has_work
    assert engine.stats()["used_blocks"] == 0


def test_a_stop_string_ends_the_text_before_it(engine: LLMEngine) -> None:
    (whole,) = engine.generate("Hello", temperature=0, max_tokens=30, ignore_eos=True)
    stop = whole[8:11]
    (cut,) = engine.generate("Hello", temperature=0, max_tokens=30, ignore_eos=True, stop=stop)
    assert cut == whole[: whole.index(stop)]


BAD_MESSAGES: list[tuple[Any, str]] = [
    ([], "messages"),
    ("hi", "messages"),
    (["hi"], "messages[0]"),
    ([{"role": "robot", "content": "x"}], "messages[0].role"),
    ([{"content": "x"}], "messages[0].role"),
    ([*MESSAGES, {"role": "user"}], "messages[1].content"),
    ([{"role": "user", "content": 5}], "messages[0].content"),
    ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
    ([{"role": "user", "content": [{"type": "text", "text": 1}]}], "messages[0].content[0].text"),
]


@pytest.mark.parametrize(("messages", "param"), BAD_MESSAGES)
def test_a_bad_message_is_refused_by_its_place(
    engine: LLMEngine, messages: Any, param: str
) -> None:
    with pytest.raises(InvalidRequestError) as error:
        engine.encode_chat(messages)
    assert error.value.param == param


def test_an_image_is_refused_with_the_reason(engine: LLMEngine) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    with pytest.raises(InvalidRequestError, match=r"'image_url'.*served as text only"):
        engine.encode_chat([{"role": "user", "content": [image]}])


def test_text_parts_are_joined_and_developer_is_system(engine: LLMEngine) -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    assert engine.encode_chat([{"role": "user", "content": parts}]) == engine.encode_chat(MESSAGES)
    old, new = ([{"role": role, "content": "x"}, *MESSAGES] for role in ("system", "developer"))
    assert engine.encode_chat(new) == engine.encode_chat(old)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        LLMEngine(model=str(tmp_path))


def test_a_pool_that_memory_cannot_hold_says_which_setting_to_change(folder: Path) -> None:
    with pytest.raises(ConfigError, match="kv_memory_share"):
        LLMEngine(model=str(folder), kv_memory_share=1e-12)


def test_prompts_wait_whole_without_chunked_prefill(folder: Path) -> None:
    engine = LLMEngine(model=str(folder), chunked_prefill=False, token_budget=16, num_blocks=128)
    (request,) = engine.add_request([5] * 700, GREEDY)
    engine.step()
    assert request.num_computed_tokens == 700


def stream(engine: LLMEngine, prompt: str) -> Iterator[str]:
    """The pieces of an answer as they come."""
    messages = [{"role": "user", "content": prompt}]
    for chunk in engine.chat_completion_stream(messages, temperature=0, max_tokens=12):
        yield chunk["choices"][0]["delta"].get("content") or ""


def test_two_streams_consumed_in_turn_keep_their_own_text(folder: Path) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=60)
    alone = ["".join(stream(engine, prompt)) for prompt in ("one", "the other, longer")]
    streams = [stream(engine, prompt) for prompt in ("one", "the other, longer")]
    both = ["", ""]
    for pieces in zip_longest(*streams, fillvalue=""):
        both = [text + piece for text, piece in zip(both, pieces, strict=True)]
    assert both == alone
    late = [stream(engine, prompt) for prompt in ("one", "the other, longer")]
    first = next(late[0])
    rest = "".join(late[1])  # steps the other's request to its end as well
    assert [first + "".join(late[0]), rest] == alone


def test_a_request_keeps_its_outputs_while_generate_runs(folder: Path) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=60)
    params = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
    (request,) = engine.add_request([5, 6, 7], params)
    engine.generate([[9, 8], [7, 6]], params)
    assert request.is_finished
    assert engine.has_work  # its outputs have not been taken
    outputs = engine.step()
    assert [output.request_id for output in outputs] == [request.request_id] * 10
    assert [token for output in outputs for token in output.token_ids] == request.output_token_ids
    assert outputs[-1].finish_reason is FinishReason.LENGTH
    assert not engine.has_work


def test_automatic_ids_meet_no_id_that_a_client_may_choose(folder: Path) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=60)
    params = SamplingParams(temperature=0, max_tokens=2)
    for number in range(9):
        engine.add_request([5, 6], params, request_id=f"request-{number}")
    ids = {engine.add_request([5, 6], params)[0].request_id for _ in range(9)}
    assert len(ids) == 9
    with pytest.raises(InvalidRequestError, match="must not begin with '#'"):
        engine.add_request([5, 6], params, request_id=ids.pop())


def test_an_output_holds_all_that_a_reply_needs_and_can_be_sent(folder: Path) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=60)
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, logprobs=1)
    (request,) = engine.add_request([5] * 20, params)
    outputs = [output for _ in range(3) for output in engine.step()]
    assert pickle.loads(pickle.dumps(outputs)) == outputs
    last = outputs[-1]
    assert (last.num_prompt_tokens, last.num_output_tokens, last.finish_reason) == (20, 3, "length")
    assert [len(output.logprobs or ()) for output in outputs] == [1, 1, 1]
    assert not any(isinstance(getattr(last, item.name), Request) for item in fields(last))
    assert Submitted.of(request).prompt_token_ids == [5] * 20


def test_nothing_is_kept_of_requests_whose_first_turn_nobody_asks_for(engine: LLMEngine) -> None:
    """Callers of `generate` never call `take_started`."""
    engine.generate([[5, 6], [7]], GREEDY)
    stream = engine.chat_completion_stream([{"role": "user", "content": "hi"}], max_tokens=5)
    next(stream)
    stream.close()
    assert engine.take_started() == []
    engine.add_request([5, 6], GREEDY)
    engine.step()
    assert len(engine.take_started()) == 1
