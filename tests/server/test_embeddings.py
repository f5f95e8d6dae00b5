"""`/v1/embeddings`, asked by the official client and by hand."""

import base64
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import openai
import pytest
from openai import OpenAI

from tests.server.conftest import LiveServer
from tests.server.test_bad_input import error_of

MODEL = "tiny-llama"
TEXTS = ["What is a block?", "日本語 🙂", "Straße " * 20]


def state(live: LiveServer, text: str, pooling: str = "last") -> np.ndarray:
    """What the engine itself makes of a text."""
    ids = live.http.post("/tokenize", json={"prompt": text}).json()["tokens"]
    answer = live.http.post("/v1/embeddings", json={"input": ids, "pooling": pooling}).json()
    return np.array(answer["data"][0]["embedding"])


def embed(live: LiveServer, **body: Any) -> Any:
    answer = live.http.post("/v1/embeddings", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("is_strict", [True, False])
def test_the_client_gets_a_vector_of_length_one_for_each_text(
    client: OpenAI, live: LiveServer, is_strict: bool
) -> None:
    """It asks for base64 unless it is told otherwise, which its own strict check then refuses."""
    if not is_strict:
        client = OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0)
    asked = {"encoding_format": "float"} if is_strict else {}
    answer = client.embeddings.create(model=MODEL, input=TEXTS, **asked)
    assert [one.index for one in answer.data] == [0, 1, 2]
    for text, one in zip(TEXTS, answer.data, strict=True):
        assert np.linalg.norm(one.embedding) == pytest.approx(1, abs=1e-6)
        assert np.array(one.embedding) @ state(live, text) == pytest.approx(1, abs=1e-5)
    tokens = sum(
        live.http.post("/tokenize", json={"prompt": text}).json()["count"] for text in TEXTS
    )
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == tokens


def test_one_text_or_tokens_are_one_vector(live: LiveServer) -> None:
    ids = live.http.post("/tokenize", json={"prompt": TEXTS[0]}).json()["tokens"]
    vectors = [embed(live, input=what)["data"] for what in (TEXTS[0], [TEXTS[0]], ids, [ids])]
    assert [len(data) for data in vectors] == [1, 1, 1, 1]
    assert all(data == vectors[0] for data in vectors)


def test_the_mean_is_another_vector_than_the_last_state(live: LiveServer) -> None:
    last, mean = (state(live, TEXTS[2], pooling) for pooling in ("last", "mean"))
    assert last @ mean < 0.99


def test_base64_holds_the_same_numbers(live: LiveServer) -> None:
    plain = embed(live, input=TEXTS[0])["data"][0]["embedding"]
    coded = embed(live, input=TEXTS[0], encoding_format="base64")["data"][0]["embedding"]
    assert np.frombuffer(base64.b64decode(coded), "<f4").tolist() == pytest.approx(plain, abs=1e-7)


def test_fewer_dimensions_are_the_first_ones_at_length_one(live: LiveServer) -> None:
    whole = np.array(embed(live, input=TEXTS[0])["data"][0]["embedding"])
    short = np.array(embed(live, input=TEXTS[0], dimensions=5)["data"][0]["embedding"])
    assert short == pytest.approx(whole[:5] / np.linalg.norm(whole[:5]), abs=1e-6)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": ["a"] * 257}, "input"),
        ({"input": [1, "a"]}, "input"),
        ({"input": [10**6]}, "input"),
        ({"input": "a " * 5000}, "input"),
        ({"input": "a", "dimensions": 10_000}, "dimensions"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "pooling": "max"}, "pooling"),
        ({"input": "a", "n": 2}, "n"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ],
)
def test_what_is_wrong_is_named(live: LiveServer, body: dict[str, Any], param: str) -> None:
    error = error_of(live.http.post("/v1/embeddings", json=body), 400)
    assert error["param"] == param
    assert param in error["message"]


def test_another_model_is_not_served(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match=MODEL):
        client.embeddings.create(model="text-embedding-3-small", input="a")


def test_a_long_text_can_be_cut(live: LiveServer) -> None:
    cut = embed(live, input=list(range(5, 40)), truncate_prompt_tokens=4)
    assert cut["usage"]["prompt_tokens"] == 4
    assert cut["data"] == embed(live, input=[36, 37, 38, 39])["data"]


def test_as_many_texts_as_a_list_may_hold(live: LiveServer) -> None:
    ids = [[5 + i % 50, 6, 7] for i in range(256)]
    assert len(embed(live, input=ids)["data"]) == 256


def test_a_greedy_answer_beside_vectors_is_the_same(live: LiveServer) -> None:
    talk = {"prompt": "hello", "max_tokens": 40, "temperature": 0, "ignore_eos": True}

    def answer() -> str:
        return live.http.post("/v1/completions", json=talk).json()["choices"][0]["text"]

    alone = answer()
    with ThreadPoolExecutor() as pool:
        vectors = [pool.submit(embed, live, input=TEXTS, pooling="mean") for _ in range(4)]
        answers = [pool.submit(answer) for _ in range(4)]
    assert [one.result() for one in answers] == [alone] * 4
    first, *others = (
        np.array([each["embedding"] for each in one.result()["data"]]) for one in vectors
    )
    assert all(np.abs(other - first).max() < 1e-5 for other in others)
