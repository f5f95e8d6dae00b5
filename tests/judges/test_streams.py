"""What is streamed is what would have been said whole: texts of many scripts, every token split.

The real engine and server. In most tests a sampler says known texts, cut into tokens at random, so that
characters arrive in pieces; in the last one the model draws noise that often is no text at all.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.judges.multibyte import (
    NUM_FRAGMENTS,
    SayingSampler,
    Spelling,
    byte_fallback,
    byte_level,
    cut,
    texts,
)
from tests.judges.sse import Json, ask_all
from tests.marks import nightly_but
from tests.server.conftest import serving
from yaie.engine.llm_engine import LLMEngine

pytestmark = pytest.mark.slow

TEXTS = texts()
SOME = range(2 * NUM_FRAGMENTS)
"""CI asks for these: each script begins two of them. All 200 by night."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "?"}]
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


@dataclass
class Speaker:
    """A server that says TEXTS[seed], cut into the tokens scripts[seed]."""

    url: str
    scripts: list[list[int]]

    def ask(self, options: list[Json]) -> list[list[Json]]:
        """One request for each of `options`, which names the seed; see `path_of`."""
        return ask_all(self.url, [self._request(option) for option in options])

    def _request(self, option: Json) -> tuple[str, Json]:
        path = path_of(option["seed"])
        question = {"prompt": "?"} if path == TEXT else {"messages": MESSAGES}
        length = len(self.scripts[option["seed"]])
        return path, {**question, "max_tokens": length, "ignore_eos": True, **option}


def path_of(seed: int) -> str:
    """Conversations and texts take turns."""
    return CHAT if seed % 2 else TEXT


@pytest.fixture(
    scope="module",
    params=nightly_but([byte_level], [byte_level, byte_fallback]),
    ids=["byte_level", "byte_fallback"],
)
def speaker(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speaker]:
    folder: Path
    spelling: Spelling
    folder, spelling = request.param(tmp_path_factory.mktemp("speaker") / "speaker")
    scripts = [cut(text, spelling, random.Random(i)) for i, text in enumerate(TEXTS)]
    engine = LLMEngine(model=str(folder), num_blocks=2048, threads=1, mine="none", overlap="off")
    worker: Any = engine._machine.worker
    worker.sampler = SayingSampler(scripts)
    with serving(lambda: engine) as server:
        yield Speaker(server.url, scripts)


def said(answer: Json) -> str:
    """The text of a whole answer or of one event."""
    (choice,) = answer["choices"]
    inner = choice.get("message") or choice.get("delta")
    text: str = choice["text"] if "text" in choice else (inner or {}).get("content") or ""
    return text


def check_shape(events: list[Json], path: str, reason: str) -> None:
    """The role first, the reason last and nowhere else, the usage after it."""
    *chunks, usage = events
    assert usage["choices"] == []
    assert all(chunk["usage"] is None for chunk in chunks)
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + [reason]
    if path == CHAT:
        roles = [chunk["choices"][0]["delta"].get("role") for chunk in chunks]
        assert roles == ["assistant"] + [None] * (len(chunks) - 1)


def check(answer: Json, events: list[Json], path: str, text: str, reason: str) -> None:
    """A whole answer and a streamed one, both of which should say `text`."""
    assert said(answer) == text
    assert answer["choices"][0]["finish_reason"] == reason
    pieces = [said(event) for event in events[:-1]]
    assert "".join(pieces) == text
    assert REPLACEMENT in text or not any(REPLACEMENT in piece for piece in pieces)
    check_shape(events, path, reason)
    for usage in (answer["usage"], events[-1]["usage"]):
        # Whoever came second may have found the prompt cached.
        del usage["prompt_tokens_details"]
    assert events[-1]["usage"] == answer["usage"]


def check_texts(speaker: Speaker, chosen: range) -> None:
    seeds: list[Json] = [{"seed": seed} for seed in chosen]
    whole = speaker.ask(seeds)
    streamed = speaker.ask([{**seed, **USAGE} for seed in seeds])
    for seed, (answer,), events in zip(chosen, whole, streamed, strict=True):
        check(answer, events, path_of(seed), TEXTS[seed], "length")


