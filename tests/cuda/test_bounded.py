"""A command may say what it likes: both ends of it are kept."""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from yaie.cuda.bounded import run_bounded

ENDLESS = (
    "import os\nos.write({fd}, b'begin\\n')\nfor _ in range(1000): os.write({fd}, b'x' * 65536)\n"
)


@pytest.mark.parametrize("fd", [1, 2])
def test_memory_does_not_grow_with_what_a_command_says(fd: int) -> None:
    program = ENDLESS.format(fd=fd) + f"os.write({fd}, b'end')"
    tracemalloc.start()
    ran = run_bounded([sys.executable, "-c", program], timeout=60, most=1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    said = (ran.stdout, ran.stderr)[fd - 1]
    assert said.startswith("begin\nx")
    assert said.endswith("xend")
    assert f"\n... {65_536_000 + 9 - 1000} bytes left out ...\n" in said
    assert peak < 2**20


def test_a_short_message_is_whole_and_what_is_not_utf8_shown_as_that(tmp_path: Path) -> None:
    ran = run_bounded(
        ["sh", "-c", "cat; pwd; printf '\\377' >&2; exit 3"], timeout=60, cwd=tmp_path
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, f"{tmp_path}\n", "�")


def test_a_command_that_does_not_end_is_killed_even_if_its_child_keeps_the_stream() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_bounded(["sh", "-c", "sleep 5 & exec sleep 60"], timeout=0.1)
