"""`yaie generate --steps`, and `--system`."""

import re
from typing import Any

import pytest

from tests.cli.conftest import Yaie
from tests.server.fake_engine import FakeEngine
from yaie.cli.steps import MOST_LINES, StepLog, name_of
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


def rows(log: StepLog, width: int = 200) -> list[list[str]]:
    """The table's cells, without its head, as they are handed to the terminal."""
    columns = [list(column.cells) for column in log.table(width).columns]
    return [[str(cell) for cell in row] for row in zip(*columns, strict=True)]


def run(engine: LLMEngine, prompts: list[list[int]], params: SamplingParams = GREEDY) -> StepLog:
    requests = [engine.add_request(prompt, params)[0] for prompt in prompts]
    log = StepLog(engine, requests)
    while engine.has_work:
        log.step()
    return log


def test_answers_are_named_and_the_steps_follow(yaie: Yaie, tiny_folder: str) -> None:
    options = ["--model", tiny_folder, "--raw", "--max-tokens", "4", "--steps"]
    ran = yaie("generate", "hello", "world", *options)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].startswith("A: ")
    assert any(line.startswith("B: ") for line in lines)
    assert any(
        re.search(r"step +tokens +blocks +request +computes +sampled", line) for line in lines
    )
    assert "\x1b" not in ran.out


