"""`yaie generate`."""

import json

from tests.cli.conftest import Yaie
from tests.server.fake_engine import FakeEngine


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
