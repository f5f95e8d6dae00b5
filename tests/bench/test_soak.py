"""`yaie bench soak`: what counts as a whole answer and what as a leak, and a short run of all of it."""

import json
from collections import Counter
from typing import Any

import pytest

from tests.cli.conftest import Yaie
from yaie.bench.http_client import Answer
from yaie.bench.soak import Soak, find_leaks
from yaie.bench.soak_requests import TEXT, Ask, draw, filling, greedy, texts_of

IDLE = {
    "rss_mib": 600.0,
    "fds": 7.0,
    "threads": 6.0,
    "running": 0.0,
    "waiting": 0.0,
    "kv_usage": 0.0,
}


def answer(body: Any, status: int = 200) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(raw=b"HTTP/1.1 %d X\r\ncontent-type: x\r\n\r\n" % status + raw)


def completion(*texts: str, reason: str | None = "stop") -> dict[str, Any]:
    choices = [
        {"index": index, "text": text, "finish_reason": reason} for index, text in enumerate(texts)
    ]
    return {"choices": choices, "usage": {"completion_tokens": 3}}


def test_a_body_that_came_in_chunks_is_put_together() -> None:
    raw = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n3\r\n:1}\r\n0\r\n\r\n'
    assert Answer(raw=raw).json == {"a": 1}


def test_a_stream_that_does_not_end_with_done_is_not_whole() -> None:
    with pytest.raises(ValueError, match="a stream ends with"):
        answer(b'data: {"choices": []}\n\n').events()


def test_the_same_seed_draws_the_same_requests_of_every_kind() -> None:
    drawn = draw(2000, context=100)
    assert drawn == draw(2000, context=100)
    share = Counter(item.kind for item in drawn)
    assert share["bad"] / 2000 == pytest.approx(0.05, abs=0.02)
    assert share["aborted"] / 2000 == pytest.approx(0.10, abs=0.02)
    assert share["greedy"] > 100
    assert share["good"] > 1000


def test_some_prompts_are_longer_than_the_context() -> None:
    prompts = [item.body["prompt"] for item in draw(2000, context=100) if isinstance(item.body, dict)
               and "prompt" in item.body]  # fmt: skip
    assert any(isinstance(prompt, str) and len(prompt.split()) > 100 for prompt in prompts)


def test_every_choice_must_end_once() -> None:
    item = Ask("good", TEXT, {"prompt": "x", "n": 2})
    assert texts_of(item, answer(completion("a", "b"))) == ["a", "b"]
    for wrong in (completion("a", "b", reason=None), completion("a")):
        with pytest.raises(ValueError, match="the choices ended"):
            texts_of(item, answer(wrong))


def test_an_answer_is_judged_by_the_kind_of_its_request(monkeypatch) -> None:
    monkeypatch.setattr("psutil.Process", lambda pid: None)
    soak = Soak("http://x", 1)
    soak.judge(Ask("bad", TEXT, {}), answer({}, status=404))
    with pytest.raises(ValueError, match="200"):
        soak.judge(Ask("bad", TEXT, {}), answer(completion("a")))
    known = greedy()[-2]
    soak.known[hash((known.path, repr(known.body)))] = ["alone"]
    soak.judge(known, answer(completion("alone")))
    with pytest.raises(ValueError, match="but alone"):
        soak.judge(known, answer(completion("in company")))
    soak.judge(Ask("aborted", TEXT, {}), answer(b'{"choi'))
    assert soak.count["cut off"] == 1
    assert soak.tokens == 3


@pytest.mark.parametrize(
    ("last", "leak"),
    [
        ({}, None),
        ({"kv_usage": 0.1}, "kv_usage is 0.1 at the end"),
        ({"running": 1.0}, "running is 1.0 at the end"),
        ({"fds": 10.0}, "file descriptors grew from 7.0 to 10.0"),
        ({"threads": 9.0}, "threads grew from 6.0 to 9.0"),
    ],
)
def test_what_a_server_keeps_is_a_leak(last: dict[str, float], leak: str | None) -> None:
    samples = [dict(IDLE) for _ in range(7)] + [IDLE | last]
    assert find_leaks(samples) == ([] if leak is None else [leak])


def test_memory_that_still_grows_at_the_end_is_a_leak() -> None:
    warm = [IDLE | {"rss_mib": rss} for rss in (600.0, 700.0, 750.0, 750.0)]
    assert find_leaks(warm) == []
    growing = [IDLE | {"rss_mib": rss} for rss in (600.0, 700.0, 800.0, 900.0)]
    assert find_leaks(growing) == ["memory grew from 800 to 900 MiB over the second half"]


def test_what_fills_a_pool_is_as_long_and_shares_no_block() -> None:
    prompts = [item.body["prompt"] for item in filling(16 * 1024, 101)]
    assert sum(map(len, prompts)) == 16 * 1024
    assert max(map(len, prompts)) < 100
    assert len({tuple(prompt[:2]) for prompt in prompts}) == len(prompts)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_short_soak_of_the_tutor_finds_nothing(yaie: Yaie, tmp_path) -> None:
    file = tmp_path / "figures.json"
    ran = yaie("bench", "soak", "--requests", "300", "--concurrency", "16", "--json", str(file))
    assert ran.code == 0, ran.out + ran.err
    figures = json.loads(file.read_text())
    assert sum(figures["requests"][kind] for kind in ("good", "greedy", "bad", "aborted")) == 300
    assert figures["leaks"] == []