def test_streamed_text_is_the_whole_text(speaker: Speaker) -> None:
    check_texts(speaker, SOME)


@pytest.mark.nightly
def test_all_streamed_texts_are_the_whole_texts(speaker: Speaker) -> None:
    check_texts(speaker, range(len(TEXTS)))


def stops(every: int) -> list[tuple[int, str, str]]:
    """(seed, stop string, what is left of the text): strings of one to four characters, from every
    position of a text, or from each `every`-th."""
    found = []
    for seed, text in enumerate(TEXTS):
        for start in range(seed // 2 % every, len(text), every):
            stop = text[start : start + 1 + start % 4]
            found.append((seed, stop, text[: text.index(stop)]))
    return found


def check_stops(speaker: Speaker, cases: list[tuple[int, str, str]]) -> None:
    options: list[Json] = [{"seed": seed, "stop": stop} for seed, stop, _ in cases]
    whole = speaker.ask(options)
    streamed = speaker.ask([{**option, **USAGE} for option in options])
    for (seed, stop, left), (answer,), events in zip(cases, whole, streamed, strict=True):
        check(answer, events, path_of(seed), left, "stop")
        assert answer["choices"][0]["stop_reason"] == stop
    print(f"{len(cases)} stop strings, each whole and streamed")


def test_stop_strings_end_the_text_where_they_begin(speaker: Speaker) -> None:
    check_stops(speaker, stops(every=48))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_stop_strings_from_every_position(speaker: Speaker) -> None:
    check_stops(speaker, stops(every=1))


def test_streamed_log_probabilities_join_to_the_whole_ones_and_spell_the_text(
    speaker: Speaker,
) -> None:
    """Also where a character takes many tokens, and text is held back."""
    seeds = range(1, len(TEXTS), 8)  # conversations
    options: list[Json] = [
        {"seed": seed, "logprobs": True, "top_logprobs": 2, "stop": "\0never"} for seed in seeds
    ]
    whole = speaker.ask(options)
    streamed = speaker.ask([{**option, "stream": True} for option in options])
    for seed, (answer,), events in zip(seeds, whole, streamed, strict=True):
        wanted = answer["choices"][0]["logprobs"]["content"]
        found = [item for event in events if event["choices"][0]["logprobs"]
                 for item in event["choices"][0]["logprobs"]["content"]]  # fmt: skip
        assert len(found) == len(speaker.scripts[seed])
        assert [item["bytes"] for item in found] == [item["bytes"] for item in wanted]
        assert bytes(byte for item in found for byte in item["bytes"]).decode() == TEXTS[seed]
        logprobs = [item["logprob"] for item in wanted]
        assert [item["logprob"] for item in found] == pytest.approx(logprobs, abs=1e-4)


@pytest.mark.nightly
def test_noise_is_streamed_as_it_is_said_whole(tmp_path: Path) -> None:
    """Bytes as the model draws them: most are no characters, and both ways must agree on what is."""
    folder, _ = byte_level(tmp_path / "noise")
    bodies: list[Json] = [
        {"temperature": 2, "seed": seed, "max_tokens": 24, "ignore_eos": True} for seed in SOME
    ]
    requests = [
        (CHAT, {**body, "messages": [{"role": "user", "content": text}]})
        if body["seed"] % 2
        else (TEXT, {**body, "prompt": text})
        for body, text in zip(bodies, TEXTS[: len(SOME)], strict=True)
    ]
    with serving(lambda: LLMEngine(model=str(folder), num_blocks=2048, threads=1)) as server:
        whole = ask_all(server.url, requests)
        streamed = ask_all(server.url, [(path, {**body, **USAGE}) for path, body in requests])
    for (path, _), (answer,), events in zip(requests, whole, streamed, strict=True):
        check(answer, events, path, said(answer), "length")
    num_broken = sum(REPLACEMENT in said(answer) for (answer,) in whole)
    assert num_broken > len(SOME) / 2
