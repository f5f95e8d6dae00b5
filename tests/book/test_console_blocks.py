"""Console blocks: how they are read, what may differ, what a difference looks like, where they run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from book.tools.blocks import Command, ConsoleError, chapters, parse, tidy
from book.tools.console import difference, main, matches
from book.tools.mdbook import ROOT
from book.tools.sandbox import Sandbox, link_environment, run_chapter, stop


def console(*lines: str, info: str = "console") -> str:
    return "\n".join([f"```{info}", *lines, "```", ""])


def same(expected: str, got: str) -> bool:
    return matches(tuple(tidy(expected)), tidy(got))


def test_a_block_is_commands_with_what_follows_each():
    text = "# Title\n\n" + console("$ one", "first", "", "second", "$ two", "$ three", "last")
    [block] = parse(text, "x")
    assert [(c.text, c.expected, c.line) for c in block.commands] == [
        ("one", ("first", "", "second"), 4),
        ("two", (), 8),
        ("three", ("last",), 9),
    ]


def test_a_backslash_continues_a_command():
    [block] = parse(console("$ curl x \\", "    -d y", "answer"), "x")
    [command] = block.commands
    assert (command.text, command.expected) == ("curl x \\\n    -d y", ("answer",))


def test_what_is_typed_into_a_command_is_piped_to_it():
    lines = ("$ chat", "hello", "> What's a block?", "An answer.", "> /stats", "KV pool")
    [block] = parse(console(*lines, info="console,typed"), "x")
    [command] = block.commands
    assert command.text == """printf '%s\\n' 'What'"'"'s a block?' /stats | chat"""
    assert command.expected == ("hello", "An answer.", "KV pool")
    [plain] = parse(console(*lines), "x")
    assert plain.commands[0].expected == lines[1:]


def test_a_block_in_a_list_loses_its_indentation():
    text = "- item\n\n  ```console\n  $ one\n    indented\n  ```\n"
    assert parse(text, "x")[0].commands[0].expected == ("  indented",)


def test_other_fences_and_a_block_shown_inside_one_are_left_alone():
    assert parse("```text\n$ one\n```\n````md\n```console\n$ one\n```\n````\n", "x") == []


def test_what_is_done_by_hand_before_a_block_stands_directly_above_it():
    above = "<!-- before: touch x -->\n"
    [block] = parse("Text.\n\n" + above + console("$ ls"), "x")
    assert block.before == "touch x"
    [block] = parse(above + "\n" + console("$ ls"), "x")
    assert block.before == ""


def test_what_is_done_before_must_work():
    with pytest.raises(ConsoleError, match="x:2: rm nothing"):
        list(run_chapter(parse("<!-- before: rm nothing -->\n" + console("$ true"), "x"), "x"))


def test_options_are_read():
    [block] = parse(console("$ a", info="console,server,solved=sampler+scheduler"), "x")
    assert (block.server, block.solved, block.unrun) == (True, ("sampler", "scheduler"), "")
    assert parse(console("$ a", info="console, unrun=gpu"), "x")[0].unrun == "gpu"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (console("$ a", info="console,serve"), "no such option: 'serve'"),
        (console("$ a", info="console,unrun=slow"), "no such option: 'unrun=slow'"),
        (console("$ a", info="console,solved=sampl"), "solved=sampl: there is no such lab"),
        (console("no command"), "begins with a command"),
        (console(), "begins with a command"),
    ],
)
def test_a_block_that_breaks_the_rules_is_named_by_its_line(text, said):
    with pytest.raises(ConsoleError, match=rf"^chapter:3: .*{said}"):
        parse("\n\n" + text, "chapter")


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("tokens 12", "tokens 12"),
        ("a … c", "a b b c"),
        ("a\n…\nd", "a\nb\nc\nd"),
        ("a\n…\nd", "a\nd"),
        ("…", "anything\nat all"),
        ("…\nd", "a\nd\nb\nd"),
        ("took 4.6 s", "took 12.1 s"),
        ("took 980 ms, done", "took 1.2 s, done"),
        ("   9.5 ms  ok", "  10.5 ms  ok"),
        ("| 9.5 ms  | ok", "| 10.5 ms | ok"),
        ("at 1,204.5 tokens/s", "at 98.1 tokens/s"),
        ("output 38 tokens, 172.4 a second", "output 38 tokens, 99 a second"),
        ("41.2 GB/s", "9 GB/s"),
        ("4.1s", "12s"),
        ("make: *** [Makefile:41: grade] Error 1", "make: *** [Makefile:57: grade] Error 1"),
        ("loading\rready  ", "\x1b[1mready\x1b[0m"),
    ],
)
def test_what_may_differ_does(expected, got):
    assert same(expected, got)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("tokens 12", "tokens 13"),
        ("a … c", "a b"),
        ("a", "a\nb"),
        ("a\nb", "a"),
        ("a\n…\nd", "a\nb\nc"),
        ("took 4.6 s", "took 4.6 tokens"),
        ("38 tokens, 1.4 s", "39 tokens, 1.5 s"),
        ("5 steps", "6 steps"),
        ("4.6 s", "fast"),
        ("4.6 s", "4.6 tokens/s"),
        ("version 0.5 s1", "version 0.6 s1"),
        ("two  blanks", "two blanks"),
        ("", "a warning"),
    ],
)
def test_what_may_not_differ_is_found(expected, got):
    assert not same(expected, got)


def test_a_difference_shows_where_and_both_sides():
    command = Command("make x", ("head", "…", "one 1", "two", "tail 3 s"), 7)
    said = difference(command, ["head", "skipped", "one 1", "zwei", "tail 5 s", "more"], "sampler")
    assert said.splitlines() == [
        "sampler:7: $ make x",
        "    head",
        "    …",
        "    one 1",
        "  - two",
        "  + zwei",
        "    tail 5 s",
        "  + more",
        "  (- stands in the chapter, + came out)",
    ]


def test_chapters_with_blocks_are_found_below_folders(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/b.md").write_text(console("$ x"))
    (tmp_path / "a.md").write_text("no block")
    assert chapters(tmp_path) == ["deep/b"]


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(ROOT) as made:
        yield made


def output(sandbox: Sandbox, command: str) -> list[str]:
    return sandbox.run(Command(command, (), 1), "x:1").output


def test_a_command_runs_in_a_copy_with_unsolved_labs_and_no_records(sandbox):
    assert output(sandbox, "pwd") == [str(sandbox.copy)]
    assert output(sandbox, "ls -d .yaie book/out .git") == tidy(
        "\n".join(
            f"ls: cannot access '{name}': No such file or directory"
            for name in (".yaie", "book/out", ".git")
        )
    )
    stub = (sandbox.copy / "labs/sampler/filters.py").read_text()
    assert "NotImplementedError" in stub
    assert "BEGIN SOLUTION" not in stub


def test_it_is_the_copy_that_runs_and_make_sets_nothing_up(sandbox):
    where = "import yaie, grader.cli; print(yaie.__file__, grader.cli.__file__, sep='\\n')"
    there = [str(sandbox.copy / name) for name in ("yaie/__init__.py", "grader/cli.py")]
    assert output(sandbox, f'python -c "{where}"') == there
    assert output(sandbox, f'.venv/bin/python -c "{where}"') == there
    assert output(sandbox, "make --dry-run chat") == [".venv/bin/yaie chat"]


def test_the_callers_settings_do_not_reach_a_command(sandbox, monkeypatch):
    for name in ("YAIE_MINE", "MAKEFLAGS", "MAKELEVEL", "VENV", "FORCE_COLOR"):
        monkeypatch.setenv(name, "1")
    seen = output(sandbox, "env")
    assert {"COLUMNS=100", "NO_COLOR=1"} <= set(seen)
    assert not [line for line in seen if line.startswith(("YAIE", "MAKE", "VENV", "FORCE"))]


def test_standard_error_stands_where_it_was_written_and_nothing_can_be_read(sandbox):
    assert output(sandbox, "echo one; echo two >&2; echo three; cat") == ["one", "two", "three"]


def test_what_a_command_left_in_the_background_ends_with_it(sandbox):
    [number] = output(sandbox, "sleep 600 >/dev/null 2>&1 & echo $!")
    end = time.monotonic() + 10
    while Path(f"/proc/{number}").exists() and time.monotonic() < end:
        if "Z" in Path(f"/proc/{number}/stat").read_text().split()[2]:
            return  # ended; its new parent has not looked yet
        time.sleep(0.05)
    assert not Path(f"/proc/{number}").exists()


def test_a_command_that_does_not_end_is_told_by_its_line(sandbox, monkeypatch):
    monkeypatch.setattr("book.tools.sandbox.SECONDS", 0.3)
    with pytest.raises(ConsoleError, match=r"^x:1: not done after"):
        output(sandbox, "sleep 60")


def test_a_solved_lab_is_the_references_without_its_notebook(sandbox):
    sandbox.solve("radix_tree")  # another one than the tests of what is not solved look at
    for file in ("node.py", "radix_tree.py"):
        copied = (sandbox.copy / "labs/radix_tree" / file).read_bytes()
        assert copied == (ROOT / "solutions/radix_tree" / file).read_bytes()
    assert not (sandbox.copy / "labs/radix_tree/explore.py").exists()


@pytest.mark.slow
@pytest.mark.nightly  # CI runs a chapter with a server
def test_a_server_runs_on_a_free_port_and_its_address_reads_as_written():
    text = console("$ curl -s http://127.0.0.1:8000/v1/models", info="console,server") + console(
        "$ echo http://127.0.0.1:8000"
    )
    models, echo = run_chapter(parse(text, "x"), "x")
    assert '"tutor"' in models.output[0]
    assert echo.output == ["http://127.0.0.1:8000"]


def test_a_chapter_without_anything_to_run_copies_nothing(monkeypatch):
    monkeypatch.setattr("book.tools.sandbox.Sandbox", None)
    assert list(run_chapter(parse(console("$ x", info="console,unrun=gpu"), "x"), "x")) == []


def test_a_linked_environment_is_newer_than_all_and_the_real_one_is_left_alone(tmp_path):
    real = tmp_path / "real"
    (real / "bin").mkdir(parents=True)
    (real / ".yaie-ready").touch()
    os.utime(real / ".yaie-ready", (1, 1))
    link_environment(real, tmp_path / "links")
    assert (tmp_path / "links/bin").resolve() == real / "bin"
    assert (tmp_path / "links/.yaie-ready").stat().st_mtime > time.time() - 60
    assert (real / ".yaie-ready").stat().st_mtime == 1


def test_a_process_that_ignores_being_asked_is_ended():
    code = "import signal,time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.read(1)
    stop(process, signal.SIGTERM, patience=0.2)
    assert process.wait(10) == -signal.SIGKILL


@pytest.mark.nightly
def test_a_writer_sees_what_differs_and_the_status_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("book.tools.blocks.SOURCE", tmp_path)
    (tmp_path / "one.md").write_text(console("$ echo 1", "1", "$ echo 2", "3"))
    assert main(["book/src/one.md"]) == 1
    said = capsys.readouterr().out
    assert "one:4: $ echo 2\n  - 3\n  + 2" in said
    assert "one: 1 to correct" in said
    (tmp_path / "one.md").write_text(console("$ echo 1", "1"))
    assert main(["one", "--show"]) == 0
    assert "$ echo 1\n1\n" in capsys.readouterr().out
    assert main(["gone"]) == 2
