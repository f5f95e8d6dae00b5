"""`/tokenize`, `/detokenize` and `/tokenizer_info` as clients of vLLM know them."""

from typing import Any

import pytest

from tests.models.tiny import CHAT_TEMPLATE
from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine

QUESTION = [{"role": "user", "content": "hello"}]


def tokenize(live: LiveServer, **body: Any) -> dict[str, Any]:
    answer = live.http.post("/tokenize", json=body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def detokenize(live: LiveServer, tokens: list[int]) -> str:
    answer = live.http.post("/detokenize", json={"tokens": tokens})
    assert answer.status_code == 200, answer.text
    prompt: str = answer.json()["prompt"]
    return prompt


def test_a_text_has_the_tokens_that_the_engine_gives_it(live: LiveServer) -> None:
    told = tokenize(live, prompt="hello 日本語")
    assert told["tokens"] == live.llm.tokenizer.encode("hello 日本語")
    assert told["count"] == len(told["tokens"])
    assert told["max_model_len"] == live.llm.max_model_len
    assert told["token_strs"] is None


def test_a_conversation_has_the_tokens_of_its_prompt(live: LiveServer) -> None:
    told = tokenize(live, messages=QUESTION, model="tiny-llama")
    assert told["tokens"] == live.llm.encode_chat(QUESTION)
    body = {"messages": QUESTION, "max_tokens": 1}
    usage = live.http.post("/v1/chat/completions", json=body).json()["usage"]
    assert told["count"] == usage["prompt_tokens"]


def test_the_prompt_may_end_before_the_assistant_begins(live: LiveServer) -> None:
    whole = tokenize(live, messages=QUESTION)["tokens"]
    ended = tokenize(live, messages=QUESTION, add_generation_prompt=False)["tokens"]
    assert whole[: len(ended)] == ended
    assert len(ended) < len(whole)


def test_text_and_tokens_are_each_others_inverse_special_tokens_included(live: LiveServer) -> None:
    for text in ("hello", "naïve café 🙂", "<|user|>\nhi<|end|>", "", "tabs\tand\nlines"):
        told = tokenize(live, prompt=text, add_special_tokens=False)
        assert detokenize(live, told["tokens"]) == text
    special = tokenize(live, prompt="<|end|>", add_special_tokens=False)["tokens"]
    assert special == [live.llm.tokenizer.eos_token_id]


def test_tokens_are_spelled_if_asked_for(live: LiveServer) -> None:
    told = tokenize(live, prompt="hello<|end|>", return_token_strs=True)
    assert len(told["token_strs"]) == told["count"]
    assert told["token_strs"][-1] == "<|end|>"
    assert "".join(told["token_strs"][:-1]) == "hello"


def test_a_router_may_name_what_happens_anyway(live: LiveServer) -> None:
    told = tokenize(live, messages=QUESTION, continue_final_message=False, model="tiny-llama")
    assert told["count"] > 0


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", [], 400, None),
        ("/tokenize", {"prompt": 3}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": QUESTION}, 400, "prompt"),
        ("/tokenize", {"prompt": "x" * (2**20 + 1)}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "model": "gpt-4"}, 404, "model"),
        ("/tokenize", {"messages": []}, 400, "messages"),
        ("/tokenize", {"messages": [{"role": "user"}]}, 400, "messages[0].content"),
        ("/tokenize", {"messages": [{"role": "x", "content": ""}]}, 400, "messages[0].role"),
        ("/tokenize", {"messages": QUESTION, "continue_final_message": True}, 400,
         "continue_final_message"),
        ("/detokenize", {"tokens": [1, -1]}, 400, "tokens[1]"),
        ("/detokenize", {"tokens": [1, 10**6]}, 400, "tokens[1]"),
        ("/detokenize", {"tokens": ["a"]}, 400, "tokens[0]"),
        ("/detokenize", {"tokens": [1], "model": "gpt-4"}, 404, "model"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field(
    live: LiveServer, path: str, body: Any, status: int, param: str | None
) -> None:
    answer = live.http.post(path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param


def test_the_tokenizer_is_described(live: LiveServer) -> None:
    told = live.http.get("/tokenizer_info").json()
    assert told["chat_template"] == CHAT_TEMPLATE
    assert told["eos_token"] == "<|end|>"
    assert told["model_max_length"] == live.llm.max_model_len
    assert told["vocab_size"] == live.llm.tokenizer.vocab_size


def test_while_the_model_loads_all_three_are_503() -> None:
    import threading

    loaded = threading.Event()

    def load() -> FakeEngine:
        loaded.wait(30)
        return FakeEngine()

    with serving(load, wait=False) as server:
        calls = [
            server.http.post("/tokenize", json={"prompt": "a"}),
            server.http.post("/detokenize", json={"tokens": [1]}),
            server.http.get("/tokenizer_info"),
        ]
        loaded.set()
    assert [call.status_code for call in calls] == [503, 503, 503]
    assert all(call.headers["retry-after"] for call in calls)
