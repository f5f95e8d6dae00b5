"""What the exploration notebooks of the labs share: the parts to draw from (here), and how to draw.

A notebook is `solutions/<lab>/explore.py` as source and `labs/<lab>/explore.ipynb` to open; the grader
generates one from the other. Its first cell asks for the learner's part:

    parts = load("sampler")     yours; the reference for the labs around it

YAIE_MINE says otherwise, with the words of `--mine`: `none` draws from the reference.
"""

import os
import warnings

from yaie.core.errors import PartError
from yaie.curriculum.manifest import load_curriculum
from yaie.parts import Parts, forget_part, load_parts, open_tasks


class NothingToDraw(PartError):
    """The learner's part cannot be used yet. A notebook shows the message, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return [self.message]


def load(lab: str) -> Parts:
    """The parts to draw from, and a line that says whose. Files that changed are read again.

    Raises NothingToDraw, which names the tasks that are open.
    """
    # About a progress bar of a library that downloads models; nothing here does.
    warnings.filterwarnings("ignore", message="IProgress not found")
    forget_part(lab)
    try:
        parts = load_parts(chosen(lab))
    except PartError as error:
        raise NothingToDraw(_message(lab, error)) from None
    print(f"Drawn from {_whose(parts, lab)}.")
    return parts


def chosen(lab: str) -> str:
    """Whose parts a lab's notebook draws from, in the words of `--mine`."""
    return os.environ.get("YAIE_MINE", lab)


def _whose(parts: Parts, lab: str) -> str:
    owned = {part.lab: part for part in parts.table()}
    if not owned[lab].is_yours:
        return f"the reference's {lab} ({owned[lab].reason})"
    others = [name for name, part in owned.items() if part.is_yours and name != lab]
    return f"your {lab}" + (f", on your {', '.join(others)}" if others else "")


def _message(lab: str, error: PartError) -> str:
    lines = [f"Nothing to draw yet: {error.message}"]
    open_ids = open_tasks(lab)
    if open_ids:
        titles = {task.id: task.title for task in load_curriculum()[lab].tasks}
        lines += ["", f"Tasks of {lab} that are still open:"]
        lines += [f"  {task}  {titles.get(task, '')}".rstrip() for task in open_ids]
    lines += [
        "",
        "Run this cell again when you have written them; the kernel may go on running.",
        f"The pictures that the reference makes: YAIE_MINE=none make notebook LAB={lab}",
    ]
    return "\n".join(lines)
