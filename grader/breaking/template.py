"""The learner's file as it is first written: what to write, and an example that runs."""

import textwrap
from pathlib import Path

from grader.breaking.attacks import IMPORTS
from grader.selfcheck.trees import sources_with_tasks
from grader.selfcheck.variants import reference_folder
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import Lab
from yaie.curriculum.progress import source_files
from yaie.system.files import cannot_write, write_whole

WIDTH = 105
EXAMPLES = Path(__file__).with_name("examples")
CALLS = (
    "runs each function whose name begins with attack_ on ten wrong versions, A to J. It is given one "
    "of them as `part`: what the package offers (its __all__), and what its files define, as "
    "part.{file}. It makes calls and returns what came of them: numbers, texts, bytes, tensors, or "
    "lists, tuples, sets and dicts of these. What it raises counts too. A version is caught when "
    "that differs from what the reference gives."
)
TEXT = '''"""Lab {number}, {title}: scripts that catch wrong versions of it.

    make break LAB={key}

{calls}

An attack counts only if
- two runs on the reference agree. Seed what you draw.
- other right designs, your own part among them, give the same. Ask what the contract promises.
{rule}
- it ends within 5 seconds.

Floats may differ by rounding. A list equals a tuple. What is printed is not shown.
The file is yours: git ignores it, and `make reset` and `make upgrade` leave it alone.
"""

'''


def write_template(file: Path, lab: Lab) -> bool:
    """Whether it was written; one that is there stays. Raises ConfigError."""
    if file.exists():
        return False
    example = (EXAMPLES / f"{lab.key}.py").read_text("utf-8")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text_for(lab) + example)
    except OSError as error:
        raise ConfigError(cannot_write(file, error), param="file") from None
    return True


def text_for(lab: Lab) -> str:
    """The docstring of a lab's file."""
    calls = textwrap.fill(CALLS.format(file=_a_file(lab)), WIDTH)
    rule = f"- it reads no file and no private name, and imports only {', '.join(sorted(IMPORTS))}."
    rule = textwrap.fill(rule, WIDTH, subsequent_indent="  ")
    return TEXT.format(number=lab.number, title=lab.title, key=lab.key, calls=calls, rule=rule)


def _a_file(lab: Lab) -> str:
    """One that a package can be asked for, best one that the learner has written in."""
    folder = reference_folder(lab)
    files = [path.stem for path in source_files(folder) if path.suffix == ".py"]
    written = [path.stem for path, *_ in sources_with_tasks(folder) if path.suffix == ".py"]
    return next(name for name in [*written, *files] if name not in ("__init__", "explore"))
