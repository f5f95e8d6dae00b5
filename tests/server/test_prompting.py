"""How a conversation or a text becomes a prompt: what requests and `/tokenize` say of it."""

from typing import Any

import pytest

from tests.server.conftest import LiveServer
from tests.server.test_fields import BODIES, CHAT, MESSAGES, TEXT, ask, refusal


def count(live: LiveServer, path: str = CHAT, **body: Any) -> int:
    num_tokens: int = ask(live, path, max_tokens=1, **body)["usage"]["prompt_tokens"]
    return num_tokens


def tokens_of(live: LiveServer, **body: Any) -> list[int]:
    response = live.http.post("/tokenize", json={"messages": MESSAGES, **body})
    assert response.status_code == 200, response.text
    ids: list[int] = response.json()["tokens"]
    return ids


BEGUN = [*MESSAGES, {"role": "assistant", "content": "Well, "}]
CONTINUED = {"continue_final_message": True, "add_generation_prompt": False}


def test_the_answer_may_continue_a_message(live: LiveServer) -> None:
    tokens = tokens_of(live, messages=BEGUN, **CONTINUED)
    assert live.llm.tokenizer.decode_all(tokens).endswith("Well, ")
    answer = ask(live, CHAT, messages=BEGUN, return_token_ids=True, **CONTINUED)
    assert answer["prompt_token_ids"] == tokens
    assert tokens_of(live, messages=BEGUN) != tokens


def test_a_prompt_without_the_beginning_of_an_answer(live: LiveServer) -> None:
    tokens = tokens_of(live, add_generation_prompt=False)
    assert count(live, add_generation_prompt=False) == len(tokens) < count(live)


def test_special_tokens_may_be_added_or_left_out(live: LiveServer) -> None:
    tokenizer = live.llm.tokenizer
    bos = tokenizer.encode("")
    assert count(live, TEXT, add_special_tokens=False) == len(
        tokenizer.encode(BODIES[TEXT]["prompt"], False)
    )
    plain = tokens_of(live)
    assert tokens_of(live, add_special_tokens=True) == bos + plain
    assert count(live, add_special_tokens=True) == len(bos + plain)


TALKATIVE = (
    "{{ reasoning_effort }}|{{ verbosity }}|{{ enable_thinking }}|{{ persona }}|"
    "{% for message in messages %}{{ message.content }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("body", "begins"),
    [
        ({}, "||||"),
        ({"reasoning_effort": "low"}, "low||||"),
        ({"reasoning_effort": "none"}, "none||False||"),
        ({"verbosity": "high"}, "|high|||"),
        (
            {"chat_template_kwargs": {"persona": "pirate", "enable_thinking": True}},
            "||True|pirate|",
        ),
        (
            {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
            "none||True||",
        ),
        ({"chat_template_kwargs": {"unknown": [1, {"a": None}]}}, "||||"),
    ],
)
def test_the_template_is_told(
    live: LiveServer, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], begins: str
) -> None:
    monkeypatch.setattr(live.llm.tokenizer.of_transformers, "chat_template", TALKATIVE)
    answer = ask(live, CHAT, return_token_ids=True, **body)
    text = live.llm.tokenizer.decode_all(answer["prompt_token_ids"])
    assert text.removesuffix("hello there").rstrip("|") == begins.rstrip("|")
    variables = body.get("chat_template_kwargs")
    if body.keys() == {"chat_template_kwargs"}:
        told = tokens_of(live, chat_template_kwargs=variables)
        assert told == answer["prompt_token_ids"]


def test_a_response_tells_the_template_too(
    live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live.llm.tokenizer.of_transformers, "chat_template", TALKATIVE)
    body = {
        "input": "hello there", "max_output_tokens": 4, "reasoning": {"effort": "low"},
        "text": {"verbosity": "high"}, "prompt_cache_retention": "24h",
    }  # fmt: skip
    response = live.http.post("/v1/responses", json=body)
    assert response.status_code == 200, response.text
    told = response.json()
    assert told["reasoning"] == {"effort": "low", "summary": None}
    prompt = live.llm.tokenizer.encode("low|high|||hello there", False)
    assert told["usage"]["input_tokens"] == len(prompt)


def test_the_renderer_s_own_parameters_are_no_variables(live: LiveServer) -> None:
    for name in ("chat_template", "tools", "tokenize", "messages", "return_dict", "padding"):
        error = refusal(live, CHAT, chat_template_kwargs={name: ""})
        assert error["param"] == "chat_template_kwargs"
        assert name in error["message"]
    body = {"messages": MESSAGES, "chat_template_kwargs": {"chat_template": "x"}}
    assert live.http.post("/tokenize", json=body).status_code == 400
