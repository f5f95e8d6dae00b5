"""`yaie generate`."""

import json

import pytest

from tests.cli.conftest import Yaie
from tests.server.fake_engine import FakeEngine
from yaie.system.terminal import Terminal, printable


def test_prints_an_answer_for_each_prompt(yaie: Yaie, fake: FakeEngine) -> None:
    assert yaie("generate", "abc", "xyz").out == "cba\nzyx\n"


def test_reads_stdin_when_there_is_no_prompt(yaie: Yaie, fake: FakeEngine) -> None:
    assert yaie("generate", stdin="two\nlines\n").out == "senil\nowt\n"


def test_no_prompt_at_all_is_an_error(yaie: Yaie) -> None:
    ran = yaie("generate")
    assert ran.code == 2
    assert "no prompt" in ran.err


def test_json_has_reason_and_token_counts(yaie: Yaie, fake: FakeEngine) -> None:
    lines = yaie("generate", "abc", "xyz", "--max-tokens", "2", "--json").out.splitlines()
    first, second = map(json.loads, lines)
    assert (first["prompt"], first["text"], first["finish_reason"]) == ("abc", "cb", "length")
    assert second["usage"]["completion_tokens"] == 2


def test_greedy_text_of_a_real_model_is_the_same_raw_and_repeated(
    yaie: Yaie, tiny_folder: str
) -> None:
    options = ["--model", tiny_folder, "--raw", "--temperature", "0", "--max-tokens", "8"]
    once = yaie("generate", "hello", *options)
    assert once.code == 0
    assert yaie("generate", "hello", "hello", *options).out == once.out * 2


def test_missing_model_is_explained(yaie: Yaie) -> None:
    ran = yaie("generate", "hello", "--model", "/no/such/folder")
    assert ran.code == 2
    assert "/no/such/folder" in ran.err
    assert "Traceback" not in ran.err


def test_answers_that_are_cut_off_are_told_on_stderr_alone(yaie: Yaie, fake: FakeEngine) -> None:
    ran = yaie("generate", "abc", "--max-tokens", "2")
    assert ran.out == "cb\n"
    assert "The answer is cut off after 2 tokens: --max-tokens N sets another limit." in ran.err
    ran = yaie("generate", "abc", "xy", "uvw", "--max-tokens", "2")
    assert ran.out == "cb\nyx\nwv\n"
    assert "2 of 3 answers are cut off after 2 tokens" in ran.err
    assert "cut off" not in yaie("generate", "abc").err
    assert "cut off" not in yaie("generate", "abc", "--max-tokens", "2", "--json").err


def test_an_answer_that_the_context_cuts_off_says_so(yaie: Yaie, tiny_folder: str) -> None:
    ran = yaie("generate", "hello", "--raw", "--model", tiny_folder, "--max-model-len", "32")
    assert ran.code == 0
    assert "The answer is cut off: prompt and answer fill the context of 32 tokens." in ran.err


def test_control_characters_of_a_model_reach_a_pipe_and_no_terminal(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "[/x]\x1b[2J\x9b"
    assert yaie("generate", hostile[::-1]).out == f"{hostile}\n"
    monkeypatch.setattr("yaie.cli.generate.out", Terminal(force_terminal=True))
    assert yaie("generate", hostile[::-1]).out == "[/x][2J\n"
    line = yaie("generate", hostile[::-1], "--json").out
    assert printable(line) == line
    assert json.loads(line)["text"] == hostile
