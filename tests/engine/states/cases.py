"""Models that keep states, and scripts in which requests for them come and go."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.engine.exact import MAX_TOKENS, ROUNDING, Case, assert_empty
from tests.engine.oracle import greedy, make_prompts
from tests.marks import nightly_but
from tests.models.tiny import AMPLIFIED, STATEFUL, tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.request import Request

GREEDY = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)

of_each_kind = pytest.mark.parametrize(
    "case",
    nightly_but(("lfm2", "qwen3_5", "granite4-h"), STATEFUL),
    indirect=True,
    scope="module",
)
of_one = pytest.mark.parametrize(
    "case", nightly_but(("lfm2",), STATEFUL), indirect=True, scope="module"
)


def decided_case(family: str, folder: Path) -> Case:
    """A tiny model of a family in a folder, with prompts whose answers no order of sums decides."""
    tiny_model(family, folder)
    prompts = make_prompts(64, vocab=256)
    expected, margins = greedy(folder, prompts, MAX_TOKENS)
    least = 5 * AMPLIFIED.get(family, ROUNDING)
    chosen = [i for i, margin in enumerate(margins) if margin > least][:24]
    assert len(chosen) >= 12
    return Case(folder, [prompts[i] for i in chosen], [expected[i] for i in chosen])


def finish(engine: LLMEngine) -> None:
    while engine.has_work:
        engine.step()
        engine.check()


def interleave(case: Case, data: st.DataObject, **settings: Any) -> None:
    """Draw an engine and a script for it, and hold every answer against the known one."""
    size = data.draw(st.sampled_from([4, 8, 16]))
    settings = {
        "block_size": size,
        "num_blocks": data.draw(
            st.integers(1 + 128 // size, 320 // size)
        ),  # the longest has 117 tokens; with windows one block is blank
        "token_budget": data.draw(st.integers(8, 120)),
        "max_num_seqs": data.draw(st.integers(1, 6)),
        "overlap": data.draw(st.sampled_from(["on", "off"])),
        "watermark": 0.0,
        **settings,
    }
    engine = case.engine(**settings)
    sent: list[tuple[int, Request]] = []
    for _ in range(data.draw(st.integers(4, 16))):
        index = data.draw(st.sampled_from([0, 3, 7, 10, 11, 12, 25, 38, 39]))
        what = data.draw(st.sampled_from(["one", "one", "several", "abort", "nothing"]))
        if what == "abort" and sent:
            engine.abort(sent.pop(index % len(sent))[1].request_id)
        elif what in ("one", "several"):
            params = replace(GREEDY, n=1 if what == "one" else 2)
            sent += [(index, one) for one in engine.add_request(case.prompts[index], params)]
        for _ in range(data.draw(st.integers(0, 10))):
            engine.step()
            engine.check()
    finish(engine)
    for index, request in sent:
        assert request.failure is None
        assert request.output_token_ids == case.expected[index]
    assert_empty(engine)
    engine.close()
