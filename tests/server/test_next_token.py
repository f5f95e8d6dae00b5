"""`/web/next_token`: the same tokens may be drawn, as likely, as the sampler's own filters say."""

import numpy as np
import pytest
import torch

from solutions.sampler.filters import apply_min_p, apply_temperature, apply_top_k, apply_top_p
from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine
from tests.server.test_bad_input import error_of
from yaie.server.next_token import filtered

SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0, "top_k": 7},
    {"top_k": 1},
    {"top_k": 10**6},
    {"top_p": 0.3},
    {"top_p": 1e-6},
    {"min_p": 0.2},
    {"min_p": 1.0},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.05},
    {"temperature": 1.7, "top_k": 12, "top_p": 0.55, "min_p": 0.1},
]
OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
PROMPT = [1, 5, 9, 5, 9]


def by_the_sampler(logits: torch.Tensor, setting: dict[str, float]) -> np.ndarray:
    """Lab 1's filters, one after the other."""
    wanted = {name: torch.tensor([value]) for name, value in (OFF | setting).items()}
    logits = apply_temperature(logits[None], wanted["temperature"])
    logits = apply_top_k(logits, wanted["top_k"])
    logits = apply_top_p(logits, wanted["top_p"])
    logits = apply_min_p(logits, wanted["min_p"])
    return logits.softmax(dim=1)[0].numpy()


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_the_samplers_filters_leave(setting: dict[str, float], seed: int) -> None:
    logits = 3 * torch.randn(500, generator=torch.Generator().manual_seed(seed))
    logits[7] = logits[8] = logits[9]  # equals
    mine = filtered(logits.log_softmax(0).double().numpy(), **(OFF | setting))  # type: ignore[arg-type]
    theirs = by_the_sampler(logits, setting)
    assert (mine > 0).tolist() == (theirs > 0).tolist()
    np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=1e-7)


def ask(live: LiveServer, **body: object) -> dict[str, object]:
    answer = live.http.post("/web/next_token", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_before_is_what_the_api_says_and_after_what_is_drawn(live: LiveServer) -> None:
    plain = ask(live, prompt=PROMPT, temperature=1, top_k=0, top_p=1, min_p=0)
    told = live.http.post(
        "/v1/completions",
        json={"prompt": PROMPT, "max_tokens": 1, "logprobs": 20, "temperature": 0},
    ).json()["choices"][0]["logprobs"]["top_logprobs"][0]
    assert [token["before"] for token in plain["tokens"][:5]] == pytest.approx(
        sorted(np.exp(list(told.values())), reverse=True)[:5], rel=1e-4
    )
    assert plain["prompt"] == PROMPT
    assert plain["kept"] == plain["vocab"] == live.engine.info.vocab_size
    assert all(token["before"] == pytest.approx(token["after"]) for token in plain["tokens"])

    three = ask(live, prompt=PROMPT, temperature=2, top_k=3, top_p=1, min_p=0)
    assert three["kept"] == 3
    assert sum(token["after"] for token in three["tokens"]) == pytest.approx(1)
    assert [token["id"] for token in three["tokens"]] == [token["id"] for token in plain["tokens"]]

    greedy = ask(live, prompt=PROMPT, temperature=0)
    assert [token["after"] for token in greedy["tokens"][:2]] == [1, 0]


def test_a_conversation_is_a_prompt_too(live: LiveServer) -> None:
    messages = [{"role": "user", "content": "What is a KV cache?"}]
    asked = live.http.post("/v1/chat/completions", json={
        "messages": messages, "max_tokens": 1, "return_token_ids": True})  # fmt: skip
    assert ask(live, messages=messages)["prompt"] == asked.json()["prompt_token_ids"]


@pytest.mark.parametrize(
    "body",
    [{}, {"prompt": [1], "messages": [{"role": "user", "content": "a"}]}, {"prompt": []},
     {"prompt": [10**7]}, {"prompt": [1], "top_p": 0}, {"prompt": "text"}, {"messages": [{}]}],
)  # fmt: skip
def test_what_is_wrong_is_said(live: LiveServer, body: dict[str, object]) -> None:
    error_of(live.http.post("/web/next_token", json=body), 400)


def test_it_asks_for_the_key_and_goes_with_the_page(live: LiveServer) -> None:
    body = {"prompt": [1]}
    assert "/web/next_token" not in live.http.get("/openapi.json").json()["paths"]
    with serving(FakeEngine, api_key=("secret",)) as guarded:
        error_of(guarded.http.post("/web/next_token", json=body), 401)
    with serving(FakeEngine, web=False) as bare:
        error_of(bare.http.post("/web/next_token", json=body), 404)
