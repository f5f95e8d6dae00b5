"""What cannot be recorded for those who watch costs nobody an answer, and them one snapshot."""

from typing import Any

import pytest
import torch

from tests.engine.test_watching import Replayed
from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.output import RequestOutput
from yaie.engine.watching import recorder, telling
from yaie.engine.watching.merging import Merged
from yaie.engine.watching.publisher import Publisher
from yaie.engine.watching.recorder import Recorder


class PanicException(BaseException):
    """As a library in Rust raises."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return str(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama"))


BREAKS: dict[str, tuple[Any, str]] = {
    "a plan": (Merged, "planned"),
    "outputs": (Merged, "stepped"),
    "who came": (recorder, "told"),
    "a record": (Merged, "rows"),
    "the beginning": (Recorder, "_listen"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_cannot_be_recorded_ends_nothing_and_is_told_anew(
    folder: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(recorder, "SHARE", 1e9)  # each step by itself
    engine, replayed = LLMEngine(model=folder, num_blocks=40), Replayed()
    publisher = Publisher(engine, lambda lines, number: replayed.take(lines))
    if name != "the beginning":
        publisher.watch(1, [])
    owner, method = BREAKS[name]
    own = getattr(owner, method)

    def broken(*_: Any) -> Any:
        monkeypatch.setattr(owner, method, own)
        raise RuntimeError("boom")

    monkeypatch.setattr(owner, method, broken)
    params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=20)
    requests = engine.add_request(list(range(5, 40)), params)
    publisher.watch(1, []) if name == "the beginning" else None
    publisher.arrived(requests)
    while engine.has_work:
        publisher.stepped(engine.step())
        engine.check()
        if engine.num_steps == 10:
            told = replayed.known[requests[0].request_id]
            assert told["output_tokens"] == requests[0].num_output_tokens
    publisher.idle()
    assert getattr(owner, method) is own
    assert replayed.known == {}
    assert requests[0].num_output_tokens == 20


def test_a_prompt_that_cannot_be_shown_is_told_without_its_words(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LLMEngine(model=folder, num_blocks=40)
    (request,) = engine.add_request([5, 6, 7], SamplingParams(max_tokens=2))

    def panic(*_: Any) -> str:
        raise PanicException

    monkeypatch.setattr(engine.tokenizer, "decode", panic)
    assert telling.told(request, engine)["words"] == ""


def test_what_a_slow_client_has_merged_is_recorded_once() -> None:
    """On another thread a stream merges the next output into one that it still holds."""
    merged = Merged()
    first, later = (RequestOutput("a", text, [token]) for text, token in (("x", 5), ("y", 6)))
    merged.stepped([first], 0.1)
    first.merge(later)
    merged.stepped([later], 0.1)
    [row] = merged.rows()
    assert (row["out"], row["text"]) == ([5, 6], "xy")