def test_steps_are_shown_one_after_the_other_unless_overlap_is_asked_for(
    yaie: Yaie, tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[Any] = []
    begin = LLMEngine.__init__

    def noted(self: LLMEngine, config: Any, **given: Any) -> None:
        configs.append(config)
        begin(self, config, **given)

    monkeypatch.setattr(LLMEngine, "__init__", noted)
    for more in ([], ["--steps"], ["--steps", "--overlap", "on"]):
        yaie("generate", "hello", "--model", tiny_folder, "--raw", "--max-tokens", "2", *more)
    assert [config.overlap for config in configs] == ["auto", "off", "on"]


def test_a_run_of_equal_steps_is_one_row(tiny_folder: str) -> None:
    log = run(LLMEngine(model=tiny_folder, mine="none"), [list(range(5, 12)), list(range(20, 24))])
    assert [row[:2] + row[3:5] for row in rows(log)] == [
        ["1", "11", "A", "7"],
        ["", "", "B", "4"],
        ["2-6", "2", "A", "1, ends: length"],
        ["", "", "B", "1, ends: length"],
    ]


def shares(log: StepLog) -> list[dict[str, tuple[str, int, int, int, list[int], object]]]:
    """What each step computed for each request, and drew."""
    return [
        {
            name: (one.what, one.num_tokens, one.drafts, one.accepted, one.drawn, one.end)
            for name, one in step.shares.items()
        }
        for step in log._steps
    ]


def test_an_overlapped_loop_has_the_same_steps_as_the_other(tiny_folder: str) -> None:
    """Where all lengths are known no step is sent for nothing. What is drawn stands beside the step that
    drew it, though it is read while the next one runs."""
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    prompts = [list(range(5, 30)), [5, 6, 7, 8] * 2, [9]]
    logs = []
    for overlap in ("off", "on"):
        engine = LLMEngine(model=tiny_folder, mine="none", overlap=overlap, token_budget=16)
        logs.append(run(engine, prompts, params))
        engine.close()
    plain, overlapped = map(shares, logs)
    assert overlapped == plain
    for name in "ABC":
        drawn = [step[name][4] for step in overlapped if name in step]
        assert sum(map(len, drawn)) == 12
    found = [share for step in overlapped for share in step.values()]
    assert sum(share[1] for share in found) == engine.stats()["computed_tokens"]


def test_a_step_that_was_sent_before_the_end_was_known_says_so(tiny_folder: str) -> None:
    engine = LLMEngine(model=tiny_folder, mine="none", overlap="on")
    (first,) = run(engine, [[5, 6, 7]], SamplingParams(temperature=0, max_tokens=1))._steps
    end = first.shares["A"].drawn[0]
    log = run(engine, [[5, 6, 7]], SamplingParams(temperature=0, stop_token_ids=(end,)))
    engine.close()
    assert [step.shares["A"].what for step in log._steps] == ["3", "1, for nothing"]
    assert [step.shares["A"].drawn for step in log._steps] == [[end], []]
    assert log._steps[0].shares["A"].end == "stop"


def test_a_chunk_that_draws_nothing_says_so(tiny_folder: str) -> None:
    engine = LLMEngine(model=tiny_folder, mine="none", token_budget=10)
    first, second, *_ = rows(run(engine, [list(range(5, 20))]))
    assert first[:2] + first[4:] == ["1", "10", "10", ""]
    assert second[:2] + second[4:5] == ["2", "5", "5"]
    assert second[5] != ""


def test_cached_tokens_are_not_counted_as_computed(tiny_folder: str) -> None:
    engine = LLMEngine(model=tiny_folder, mine="none", block_size=4)
    shared = list(range(5, 13))
    log = run(engine, [[*shared, 40, 41], [*shared, 50]])
    assert [row[3:5] for row in rows(log)[:4]] == [
        ["A", "10"],
        ["B", "wait"],
        ["A", "1"],
        ["B", "1, 8 cached"],
    ]


def test_preemption_and_return_are_rows_of_their_own(tiny_folder: str) -> None:
    engine = LLMEngine(
        model=tiny_folder, mine="none", block_size=4, num_blocks=5, watermark=0, max_model_len=20
    )
    table = rows(run(engine, [list(range(5, 13)), list(range(20, 28))]))
    words = [row[4] for row in table if row[3] == "B"]
    assert "preempted" in words
    again = next(row for row in table if row[4].endswith("again"))
    assert again[3] == "B"


def test_blocks_are_the_most_at_the_end_of_a_step(tiny_folder: str) -> None:
    engine = LLMEngine(model=tiny_folder, mine="none", block_size=4, num_blocks=5, max_model_len=20)
    blocks = [int(row[2]) for row in rows(run(engine, [list(range(5, 13))])) if row[2]]
    assert blocks == [2, 3]  # the last step takes a fourth, and gives all of them back


def test_drafts_and_those_that_were_accepted_are_columns_where_the_engine_drafts(
    tiny_folder: str,
) -> None:
    # Four tokens only may be drawn, so some repeat.
    few = dict.fromkeys((5, 6, 7, 8), 100.0)
    params = SamplingParams(seed=1, max_tokens=60, ignore_eos=True, logit_bias=few)
    engine = LLMEngine(model=tiny_folder, mine="none", speculate="ngram", num_drafts=4)
    log = run(engine, [[5, 6, 7, 8] * 4], params)
    names = [column.header for column in log.table(200).columns]
    assert names == "step tokens blocks request computes drafts accepted sampled".split()
    steps = [step.shares["A"] for step in log._steps]
    told = engine.stats()
    assert sum(share.drafts for share in steps) == told["draft_tokens"] > 0
    assert sum(share.accepted for share in steps) == told["accepted_draft_tokens"] > 0
    assert sum(share.num_tokens for share in steps) == told["computed_tokens"]
    assert all(len(share.drawn) == share.accepted + 1 for share in steps)
    plain = run(LLMEngine(model=tiny_folder, mine="none"), [[5, 6, 7, 8] * 4], params)
    assert [column.header for column in plain.table(200).columns] == names[:5] + names[7:]


def test_more_requests_than_lines_are_counted(tiny_folder: str) -> None:
    prompts = [[5 + i, 6, 7] for i in range(MOST_LINES + 4)]
    table = rows(run(LLMEngine(model=tiny_folder, mine="none"), prompts))
    assert table[0][1] == str(3 * len(prompts))
    assert table[MOST_LINES - 1][3:5] == ["...", "and 5 more"]
    assert table[MOST_LINES][0] == "2-6"


@pytest.mark.parametrize("width", [60, 100])
def test_the_printed_table_keeps_to_the_width(
    yaie: Yaie, tiny_folder: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    options = ["--model", tiny_folder, "--raw", "--max-tokens", "60", "--steps"]
    printed = yaie("generate", "hello", *options).out
    table = printed.splitlines()[-2:]
    assert all(len(line.rstrip()) <= width for line in table), printed
    assert any("…" in line for line in table)


def test_names_go_on_after_z() -> None:
    assert [name_of(index) for index in (0, 3, 25, 26)] == ["A", "D", "Z", "27"]


def test_steps_and_json_exclude_each_other(yaie: Yaie) -> None:
    ran = yaie("generate", "abc", "--steps", "--json")
    assert ran.code == 2
    assert "--json" in ran.err


def test_a_system_message_comes_first_in_every_chat(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[dict[str, str]]] = []
    encode = fake.encode_chat

    def recording(turns: list[dict[str, str]]) -> list[int]:
        asked.append(turns)
        return encode(turns)

    monkeypatch.setattr(fake, "encode_chat", recording)
    assert yaie("generate", "abc", "xyz", "--system", "be brief").out == "cba\nzyx\n"
    system = {"role": "system", "content": "be brief"}
    assert asked == [
        [system, {"role": "user", "content": "abc"}],
        [system, {"role": "user", "content": "xyz"}],
    ]


def test_a_system_message_is_refused_without_a_chat(yaie: Yaie, tiny_folder: str) -> None:
    ran = yaie("generate", "abc", "--raw", "--system", "be brief")
    assert ran.code == 2
    assert "--raw" in ran.err
