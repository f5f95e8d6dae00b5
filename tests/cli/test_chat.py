"""`yaie chat` with piped input: every line is answered in turn."""

import logging
import os
import random
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.cli.conftest import Yaie
from tests.server.fake_engine import FakeEngine
from yaie.cli import chat
from yaie.cli.chat_session import ChatSession
from yaie.cli.chat_wrap import WordWrap
from yaie.cli.main import main
from yaie.system.streams import control_keys_unseen


def test_answers_line_by_line_and_leaves_at_the_end(yaie: Yaie, fake: FakeEngine) -> None:
    ran = yaie("chat", stdin="abc\n\nxyz\n")
    assert ran.code == 0
    assert ran.out == "cba\nzyx\n"


def test_exit_leaves_at_once(yaie: Yaie, fake: FakeEngine) -> None:
    assert yaie("chat", stdin="abc\n/exit\nxyz\n").out == "cba\n"


def test_three_turns_with_a_real_model_share_their_prefix(yaie: Yaie, tiny_folder: str) -> None:
    lines = "Hello, who are you and what do you know?\nA second turn.\nA third turn.\n/stats\n"
    ran = yaie("chat", tiny_folder, "--max-tokens", "8", "--temperature", "0", stdin=lines)
    assert ran.code == 0
    stats = ran.out[ran.out.rindex("prompt") :]
    assert ", 0 of them cached" not in stats
    assert "a second" in stats
    assert "in use" in stats


def test_params_are_shown_changed_and_refused(yaie: Yaie, fake: FakeEngine) -> None:
    lines = "/params max_tokens=2 stop=END\nabc\n/params\n/params max_tokens=null\nabc\n"
    ran = yaie("chat", stdin=lines)
    assert ran.out.splitlines()[1:3] == ["cb", "temperature=0.0 max_tokens=2 stop=END"]
    assert ran.out.splitlines()[-1] == "cba"
    for bad in ("max_tokens=-1", "temperature=hot", "n=2", "nonsense=1", "nonsense"):
        ran = yaie("chat", stdin=f"/params {bad}\nabc\n")
        assert "Error: " in ran.err
        assert ran.out == "cba\n"


