"""Labs as they were finished on 2026-11-28 grade full, once they are upgraded."""

import zipfile
from pathlib import Path

import pytest

from grader.runner import Limits, grade_labs
from grader.submission import Submission
from grader.upgrade.changes import changes_since, kept_stubs, stubs_of
from grader.upgrade.keep import stubs_of_today
from grader.upgrade.package import Upgraded, upgrade_package
from yaie.curriculum.editions import edition_in
from yaie.curriculum.manifest import Lab, load_curriculum

FINISHED = Path(__file__).parent / "finished-2026-11-28.zip"
with zipfile.ZipFile(FINISHED) as _archive:
    _KEYS = {name.partition("/")[0] for name in _archive.namelist()}
LABS = [lab for lab in load_curriculum().labs if lab.key in _KEYS]
"""Those that there were on that day."""
CHANGED = [lab for lab in LABS if lab.edition > 1]
AGAIN = {"cuda_graphs": ("17.1", "17.2", "17.3", "17.4", "17.5")}
"""Tasks to work on again, by lab: what they ask for has grown."""
OPEN = {
    "cuda_graphs": {
        ("inputs.py", "17.2"),
        ("padded_step.py", "17.3"),
        ("runner.py", "17.5"),
    }
}
"""Where something is to be written that was not there before: files and tasks."""
LEFT_OUT = {"cuda_graphs": ["runner.py"]}
"""Files of which something has no place today: `takes` is given."""


def upgraded(lab: Lab) -> Upgraded:
    with zipfile.ZipFile(FINISHED) as archive:
        mine = {
            name.partition("/")[2]: archive.read(name).decode()
            for name in archive.namelist()
            if name.startswith(f"{lab.key}/")
        }
    edition = edition_in(text.partition("\n")[0] for text in mine.values())
    assert edition is not None
    if edition == lab.edition:
        return Upgraded(dict(mine), (), ())
    now = stubs_of_today(lab)
    return upgrade_package(stubs_of(lab, edition), mine, now, changes_since(lab, edition))


@pytest.mark.parametrize("lab", CHANGED, ids=lambda lab: lab.key)
def test_what_was_finished_is_carried_over_whole(lab):
    done = upgraded(lab)
    assert {(place.file, place.task) for place in done.open} == OPEN.get(lab.key, set())
    assert [left.file for left in done.left_out] == LEFT_OUT.get(lab.key, [])


@pytest.mark.parametrize("lab", CHANGED, ids=lambda lab: lab.key)
def test_the_stubs_of_every_edition_before_todays_are_kept(lab):
    assert all(kept_stubs(lab.key, edition).is_file() for edition in range(1, lab.edition))


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.key)
def test_what_was_finished_passes(lab, tmp_path):
    folder = tmp_path / lab.key
    for name, text in upgraded(lab).files.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    (result,) = grade_labs([Submission(lab, folder, tmp_path)], limits=Limits(seconds=200))
    assert result.problem is None
    again = AGAIN.get(lab.key, ())
    assert result.passed == tuple(task.id for task in lab.tasks if task.id not in again)
