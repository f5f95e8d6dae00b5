"""Files that are written whole or not at all."""

import errno
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.disk import LACKS, files_below, nothing_fits
from yaie.core.errors import ConfigError
from yaie.system.files import reason, refuse_unwritable, write_whole

ROOT = Path(__file__).resolve().parents[2]
FULL = Path("/dev/full")
WRITES = re.compile(r"\.write_text\(|\.write_bytes\(|\bopen\([^)\n]*[\"'][wax]b?\+?[\"']")
ELSEWHERE = {
    "yaie/system/files.py",  # the one place
    "yaie/system/streams.py",  # /dev/null
    # In a draft or a temporary folder:
    "yaie/cuda/on_cpu/build.py",
    "yaie/bench/evidence/cuda_attention.py",
    "yaie/bench/evidence/cuda_attention_counts.py",
    "yaie/bench/peers/process.py",
    "yaie/models/gguf/described.py",
    "yaie/models/gguf/stored.py",
    "yaie/models/packaged.py",
    "yaie/demos/hybrid.py",
    "grader/room.py",
    "grader/kit/in_engine/shallow.py",
    "grader/snapshot.py",
    "grader/selfcheck/habits/proof.py",
    "grader/selfcheck/killing.py",
    "grader/selfcheck/variants.py",
    # Shards of gigabytes, removed again if they do not fit:
    "yaie/bench/shapes.py",
    # A timeline in compressed bytes, to a file that was asked for:
    "yaie/bench/evidence/gpu_decode_trace.py",
    # A stream that is open already:
    "grader/surroundings.py",
}


@pytest.mark.parametrize("number", LACKS)
def test_what_cannot_be_written_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file = tmp_path / "figures.json"
    write_whole(file, "old")
    nothing_fits(monkeypatch, number)
    with pytest.raises(OSError, match=r"figures\.json") as told:
        write_whole(file, "new and longer")
    assert (told.value.errno, told.value.filename) == (number, str(file))
    assert files_below(tmp_path) == {"figures.json": b"old"}


def test_a_link_is_followed_and_the_mode_kept(tmp_path: Path) -> None:
    file, link = tmp_path / "far" / "file", tmp_path / "link"
    file.parent.mkdir()
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    write_whole(link, "é\udcff")
    assert link.is_symlink()
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == ("é?".encode(), 0o640)


def test_a_new_file_may_be_read_by_whom_the_user_lets(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_whole(tmp_path / "new", "text")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_a_device_is_written_to_and_stays_one() -> None:
    refuse_unwritable(FULL, "json")
    with pytest.raises(OSError, match="No space left") as told:
        write_whole(FULL, "text")
    assert told.value.errno == errno.ENOSPC
    assert FULL.is_char_device()


def test_a_place_where_no_file_can_be_is_refused_beforehand(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, why in (("file/x", "Not a dir"), ("no/x", "No such file"), (".", "it is a folder")):
        with pytest.raises(ConfigError, match=f"cannot write .*{place}: {why}") as told:
            refuse_unwritable(tmp_path / place, "json")
        assert told.value.param == "json"
    refuse_unwritable(tmp_path / "fine", "json")
    assert os.listdir(tmp_path) == ["file"]


def test_nothing_else_writes_a_file_that_is_kept() -> None:
    sources = [path for folder in ("yaie", "grader") for path in (ROOT / folder).rglob("*.py")]
    found = {
        path.relative_to(ROOT).as_posix()
        for path in sources
        if WRITES.search(path.read_text("utf-8")) and "known_" not in path.as_posix()
    }
    assert found == ELSEWHERE


def test_the_reason_is_in_the_systems_words() -> None:
    assert reason(OSError(errno.ENOSPC, "No space left on device")) == "No space left on device"
    assert reason(shutil.Error([("a", "b", "Permission denied")])) == "Permission denied"
    assert reason(OSError("in words of its own")) == "in words of its own"
    assert reason(OSError()) == ""
