"""Text that is not UTF-8, output that is not, and terminals that are narrow."""

import io
import json

import pytest
from rich.console import Console
from rich.table import Table

from tests.cli.conftest import Yaie
from tests.server.fake_engine import FakeEngine
from yaie.cli import console
from yaie.cli.console import characters, show_table
from yaie.core.errors import InvalidRequestError

BAD = "a\udcff"
"""As Python hands on the bytes a, 0xff."""


@pytest.mark.parametrize(
    ("command", "stdin", "what"),
    [
        (["generate", BAD], "", "the prompt"),
        (["generate"], BAD, "the prompt"),
        (["generate", "--system", BAD, "hi"], "", "--system"),
        (["generate", "--stop", BAD, "hi"], "", "--stop"),
        (["chat", "--system", BAD], "", "--system"),
        (["chat", "--stop", BAD], "", "--stop"),
    ],
)
def test_what_is_not_utf_8_is_refused_by_name(
    yaie: Yaie, fake: FakeEngine, command: list[str], stdin: str, what: str
) -> None:
    ran = yaie(*command, stdin=stdin)
    assert ran.code == 2
    assert ran.err.startswith(f"Error: {what} is not UTF-8 (byte 0xff at position 1). Convert it")


def test_a_line_that_is_not_utf_8_does_not_end_the_chat(yaie: Yaie, fake: FakeEngine) -> None:
    ran = yaie("chat", stdin=f"{BAD}\nabc\n")
    assert (ran.code, ran.out) == (0, "cba\n")
    assert "what you typed is not UTF-8" in ran.err


def test_in_an_ascii_locale_an_argument_is_what_was_typed() -> None:
    assert characters("h\udcc3\udca9", "the prompt") == "hé"
    assert characters("日本", "the prompt") == "日本"
    with pytest.raises(InvalidRequestError):
        characters("h\udcc3", "the prompt")


def test_json_is_exact_where_the_output_knows_ascii_alone(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from yaie.cli.generate import _json_line

    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert json.loads(_json_line({"text": "é"}).encode("ascii")) == {"text": "é"}
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    assert _json_line({"text": "é"}) == '{"text": "é"}'


def shown(width: int, *cells: str) -> str:
    table = Table("part", "why", box=None)
    table.add_row(*cells)
    file = io.StringIO()
    show_table(table, Console(file=file, width=width))
    return file.getvalue()


def test_a_table_that_a_narrow_terminal_does_not_fit_is_shown_line_by_line() -> None:
    why = "a sentence that takes more than one line of this terminal"
    lines = [line.rstrip() for line in shown(40, "transformer_ops", why).splitlines()]
    assert lines[0] == "part transformer_ops"
    assert " ".join(" ".join(lines[1:]).split()) == f"why {why}"
    assert max(map(len, lines)) <= 40


def test_a_table_that_fits_stays_one_and_so_does_one_on_a_usual_terminal() -> None:
    assert shown(40, "sampler", "yours").splitlines()[0].split() == ["part", "why"]
    assert shown(80, "sampler", "long " * 40).splitlines()[0].split() == ["part", "why"]


def test_where_you_stand_can_be_read_in_40_columns(
    yaie: Yaie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "out", Console(highlight=False, width=40))
    out = yaie("lab").out
    assert "cuda_flash_attention" in out
    assert "…" not in out
