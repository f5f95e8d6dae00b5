"""Two that change the same file at once both have their change in it."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from yaie.system import locks
from yaie.system.files import write_whole
from yaie.system.locks import locked

ROOT = Path(__file__).resolve().parents[2]


def count_to(file: Path, times: int) -> None:
    """Read, add one, write: each on its own loses what another did between."""
    for _ in range(times):
        with locked(file) as has_it:
            assert has_it
            write_whole(file, str(int(file.read_text() or 0) + 1))


def test_of_what_two_processes_change_at_once_nothing_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "count"
    file.touch()
    program = f"from tests.system.test_locks import *; count_to(Path({str(file)!r}), 200)"
    others = [subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) for _ in range(2)]
    assert [other.wait(60) for other in others] == [0, 0]
    assert file.read_text() == "400"


def test_nor_of_what_threads_change(tmp_path: Path) -> None:
    file = tmp_path / "count"
    file.touch()
    threads = [threading.Thread(target=count_to, args=(file, 50)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file.read_text() == "200"


def test_threads_that_write_one_file_at_once_need_no_lock_to_leave_it_whole(tmp_path: Path) -> None:
    errors: list[Exception] = []

    def write(letter: str) -> None:
        try:
            for _ in range(100):
                write_whole(tmp_path / "file", letter * 50)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert (tmp_path / "file").read_text() in ("a" * 50, "b" * 50)
    assert os.listdir(tmp_path) == ["file"]


def test_a_lock_within_the_same_lock_waits_for_nobody(tmp_path: Path) -> None:
    with locked(tmp_path / "file"), locked(tmp_path / "file") as again:
        assert again
    with locked(tmp_path / "file") as later:
        assert later


def test_where_no_lock_can_be_had_the_work_is_done_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")  # a file server without them

    for taker in (lambda: refuse, lambda: None):
        monkeypatch.setattr(locks, "_taker", taker)
        with locked(tmp_path / "file") as has_it:
            assert not has_it
    (tmp_path / "plain").touch()
    with locked(tmp_path / "plain" / "file") as has_it:  # no folder can be there
        assert not has_it


def test_a_lock_that_is_never_given_up_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "PATIENCE_SECONDS", 0.05)
    told: list[bool] = []

    def other() -> None:
        with locked(tmp_path / "file") as has_it:
            told.append(has_it)

    with locked(tmp_path / "file"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(10)
    assert told == [False]
