"""Grading where nothing can be written: the report is as ever, progress is as it was."""

import errno
import io
import os
import shutil
import tempfile
from dataclasses import replace

import pytest
from rich.console import Console

from grader import grading, record, reset, runner, scratch, stubs
from grader.grading import Request, run
from grader.hints import give_hint
from grader.report.text import report_lines
from grader.runner import grade_lab
from grader.submission import Submission, find_submission
from grader.terminal import ThreadedGrading
from grader.verdict import Verdict
from tests.disk import LACKS, files_below, nothing_fits
from tests.grader.hostile import RADIX_TREE, part_with
from tests.grader.results import complete, graded, mixed, result_of
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, load_curriculum
from yaie.curriculum.progress import Progress


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Gradings of this test write below `tmp_path`, and come to the result of `mixed`."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / ".yaie").mkdir()
    kept = record.record
    monkeypatch.setattr(grading, "record", lambda result, complain: kept(result, folder, complain))
    monkeypatch.setattr(grading, "grade_labs", lambda found, **more: [mixed() for _ in found])
    monkeypatch.setattr(
        grading, "with_replay", lambda *given: scratch.with_replay(*given, root=folder)
    )
    return folder


def graded_as(**request):
    out, err = io.StringIO(), io.StringIO()
    consoles = (Console(file=out, width=200), Console(file=err, width=200))
    code = run(Request(lab="radix_tree", **request), *consoles)
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("number", LACKS)
@pytest.mark.parametrize("form", ["text", "json", "junit"])
def test_the_report_is_printed_and_a_sentence_says_that_progress_is_not_kept(
    checkout, monkeypatch, number, form
):
    wanted = graded_as(format=form)[1]
    before = files_below(checkout)
    record.record(complete(), checkout)
    nothing_fits(monkeypatch, number)
    code, out, err = graded_as(format=form)
    assert code == 1
    why = os.strerror(number)
    said = f"Progress could not be kept: cannot write .yaie/progress.json ({why}).\n"
    assert err == said
    if form == "text":
        assert out.splitlines()[0] == wanted.splitlines()[0]
        assert f"could not be written ({why}): no file runs this again" in out
    assert Progress.load(checkout).records["radix_tree"].passed == complete().passed
    assert files_below(checkout).keys() == before.keys()


def test_a_report_that_cannot_be_kept_is_refused_before_anything_is_graded(checkout, tmp_path):
    (tmp_path / "file").touch()
    for name in ("output", "csv"):
        students = {"submissions": tmp_path} if name == "csv" else {}
        with pytest.raises(ConfigError, match=r"cannot write .*file/x: Not a directory") as told:
            graded_as(**{name: tmp_path / "file" / "x"}, **students)
        assert told.value.param == name
    assert files_below(checkout) == {}


def test_a_report_for_which_the_disk_has_run_full_leaves_the_old_one(
    checkout, tmp_path, monkeypatch
):
    (tmp_path / "old.xml").write_text("old")
    nothing_fits(monkeypatch)
    with pytest.raises(ConfigError, match=r"cannot write .*old.xml: No space left"):
        graded_as(format="junit", output=tmp_path / "old.xml")
    assert (tmp_path / "old.xml").read_text() == "old"
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_progress_is_as_it_was_when_it_cannot_be_written(tmp_path, monkeypatch):
    record.record(complete(), tmp_path)
    before = files_below(tmp_path)
    nothing_fits(monkeypatch)
    sentences = []
    failed = result_of(graded("4.2", Verdict.FAILED))
    assert record.record(failed, tmp_path, sentences.append) == ("4.2",)
    assert len(sentences) == 1
    assert files_below(tmp_path) == before
    with pytest.raises(ConfigError, match="Progress could not be kept"):
        record.record(failed, tmp_path)


def test_a_hint_is_given_even_if_it_will_come_again(tmp_path, monkeypatch):
    (tmp_path / "labs/radix_tree").mkdir(parents=True)
    shutil.copytree(ROOT / "grader/hints", tmp_path / "grader/hints")
    nothing_fits(monkeypatch)
    for _ in range(2):
        lines = [line.plain for line in give_hint(RADIX_TREE, "4.1", root=tmp_path)]
        assert "Hint 1 of 4, a question" in lines
        assert lines[-1].startswith("This hint will come again: cannot write .yaie/progress.json")
    assert files_below(tmp_path / ".yaie") == {".progress.json.lock": b""}


