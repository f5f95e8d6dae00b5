"""What becomes of output that nobody takes, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
HEAD = (
    "import os, sys\nfrom yaie.system.streams import sound_streams\n@sound_streams\ndef main():\n"
)
ASCII = {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
MANY = "    for i in range(20_000): print('a line of some length', i)"


def run(
    body: str, *flags: str, shell: str = "", stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """A program whose `main` has this body. shell: redirections, and what it is piped into."""
    command = ["bash", "-c", f'"$0" "$@" {shell}\nexit "${{PIPESTATUS[0]}}"', sys.executable]
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [*command, *flags, "-c", f"{HEAD}{body}\nmain()"],
        input=stdin, capture_output=True, timeout=30, env=clean | environment,
    )  # fmt: skip


@pytest.mark.parametrize("flags", [(), ("-u",)], ids=["buffered", "unbuffered"])
def test_a_pipe_that_is_closed_ends_it_without_a_word(flags: tuple[str, ...]) -> None:
    ran = run(MANY, *flags, shell="| head -1")
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, b"a line of some length 0\n", b"")


@needs_full
@pytest.mark.parametrize("flags", [(), ("-u",)], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("body", ["    print('short')", MANY], ids=["at the end", "on the way"])
def test_a_full_disk_ends_it_with_a_sentence(flags: tuple[str, ...], body: str) -> None:
    ran = run(body, *flags, shell="> /dev/full")
    said = b"Error: the output could not be written: No space left on device\n"
    assert (ran.returncode, ran.stderr) == (2, said)


@needs_full
def test_what_standard_error_cannot_take_is_dropped_and_the_work_done() -> None:
    body = (
        "    for i in range(3000): print('note', i, file=sys.stderr, flush=True)\n    print('ok')"
    )
    ran = run(body, shell="2> /dev/full")
    assert (ran.returncode, ran.stdout) == (0, b"ok\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_one_that_nobody_reads(closed: str, tmp_path: Path) -> None:
    # What is opened next must not get its number, or a library's words would go there.
    body = (
        "    got = sys.stdin.read()\n"
        "    file = open('kept', 'w')\n"
        "    os.write(1, b'1'); os.write(2, b'2')\n"
        "    print('out'); print('err', file=sys.stderr)\n"
        "    print(repr(got), file=file)"
    )
    ran = run(f"    os.chdir({str(tmp_path)!r})\n{body}", shell=closed)
    assert ran.returncode == 0
    assert (tmp_path / "kept").read_text() == "''\n"


def test_a_lower_number_that_is_free_is_not_taken_for_a_closed_stream() -> None:
    body = (
        "    from yaie.system.streams import _nowhere\n"
        "    os.close(0); os.close(2)\n"
        "    stream = _nowhere(2)\n"
        "    print(stream.fileno(), os.fstat(2).st_rdev == os.stat(os.devnull).st_rdev)"
    )
    assert run(body).stdout == b"2 True\n"


def test_in_an_ascii_locale_text_comes_in_as_it_is_and_goes_out_with_question_marks() -> None:
    body = "    print(ascii(sys.stdin.read()), '\\xe9', '\\udcff')\n    print('\\xfc', file=sys.stderr)"
    ran = run(body, stdin="é".encode(), **ASCII)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"'\\xe9' ? ?\n", b"\\xfc\n")


def test_bytes_that_are_no_text_reach_the_command_which_refuses_them() -> None:
    ran = run("    print(ascii(sys.stdin.read()))", stdin=b"a\xff")
    assert ran.stdout == b"'a\\udcff'\n"


def test_a_full_disk_anywhere_is_no_bug_and_another_error_is() -> None:
    body = "    import errno\n    raise OSError(errno.{}, 'why', '/some/file')"
    ran = run(body.format("ENOSPC"))
    assert (ran.returncode, ran.stderr) == (2, b"Error: cannot write /some/file: why\n")
    assert b"Traceback" in run(body.format("ENOENT")).stderr
