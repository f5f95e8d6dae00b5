"""Lab 22 as it was finished before task 22.7 was added: it is carried over whole, says what is to be
added, and serves until then."""

from pathlib import Path

import pytest

from grader.stubs import generate
from grader.upgrade.changes import changes_since, stubs_of
from grader.upgrade.keep import stubs_of_today
from grader.upgrade.package import upgrade_package
from tests.learner import hand_in, record_pass
from yaie.backends import states
from yaie.core.errors import PartError
from yaie.curriculum.editions import serves, tasks_of
from yaie.curriculum.manifest import ROOT, load_curriculum
from yaie.curriculum.progress import Progress
from yaie.parts import load_parts

LAB = load_curriculum()["state_cache"]
OLD = tuple(task.id for task in LAB.tasks if task.since == 1)


def finished() -> dict[str, str]:
    """Edition 1's stubs, with the reference written into them. Both are what they were then but for
    22.7: a file of its own, and a line in `__init__.py`."""
    then = stubs_of(LAB, 1)
    today = generate(ROOT, [task.id for task in LAB.tasks])
    filled = {path.name: text for path, text in today.items() if path.parts[1] == LAB.key}
    header = " (edition 2)"
    return {
        name: then[name] if name == "__init__.py" else filled[name].replace(header, "", 1)
        for name in then
    }


def write(labs: Path) -> Path:
    folder = labs / LAB.key
    folder.mkdir()
    for name, text in finished().items():
        (folder / name).write_text(text)
    return folder


def test_what_was_finished_is_carried_over_and_the_new_task_is_told():
    changes = changes_since(LAB, 1)
    done = upgrade_package(stubs_of(LAB, 1), finished(), stubs_of_today(LAB), changes)
    assert (done.open, done.left_out) == ((), ())
    for name, text in done.files.items():
        assert text is not None
        assert ("not implemented yet" in text) == (name == "rollback.py")
    (note,) = [note for change in changes for note in change.notes]
    assert (note.task, note.file, note.function) == ("22.7", "rollback.py", "run_ahead")


def test_an_edition_serves_if_tasks_alone_were_added_since():
    assert serves(LAB, 1)
    assert serves(LAB, None)
    assert tuple(task.id for task in tasks_of(LAB, 1)) == OLD
    assert not serves(load_curriculum()["cuda_graphs"], 2)


def test_it_goes_on_serving_and_the_reference_takes_drafts_back(
    labs: Path, caplog: pytest.LogCaptureFixture
):
    write(labs)
    record_pass(labs, LAB.key, tasks=len(OLD))
    parts = load_parts("auto", labs=[LAB.key])
    (part,) = parts.table()
    assert part.is_yours
    assert part.reason == "all tasks of edition 1 passed: yaie lab upgrade state_cache"
    states._say_that_it_lacks.cache_clear()
    with caplog.at_level("WARNING"):
        found = [states.rollback_of(parts) for _ in range(3)]
    assert {one.settle.__module__ for one in found} == {"solutions.state_cache.rollback"}
    (line,) = caplog.messages
    assert "stand in for task 22.7" in line


def test_it_does_not_serve_before_its_own_tasks_have_passed(labs: Path):
    write(labs)
    record_pass(labs, LAB.key, tasks=len(OLD) - 1)
    (part,) = load_parts("auto", labs=[LAB.key]).table()
    assert (part.owner, part.reason) == ("reference", "5 of 6 tasks passed")


def test_a_package_of_today_needs_the_new_task(labs: Path):
    folder = hand_in(labs, LAB.key)
    record_pass(labs, LAB.key, tasks=len(OLD))
    assert load_parts("auto", Progress.load(labs.parent), labs=[LAB.key]).table()[0].reason == (
        "6 of 7 tasks passed"
    )
    stub = generate(ROOT)[Path("labs", LAB.key, "rollback.py")]
    (folder / "rollback.py").write_text(stub)
    with pytest.raises(PartError, match=r"unfinished: state_cache task 22\.7"):
        load_parts(LAB.key, labs=[LAB.key])


def test_what_a_package_has_itself_is_used(labs: Path, caplog: pytest.LogCaptureFixture):
    hand_in(labs, LAB.key)
    found = states.rollback_of(load_parts(LAB.key, labs=[LAB.key]))
    assert found.settle.__module__ == "labs.state_cache.rollback"
    assert not caplog.messages
