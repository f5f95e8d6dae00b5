"""`make docs-serve`: a port of its own, the reader's progress, and an end that leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from book.tools import serve
from book.tools.mdbook import ROOT
from tests.marks import nightly_but
from yaie.curriculum.manifest import load_curriculum
from yaie.curriculum.progress import LabRecord, Progress, part_digest

SECONDS = 30
WEIGHTS = shutil.ignore_patterns("*.safetensors")


def test_a_mirror_is_written_when_its_source_changes_and_only_then(tmp_path):
    source, copy = tmp_path / "source", tmp_path / "folder/copy"
    mirror = serve.Mirror(source, copy)
    assert copy.read_bytes() == b""
    source.write_text("one")
    mirror.refresh()
    assert copy.read_text() == "one"
    os.utime(copy, (1, 1))
    mirror.refresh()
    assert copy.stat().st_mtime == 1
    source.unlink()
    mirror.refresh()
    assert copy.read_bytes() == b""


def test_the_folders_of_the_book_stay_watched():
    folders = serve.watched(ROOT)
    assert {"solutions", "book/quizzes", "book/figures"} <= set(folders)
    assert "labs" not in folders  # a lab that is saved is no reason to build the book
    assert all((ROOT / folder).is_dir() for folder in folders)


FAKE = """#!{python}
import json, os, sys, time
names = ("YAIE_BOOK_PROGRESS", "MDBOOK_BUILD__EXTRA_WATCH_DIRS")
print(json.dumps([sys.argv[1:], [os.environ[name] for name in names]]), flush=True)
sys.exit({status})
"""


def test_mdbook_is_told_where_to_build_what_to_watch_and_where_progress_is(tmp_path, capfd):
    fake = tmp_path / "mdbook"
    fake.write_text(FAKE.format(python=sys.executable, status=3))
    fake.chmod(0o755)
    assert serve.serve(str(fake), 3456, ROOT, tmp_path / "made") == 3
    arguments, (progress, watched) = json.loads(capfd.readouterr().out)
    assert arguments == [
        *("serve", "--hostname", "127.0.0.1", "--port", "3456"),
        *("-d", str(tmp_path / "made/out")),
    ]
    assert Path(progress) == tmp_path / "made/progress/progress.json"
    assert json.loads(watched) == [*serve.watched(ROOT), str(tmp_path / "made/progress")]


def test_an_mdbook_that_does_not_listen_is_ended(tmp_path):
    code = "import signal,time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(1)
    serve.stop(process, patience=0.2)
    assert process.returncode == -signal.SIGKILL


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A checkout with a book of one page, which shows a lab's card."""
    root = tmp_path / "checkout"
    (root / "book/src").mkdir(parents=True)
    for name in ("yaie", "labs", "solutions", "grader"):
        shutil.copytree(ROOT / name, root / name, ignore=WEIGHTS)
    for name in ("tools", "evidence", "quizzes", "figures", "examples", "theme", "traces"):
        if (ROOT / "book" / name).is_dir():
            shutil.copytree(ROOT / "book" / name, root / "book" / name)
    shutil.copy(ROOT / "book/terms.toml", root / "book/terms.toml")
    shutil.copy(ROOT / ".gitignore", root / ".gitignore")
    # mdBook refuses to leave a folder out of the search that this book does not have.
    settings = (ROOT / "book.toml").read_text("utf-8").partition("[output.html.search.chapter]")[0]
    (root / "book.toml").write_text(settings)
    (root / "book/src/SUMMARY.md").write_text("# Summary\n\n- [One](one.md)\n")
    (root / "book/src/one.md").write_text("# One\n\n{{#lab sampler}}\n")
    (root / ".git").mkdir()
    return root


@pytest.fixture
def served(book: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`python -m book.tools.serve` of that book; its temporary folders lie in `tmp`."""
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "book.tools.serve"],
        cwd=book,
        env=os.environ | {"PYTHONPATH": str(book), "TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def page(url: str) -> str:
    try:
        with urllib.request.urlopen(f"{url}/one.html", timeout=5) as reply:
            return str(reply.read().decode())
    except OSError:
        return ""


def until(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("how", nightly_but([signal.SIGINT], [signal.SIGINT, signal.SIGTERM]))
def test_a_grading_shows_in_the_page_and_nothing_is_left(book, served, tmp_path, how):
    assert served.stdout is not None
    url = served.stdout.readline().split()[4]
    assert until(lambda: "You have 0 of 100 points." in page(url))
    assert "__livereload" in page(url)
    progress = Progress.load(book)
    passed = load_curriculum()["sampler"].tasks[0]
    digest = part_digest(book / "labs/sampler")
    progress.records["sampler"] = LabRecord(digest, (passed.id,), passed.points, "2026-01-01")
    progress.save()
    assert until(lambda: f"You have {passed.points} of 100 points." in page(url))
    (book / "book/src/one.md").write_text("# One\n\nWritten anew.\n")
    assert until(lambda: "Written anew." in page(url))
    assert not (book / "book/out").exists()
    served.send_signal(how)
    assert served.wait(10) == 0
    assert page(url) == ""
    assert list((tmp_path / "tmp").iterdir()) == []
