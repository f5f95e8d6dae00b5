"""Fields that vLLM's and OpenAI's clients send: what is honoured shows in the answer."""

import json
from typing import Any

import pytest

from solutions.api_server import large
from tests.server.conftest import LiveServer

MESSAGES = [{"role": "user", "content": "hello there"}]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": MESSAGES},
    TEXT: {"prompt": "hello there"},
}
SOME: dict[str, Any] = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}


def ask(live: LiveServer, path: str, **body: Any) -> Any:
    response = live.http.post(path, json={**BODIES[path], **SOME, **body})
    assert response.status_code == 200, response.text
    return response.json()


def refusal(live: LiveServer, path: str, **body: Any) -> Any:
    response = live.http.post(path, json={**BODIES[path], **SOME, **body})
    assert response.status_code == 400, response.text
    return response.json()["error"]


def chunks(live: LiveServer, path: str, **body: Any) -> list[Any]:
    asked = {**BODIES[path], **SOME, **body, "stream": True}
    with live.http.stream("POST", path, json=asked) as response:
        assert response.status_code == 200, response.read()
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def prompt_of(live: LiveServer, path: str) -> list[int]:
    ids: list[int] = (
        live.llm.encode_chat(MESSAGES)
        if path == CHAT
        else live.llm.tokenizer.encode(BODIES[TEXT]["prompt"])
    )
    return ids


# --- usage in every chunk ---


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("with_last", [True, False])
def test_every_chunk_has_the_usage_so_far(live: LiveServer, path: str, with_last: bool) -> None:
    options = {"include_usage": with_last, "continuous_usage_stats": True}
    told = chunks(live, path, stream_options=options, max_tokens=150)
    whole = ask(live, path, max_tokens=150)["usage"]
    usages = [chunk["usage"] for chunk in told]
    counts = [usage["completion_tokens"] for usage in usages]
    assert counts == sorted(counts)
    assert 1 <= counts[0] < 150  # a slow reader finds several tokens in a chunk, but not all
    for usage in usages:
        assert usage["prompt_tokens"] == whole["prompt_tokens"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert counts[-1] == whole["completion_tokens"] == 150
    assert [chunk["choices"] == [] for chunk in told].count(True) == int(with_last)


def test_without_it_only_the_last_chunk_has_usage(live: LiveServer) -> None:
    *told, last = chunks(live, CHAT, stream_options={"include_usage": True})
    assert all(chunk["usage"] is None for chunk in told)
    assert last["usage"]["completion_tokens"] == SOME["max_tokens"]
    assert "usage" not in chunks(live, CHAT, stream_options={"continuous_usage_stats": False})[0]


def test_an_echo_counts_in_every_chunk_what_it_counts_at_the_end(live: LiveServer) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"echo": True, "max_tokens": 0, "ignore_eos": False, "stream_options": options}
    told = chunks(live, TEXT, **body)
    assert [chunk["usage"]["completion_tokens"] for chunk in told] == [0] * len(told)


# --- token ids ---


@pytest.mark.parametrize("path", BODIES)
def test_token_ids_come_beside_the_text(live: LiveServer, path: str) -> None:
    answer = ask(live, path, return_token_ids=True, n=2, temperature=1, seed=4)
    for choice in answer["choices"]:
        text = choice["message"]["content"] if path == CHAT else choice["text"]
        assert live.llm.tokenizer.decode(choice["token_ids"]) == text
        assert len(choice["token_ids"]) == SOME["max_tokens"]
        holder = answer if path == CHAT else choice
        assert holder["prompt_token_ids"] == prompt_of(live, path)
    assert "token_ids" not in ask(live, path)["choices"][0]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("more", [{}, {"stop": ["zzzzqq"]}, {"logprobs": True}])
def test_streamed_token_ids_are_those_of_the_whole_answer(
    live: LiveServer, path: str, more: dict[str, Any]
) -> None:
    more = {**more, "seed": 2, "temperature": 1, "n": 2}
    if path == TEXT and "logprobs" in more:
        more["logprobs"] = 1
    whole = ask(live, path, return_token_ids=True, **more)
    told = chunks(live, path, return_token_ids=True, **more)
    joined: dict[int, list[int]] = {0: [], 1: []}
    prompts = 0
    for chunk in told:
        (choice,) = chunk["choices"]
        joined[choice["index"]] += choice["token_ids"]
        for holder in (chunk, choice):
            if "prompt_token_ids" in holder:
                prompts += 1
                assert holder["prompt_token_ids"] == prompt_of(live, path)
    assert [joined[index] for index in (0, 1)] == [
        choice["token_ids"] for choice in whole["choices"]
    ]
    assert prompts == (1 if path == CHAT else 2)


def test_the_token_that_ends_an_answer_is_among_them(live: LiveServer) -> None:
    stop = ask(live, TEXT, return_token_ids=True)["choices"][0]["token_ids"][3]
    (choice,) = ask(live, TEXT, return_token_ids=True, stop_token_ids=[stop])["choices"]
    assert choice["token_ids"][-1] == choice["stop_reason"] == stop


def test_an_echo_alone_has_no_token_of_its_own(live: LiveServer) -> None:
    body = {"echo": True, "max_tokens": 0, "return_token_ids": True}
    (choice,) = ask(live, TEXT, **body)["choices"]
    assert choice["token_ids"] == []
    assert choice["prompt_token_ids"] == prompt_of(live, TEXT)