@pytest.fixture
def lab_folder(tmp_path, monkeypatch):
    """A checkout with one generated file, which the learner has changed."""
    path = stubs.Path("labs/radix_tree/tree.py")
    monkeypatch.setattr(reset, "generate", lambda root: {path: "stub = 1\n"})
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("mine = 1\n")
    (tmp_path / path).with_name("notes.md").write_text("notes")
    return tmp_path


def test_nothing_is_reset_without_a_whole_backup(lab_folder, monkeypatch):
    before, copy = files_below(lab_folder), shutil.copy2

    def full(source, target, **more):
        if os.fspath(source).endswith("tree.py"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return copy(source, target, **more)

    monkeypatch.setattr(shutil, "copy2", full)
    monkeypatch.setattr(shutil.copytree, "__defaults__", (False, None, full, False, False))
    with pytest.raises(ConfigError, match=r"backups: .*No space left.* Nothing was changed"):
        reset.reset_lab(RADIX_TREE, lab_folder)
    assert files_below(lab_folder) == before


def test_a_stub_that_does_not_fit_leaves_the_learners_file_and_names_the_backup(
    lab_folder, monkeypatch
):
    nothing_fits(monkeypatch)
    with pytest.raises(ConfigError, match=r"your files are in \.yaie/backups/radix_tree-"):
        reset.reset_lab(RADIX_TREE, lab_folder)
    assert (lab_folder / "labs/radix_tree/tree.py").read_text() == "mine = 1\n"


def test_stubs_that_cannot_be_written_are_a_sentence(monkeypatch, capsys):
    path = stubs.Path("labs/radix_tree/extra.py")
    found = [stubs.Difference(path, None, "stub = 1\n", edited=False)]
    monkeypatch.setattr(stubs, "compare", lambda root, wanted: found)
    nothing_fits(monkeypatch, errno.EROFS)
    assert stubs.main([]) == 2
    assert capsys.readouterr().err == f"cannot write {ROOT / path}: Read-only file system\n"


def test_watch_shows_the_report_and_the_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("grader.terminal.grade_lab", lambda *given, **more: mixed())
    monkeypatch.setattr("grader.terminal.with_replay", lambda result, *given: result)
    monkeypatch.setattr(record.record, "__defaults__", (tmp_path, record._refuse))
    nothing_fits(monkeypatch)
    grading = ThreadedGrading(RADIX_TREE, 0)
    grading._thread.join(10)
    result, withdrawn = grading.poll()
    lines = [line.plain for line in report_lines(result, 80, withdrawn)]
    assert lines[0].startswith("Lab 4: Radix tree")
    assert any(line.startswith("Progress could not be kept") for line in lines)


def test_a_grader_without_temporary_files_blames_the_machine_and_keeps_what_passed(
    tmp_path, monkeypatch
):
    part_with(tmp_path)
    submission = Submission(RADIX_TREE, tmp_path / "radix_tree", tmp_path)
    record.record(replace(complete(), digest=runner.part_digest(submission.folder)), tmp_path)

    def nowhere(*given, **more):
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "mkdtemp", nowhere)
    result = grade_lab(submission)
    assert {task.verdict for task in result.tasks} == {Verdict.NOT_VERIFIED}
    text = "\n".join(line.plain for line in report_lines(result, 100))
    assert "The grader could not start: No usable temporary directory found" in text
    assert record.record(result, tmp_path) == ()
    assert Progress.load(tmp_path).records["radix_tree"].passed == complete().passed


@pytest.mark.nightly
def test_a_compiler_on_a_full_disk_costs_no_points(tmp_path, monkeypatch):
    compiler = tmp_path / "g++"
    compiler.write_text(
        "#!/bin/sh\n[ $1 = --version ] && echo 'g++ 12.0' && exit\n"
        "echo 'fatal error: error writing to /tmp/x.s: No space left on device' >&2; exit 1\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path / "cache"))
    result = grade_lab(find_submission(load_curriculum()["cuda_ops"], "solutions"))
    assert {task.verdict for task in result.tasks} == {Verdict.NOT_VERIFIED}
    assert result.digest
    text = "\n".join(line.plain for line in report_lines(result, 400))
    assert "the compiler could not write: No space left on device. Free some space" in text