def test_system_message_and_history_reach_the_model(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(
        fake.tokenizer,
        "apply_chat_template",
        lambda messages, **_: seen.append(list(messages)) or [1],
    )
    yaie("chat", stdin="/system be brief\none\ntwo\n/reset\nthree\n")
    roles = [[message["role"] for message in messages] for messages in seen]
    assert roles == [
        ["system", "user"],
        ["system", "user", "assistant", "user"],
        ["system", "user"],
    ]


def test_unknown_command_and_too_long_input_do_not_end_the_chat(
    yaie: Yaie, fake: FakeEngine
) -> None:
    ran = yaie("chat", stdin="/what\n" + "x" * 2000 + "\nabc\n/help\n")
    assert "there is no command /what" in ran.err
    assert "what you typed does not fit: the context holds 1,000 tokens" in ran.err
    assert ran.out.startswith("cba\n/reset")


def test_a_request_that_fails_does_not_end_the_chat(yaie: Yaie, fake: FakeEngine) -> None:
    fake.poison = "bad"
    ran = yaie("chat", stdin="bad\nabc\n")
    assert ran.code == 0
    assert "Error: its logits are not finite" in ran.err
    assert ran.out == "cba\n"


def test_ctrl_c_stops_the_answer_and_not_the_chat(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    show, pressed = chat._show, []

    def show_and_press(text: str) -> None:
        show(text)
        if not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(chat, "_show", show_and_press)
    fake.step_seconds = 0.005
    ran = yaie("chat", stdin="x" * 900 + "\nabc\n")
    assert ran.code == 0
    assert "(stopped)" in ran.err
    assert ran.out.count("x") < 900
    assert ran.out.endswith("cba\n")
    assert len(fake.aborted) == 1


def whole_conversation(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts grow with the conversation, as those of a model do."""
    monkeypatch.setattr(
        fake.tokenizer,
        "apply_chat_template",
        lambda messages, **_: fake.tokenizer.encode("".join(each["content"] for each in messages)),
    )


def test_a_full_context_is_told_with_the_way_on_and_the_chat_goes_on(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_conversation(fake, monkeypatch)
    fake.max_model_len = 20
    ran = yaie("chat", stdin="abcde\nxyz1234567\n/reset\nabc\n")
    assert ran.code == 0
    assert "Error: the conversation fills the context of 20 tokens" in ran.err
    assert "/reset forgets it" in ran.err
    assert "The model was made for no more" in ran.err
    assert ran.out == "edcba\ncba\n"


@pytest.mark.parametrize(
    ("flags", "way"),
    [(["--max-model-len=20"], "--max-model-len"), (["--num-blocks=2"], "--num-blocks")],
)
def test_what_makes_room_for_more_is_named(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch, flags: list[str], way: str
) -> None:
    whole_conversation(fake, monkeypatch)
    fake.max_model_len = 20
    fake.pool_tokens = 15 if way == "--num-blocks" else 100
    ran = yaie("chat", *flags, stdin="abcdefg\nxyz12345\n")
    assert f"A larger {way} makes room" in ran.err


def test_max_tokens_is_lowered_to_what_the_context_leaves(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.max_model_len = 14
    ran = yaie("chat", "--max-tokens", "50", stdin="abcdefghij\nabc\n")
    assert ran.code == 0
    assert ran.out == "jihg\ncba\n"
    assert ran.err.count("(cut off by the conversation fills the context of 14 tokens") == 1
    assert "Error" not in ran.err


def test_an_answer_that_max_tokens_cuts_off_says_so(yaie: Yaie, fake: FakeEngine) -> None:
    ran = yaie("chat", "--max-tokens", "2", stdin="abc\nab\n")
    assert ran.out == "cb\nba\n"
    assert ran.err.count("(cut off by max_tokens=2. /params max_tokens=N sets another limit)") == 1


def test_a_warning_comes_behind_the_answer(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of other programs that keep the cores busy, which the engine sees in the middle of one."""
    ask = ChatSession.ask

    async def warned(self: ChatSession, line: str, show: Callable[[str], None]) -> Any:
        def noted(text: str) -> None:
            show(text)
            logging.getLogger("yaie.engine").warning("cores are [busy]\x1b")

        return await ask(self, line, noted)

    monkeypatch.setattr(ChatSession, "ask", warned)
    both = yaie("chat", "tutor", stdin="one\n")
    assert "cores" not in both.out
    assert "(cores are [busy]\\x1b)" in both.err


def test_control_c_is_not_written_into_an_answer(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    termios = pytest.importorskip("termios")
    ours, theirs = os.openpty()
    at_prompts: list[bool] = []
    in_answers: list[bool] = []

    def is_echoed() -> bool:
        return bool(termios.tcgetattr(theirs)[3] & termios.ECHOCTL)

    lines = iter(["abc", "bad", None])
    fake.poison = "bad"

    def typed() -> str | None:
        at_prompts.append(is_echoed())
        return next(lines)

    monkeypatch.setattr(chat, "_typed", lambda: typed)
    monkeypatch.setattr(chat, "_show", lambda text: in_answers.append(is_echoed()))
    monkeypatch.setattr("sys.argv", ["yaie", "chat"])
    with open(theirs, closefd=False) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert is_echoed()
        with pytest.raises(SystemExit):
            main()
        assert at_prompts == [True, True, True]  # also after the answer that failed
        assert set(in_answers) == {False}
        with control_keys_unseen():
            os.write(ours, b"\x03")
            assert os.read(ours, 8) == b"\x03"
        os.write(ours, b"\x03")
        assert os.read(ours, 8) == b"^C"
    os.close(ours)
    os.close(theirs)


def test_last_model_is_remembered(yaie: Yaie, fake: FakeEngine) -> None:
    assert yaie("chat", "some/model", stdin="").code == 0
    yaie("chat")
    assert fake.config.model == "some/model"
    yaie("chat", "tutor")
    yaie("chat")
    assert fake.config.model == "tutor"


def test_a_folder_is_remembered_by_its_full_path(
    yaie: Yaie, fake: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "my-[model]").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "models")
    for typed in ("./my-[model]", "my-[model]", "../models/my-[model]"):
        assert yaie("chat", typed).code == 0
        yaie("chat")
        assert fake.config.model == str(tmp_path / "models" / "my-[model]")


def test_a_relative_path_that_was_remembered_is_told_and_left(
    yaie: Yaie, fake: FakeEngine, tmp_path: Path
) -> None:
    (tmp_path / "state" / "yaie").mkdir(parents=True)
    (tmp_path / "state" / "yaie" / "last_model").write_text("./my-[model]")
    ran = yaie("chat")
    assert ran.code == 0
    assert "was remembered as ./my-[model]" in ran.err
    assert "yaie chat FOLDER" in ran.err
    assert fake.config.model == "tutor"


def test_a_remembered_model_that_fails_says_that_it_was_remembered(
    yaie: Yaie, tmp_path: Path
) -> None:
    gone = tmp_path / "gone" / "[/x]"
    kept = tmp_path / "state" / "yaie" / "last_model"
    kept.parent.mkdir(parents=True)
    kept.write_text(str(gone))
    ran = yaie("chat")
    assert ran.code == 2
    assert f"there is no folder {str(gone)!r}" in ran.err
    assert f"The name {gone} is remembered from the last chat ({kept})" in ran.err
    assert "yaie chat MODEL" in ran.err
    assert "yaie chat tutor" in ran.err
    assert "last chat" not in yaie("chat", str(gone)).err
    assert "last chat" not in yaie("chat", "--model", str(gone)).err


def test_control_characters_of_a_model_do_not_reach_the_terminal(
    yaie: Yaie, fake: FakeEngine
) -> None:
    assert yaie("chat", stdin="a\x1b[2Jb\n").out == "bJ2[a\n"


def test_lines_break_between_words_on_a_terminal(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    answer = "attention reads all keys and values"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert yaie("chat", stdin=answer[::-1] + "\n").out == "attention reads all\nkeys and values\n"


def test_what_is_piped_out_keeps_its_lines(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    answer = "attention reads all keys and values"
    assert yaie("chat", stdin=answer[::-1] + "\n").out == answer + "\n"


def wrapped(text: str, width: int, seed: int = 0) -> str:
    """The text as a WordWrap writes it that is fed pieces of random length."""
    written: list[str] = []
    wrap, numbers = WordWrap(written.append, width), random.Random(seed)
    while text:
        cut = numbers.randint(1, 7)
        wrap.feed(text[:cut])
        text = text[cut:]
    wrap.end()
    return "".join(written)


@pytest.mark.parametrize("seed", range(5))
def test_wrapping_does_not_depend_on_how_the_text_is_cut(seed: int) -> None:
    text = "A block table maps a request's blocks.\n\n    indented code\nand so on, to the end."
    assert wrapped(text, 16, seed) == (
        "A block table\nmaps a request's\nblocks.\n\n    indented\ncode\nand so on, to\nthe end."
    )


def test_a_word_longer_than_a_line_is_left_to_the_terminal() -> None:
    assert wrapped("see https://example.org/a/b now", 10) == (
        "see\nhttps://example.org/a/b now"  # of which it makes three lines
    )


def test_wide_characters_fill_two_cells_and_may_be_parted() -> None:
    assert wrapped("注意力机制 ok", 6) == "注意力\n机制\nok"


def test_stats_say_when_fewer_threads_compute(capsys: pytest.CaptureFixture[str]) -> None:
    answered = SimpleNamespace(
        stats=SimpleNamespace(
            prompt_tokens=3,
            cached_tokens=0,
            output_tokens=5,
            tokens_per_second=9.0,
            first_token=0.1,
        )
    )
    for threads, told in ((2, False), (1, True)):
        chat._show_stats(
            cast(Any, answered), {"kv_usage": 0.0, "threads": threads, "threads_wanted": 2}
        )
        said = capsys.readouterr().out
        assert ("threads      1 of 2: other programs keep the cores busy" in said) is told


def test_stats_say_how_full_each_group_of_layers_is(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("prompt_tokens", "cached_tokens", "output_tokens", "tokens_per_second", "first_token")
    answered: Any = SimpleNamespace(stats=SimpleNamespace(**dict.fromkeys(names, 0)))
    chat._show_stats(answered, {"kv_usage": 0.5, "full_kv_usage": 0.25, "windowed_kv_usage": 0.5})
    assert (
        "KV pool      50.0% in use: 25.0% where layers see all of a text, 50.0% where they have a "
        "window\n"
    ) in capsys.readouterr().out


def test_stats_count_drafts_where_the_engine_guesses(yaie: Yaie, tiny_folder: str) -> None:
    lines = "one two one two one two\n/stats\n"
    options = ["--max-tokens", "8", "--temperature", "0"]
    for more, count in ((["--speculate", "ngram", "--num-drafts", "2"], 1), ([], 0)):
        said = yaie("chat", tiny_folder, *options, *more, stdin=lines).out
        pattern = r"^drafts       \d+ tokens since the start, \d+ of them accepted$"
        assert len(re.findall(pattern, said, re.MULTILINE)) == count