# --- log-probabilities of the prompt, and of named tokens ---


@pytest.mark.parametrize("path", BODIES)
def test_the_prompt_has_log_probabilities(live: LiveServer, path: str) -> None:
    answer = ask(live, path, prompt_logprobs=2, n=2)
    prompt = prompt_of(live, path)
    holders = [answer] if path == CHAT else answer["choices"]
    assert len(holders) == (1 if path == CHAT else 2)
    for holder in holders:
        first, *rest = holder["prompt_logprobs"]
        assert first is None
        assert len(rest) == len(prompt) - 1
        for token, entry in zip(prompt[1:], rest, strict=True):
            own = entry[str(token)]
            assert next(iter(entry)) == str(token)
            assert own["logprob"] <= 0 < own["rank"]
            by_rank = {one["rank"]: one["logprob"] for one in entry.values()}
            assert {1, 2} <= by_rank.keys() <= {1, 2, own["rank"]}
            assert by_rank[1] >= by_rank[2] >= min(by_rank.values())
            assert (own["rank"] <= 2) == (len(entry) == 2)
        name = rest[0][str(prompt[1])]["decoded_token"]
        assert name == live.llm.tokenizer.decode_all(prompt[1:2])


def test_they_are_those_of_an_echo(live: LiveServer) -> None:
    told = ask(live, TEXT, prompt_logprobs=0)["choices"][0]["prompt_logprobs"]
    echoed = ask(live, TEXT, echo=True, logprobs=0)["choices"][0]["logprobs"]["token_logprobs"]
    for entry, logprob in zip(told[1:], echoed[1:], strict=False):
        (own,) = entry.values()
        assert own["logprob"] == pytest.approx(logprob, abs=1e-5)


def test_a_large_answer_is_written_in_slices_and_the_same(
    live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    body: dict[str, Any] = {"prompt_logprobs": 3, "n": 2, "return_token_ids": True, "logprobs": 1}
    for path in BODIES:
        asked = {**body, "logprobs": True} if path == CHAT else body
        small = ask(live, path, **asked)
        with monkeypatch.context() as patched:
            patched.setattr(large, "LARGE", 0)
            sliced = ask(live, path, **asked)
        for answer in (small, sliced):
            del answer["id"], answer["created"], answer["usage"]
        assert json.dumps(sliced) == json.dumps(small)


def test_several_prompts_have_their_own(live: LiveServer) -> None:
    answer = ask(live, TEXT, prompt=[[5, 6, 7], [8, 9]], prompt_logprobs=0, n=2)
    lengths = [len(choice["prompt_logprobs"]) for choice in answer["choices"]]
    assert lengths == [3, 3, 2, 2]


@pytest.mark.parametrize("path", BODIES)
def test_named_tokens_have_log_probabilities(live: LiveServer, path: str) -> None:
    named = [20, 30, 40]
    logprobs: Any = True if path == CHAT else 1
    (choice,) = ask(live, path, logprobs=logprobs, logprob_token_ids=named)["choices"]
    names = [live.llm.tokenizer.decode([token]) for token in named]
    if path == TEXT:
        for token, top in zip(
            choice["logprobs"]["tokens"], choice["logprobs"]["top_logprobs"], strict=True
        ):
            assert set(top) == {*names, token}
        return
    for entry in choice["logprobs"]["content"]:
        assert [top["token"] for top in entry["top_logprobs"]] == names


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"logprob_token_ids": [5]}, "logprob_token_ids"),
        (TEXT, {"logprob_token_ids": [5]}, "logprob_token_ids"),
        (TEXT, {"logprob_token_ids": [-1], "logprobs": 1}, "logprob_token_ids[0]"),
        (TEXT, {"logprob_token_ids": [10**7], "logprobs": 1}, "logprob_token_ids"),
        (TEXT, {"logprob_token_ids": [1] * 129, "logprobs": 1}, "logprob_token_ids"),
        (CHAT, {"logprob_token_ids": [5], "logprobs": True, "top_logprobs": 3}, "top_logprobs"),
        (CHAT, {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        (TEXT, {"prompt_logprobs": 21}, "prompt_logprobs"),
        (TEXT, {"min_tokens": 13}, "min_tokens"),
        (TEXT, {"min_tokens": -1}, "min_tokens"),
        (CHAT, {"web_search_options": {}}, "web_search_options"),
        (CHAT, {"continue_final_message": True}, "continue_final_message"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    live: LiveServer, path: str, body: dict[str, Any], param: str
) -> None:
    assert refusal(live, path, **body)["param"] == param


def test_at_least_so_many_tokens_are_generated(live: LiveServer) -> None:
    eos = live.llm.tokenizer.eos_token_id
    eager = {"logit_bias": {str(eos): 100}, "ignore_eos": False, "max_tokens": 20}
    for path in BODIES:
        assert ask(live, path, **eager)["usage"]["completion_tokens"] == 1
        assert ask(live, path, min_tokens=7, **eager)["usage"]["completion_tokens"] == 8


def test_a_context_that_is_too_short_is_told_in_the_usual_words(strict_live: LiveServer) -> None:
    live = strict_live
    length = live.llm.max_model_len
    for path, param in ((CHAT, "max_tokens"), (TEXT, "max_tokens")):
        error = refusal(live, path, max_tokens=length)
        assert error["message"].startswith(
            f"This model's maximum context length is {length} tokens. However, you requested "
        )
        assert (error["code"], error["param"]) == ("context_length_exceeded", param)
