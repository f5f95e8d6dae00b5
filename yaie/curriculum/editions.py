"""Which edition of a lab's contract a learner's package was generated from.

Edition 1 is the first. A change that finished work must follow (a name, an argument, another region,
a task more) makes the next one. The manifest holds today's edition, the first line of every stub the
edition that it was generated from; no learner has a reason to change that line.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from yaie.curriculum.manifest import Lab, Task
from yaie.curriculum.progress import source_files

HEADER = re.compile(
    r"^(?:#|//) Lab \d+, your part(?: \(edition (?P<edition>\d+)\))?: "
    r"tasks? [\d., ]+ The rest is given\.$"
)
"""The first line of a file that holds tasks, as `grader.regions` writes it."""


def edition_of(folder: Path) -> int | None:
    """The oldest edition that a package's files say they are of; None if none of them says so."""
    return edition_in(_first_line(file) for file in source_files(folder))


def edition_in(first_lines: Iterable[str]) -> int | None:
    """The same, from the first lines of its files."""
    headers = (HEADER.match(line.rstrip("\r\n")) for line in first_lines)
    return min((int(header["edition"] or 1) for header in headers if header), default=None)


def is_older(lab: Lab, edition: int | None) -> bool:
    """Whether a package was generated before today's edition: `yaie lab upgrade` carries it over. One
    that does not say is taken for today's."""
    return edition is not None and edition < lab.edition


def serves(lab: Lab, edition: int | None) -> bool:
    """Whether the engine runs on a package of this edition: today's, or one since which tasks were added
    and nothing else changed. For those the reference stands in."""
    added = {task.since for task in lab.tasks}
    return edition is None or added.issuperset(range(edition + 1, lab.edition + 1))


def tasks_of(lab: Lab, edition: int | None) -> tuple[Task, ...]:
    """The tasks that a package of this edition has."""
    return tuple(task for task in lab.tasks if edition is None or task.since <= edition)


def how_to_upgrade(lab: Lab, edition: int | None) -> str:
    """What to say of a package that is older."""
    return (
        f"labs/{lab.key} is of edition {edition} of its contract, and today's is {lab.edition}: "
        f"`yaie lab upgrade {lab.key}` carries your work over, and keeps a backup"
    )


def _first_line(file: Path) -> str:
    with file.open(encoding="utf-8", errors="replace") as lines:
        return lines.readline(200)
