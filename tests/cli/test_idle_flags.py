"""Flags without effect are refused, variables without effect are said: by the command line."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Yaie
from tests.cli.test_serve import address_in
from tests.cli.test_serve_ends import serving_fake
from tests.server.fake_engine import FakeEngine


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("serve --port 0 --revision v1", "revision 'v1' has no effect here"),
        ("serve --port 0 --swap-space 1", "swap_space 1.0 has no effect here"),
        ("chat --kv-memory-share 0.1 --num-blocks 9", "kv_memory_share 0.1 has no effect"),
        ("generate hi --policy lpm --no-prefix-caching", "policy 'lpm' has no effect here"),
        ("generate hi --top-p 0.9", "--top-p has no effect here: at temperature 0"),
        ("generate hi --top-k 0 --temperature 0", "--top-k has no effect here"),
        ("generate hi --min-p 0.1", "--min-p has no effect here"),
        ("bench prefix --no-prefix-caching", "--no-prefix-caching has no effect here"),
        ("bench memory --prefix-caching", "--prefix-caching has no effect here"),
        ("bench overhead --prefix-caching", "--prefix-caching has no effect here"),
        ("bench throughput --workload prefix --prefix-caching", "--prefix-caching has no effect"),
        ("bench throughput --peer none --batch 3", "--batch is for --workload fixed"),
        ("bench throughput --peer-python python3", "--peer-python goes with --peer vllm"),
    ],
)
def test_a_flag_without_effect_is_refused(
    yaie: Yaie, fake: FakeEngine, command: str, said: str
) -> None:
    ran = yaie(*command.split())
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_in_a_chat_the_temperature_may_still_rise(yaie: Yaie, fake: FakeEngine) -> None:
    assert yaie("chat", "--top-p", "0.9", stdin="abc\n").out == "cba\n"


def test_what_several_commands_share_is_left_alone(
    yaie: Yaie, fake: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shared.toml"
    file.write_text('swap_space = 1.0\nrevision = "v1"\noverlap = "on"\n')
    monkeypatch.setenv("YAIE_KV_MEMORY_SHARE", "0.5")
    monkeypatch.setattr(
        fake, "stats", lambda: {"used_blocks": 0}
    )  # of which --steps makes a column
    ran = yaie("generate", "abc", "--config", str(file), "--num-blocks", "9", "--steps")
    assert ran.code == 0, ran.err
    assert (fake.config.revision, fake.config.swap_space) == ("v1", 1.0)


def test_the_model_of_last_time_decides_whether_a_revision_counts(
    yaie: Yaie, fake: FakeEngine
) -> None:
    assert yaie("chat", "org/name", stdin="").code == 0
    assert yaie("chat", "--revision", "v1", stdin="").code == 0
    assert fake.config.revision == "v1"
    assert yaie("chat", "tutor", "--revision", "v1", stdin="").code == 2


@pytest.mark.parametrize(
    "command", ["serve --port 0", "generate hi", "doctor", "lab", "bench memory"]
)
def test_a_misspelled_variable_is_an_error_of_every_command(
    yaie: Yaie, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("YAIE_BLOCK_SIZ", "32")
    ran = yaie(*command.split())
    assert (ran.code, ran.out) == (2, "")
    assert "YAIE_BLOCK_SIZ, which is no setting; did you mean YAIE_BLOCK_SIZE?" in ran.err


def test_help_is_shown_whatever_the_environment_holds(
    yaie: Yaie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YAIE_BLOCK_SIZ", "32")
    assert yaie("serve", "--help").code == 0


def test_any_other_variable_is_warned_of_once(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YAIE_GARDEN", "1")
    monkeypatch.setenv("YAIE_SERVICE_HOST", "10.0.0.1")
    ran = yaie("generate", "abc")
    assert (ran.code, ran.out) == (0, "cba\n")
    assert ran.err.count("YAIE_GARDEN is no setting and has no effect") == 1
    assert "YAIE_SERVICE_HOST" not in ran.err


@pytest.mark.nightly
def test_a_server_warns_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    arguments = ("--log-json", f"--log-file={log}")
    with serving_fake("engine.fault = None", *arguments, YAIE_GARDEN="1") as (process, lines):
        address_in(process, lines)
        process.terminate()
    assert sum("YAIE_GARDEN" in line for line in lines) == 1
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["level"] for line in logged if "YAIE_GARDEN" in line["message"]] == ["warning"]
